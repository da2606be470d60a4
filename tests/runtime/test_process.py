"""The process runner: real children, which die, hang, print and exit."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from jobkit.config import Config
from jobkit.core import Core
from jobkit.jobs import JobState
from jobkit.runtime.executor import Executor
from jobkit.runtime.runners import JobRunner
from jobkit.runtime.runners.process import COMMAND, ProcessRunner, hello
from jobkit.runtime.settle import Settled
from jobkit.storage.base import ClaimedJob
from tests.runtime import child_workers
from tests.runtime.support import claimed, until

pytestmark = pytest.mark.timeout(60)


class Bench:
    """An executor with a pool of children, and what it delivered by job id."""

    def __init__(self, **process: int | None) -> None:
        config = Config(database_url="sqlite:///unused.db", process=process)
        workers = [
            child_workers.Deed,
            child_workers.AsyncDeed,
            child_workers.HastyDeed,
            child_workers.child_function,
        ]
        self.core = Core(config, workers=workers, plugins=[child_workers])
        self.settled: dict[int, Settled] = {}
        self.executor = Executor(self.core, asyncio.get_running_loop(), self.deliver, processes=self.make)
        self.runner: ProcessRunner | None = None

    def make(self, executor: Executor) -> JobRunner:
        greeting = hello(self.core.config.to_plain(), None, ["tests.runtime.child_workers"])
        self.runner = ProcessRunner(executor, executor.loop, self.core.config.process, greeting)
        return self.runner

    def deliver(self, settled: Settled, result: BaseException | None) -> None:
        assert settled.lease.id not in self.settled
        self.settled[settled.lease.id] = settled

    def accept(self, job: ClaimedJob) -> ClaimedJob:
        cls = self.core.registry.resolve(job.worker)
        assert cls is not None
        self.executor.accept(None, [job], {job.worker: cls})
        return job

    async def run(self, id: int, what: str, path: object = "", worker: str = "deed") -> Settled:
        self.accept(job(id, what, path, worker))
        await until(lambda: id in self.settled, 30)
        return self.settled[id]

    @property
    def pids(self) -> list[int]:
        return self.runner.pids if self.runner is not None else []


def job(id: int, what: str, path: object = "", worker: str = "deed") -> ClaimedJob:
    return claimed(id, worker, args=json.dumps({"what": what, "path": str(path)}))


@asynccontextmanager
async def bench(**process: int | None) -> AsyncIterator[Bench]:
    made = Bench(**process)
    try:
        yield made
    finally:
        pids = made.pids
        made.executor.close()
        await until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def state_of(settled: Settled) -> JobState | None:
    return settled.change.to if settled.change is not None else None


def run_async(scenario: Callable[[], object]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_outcomes_and_errors_come_back_from_a_child(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(children=1) as b:
            pid = tmp_path / "pid"
            assert state_of(await b.run(1, "pid", pid)) is JobState.COMPLETED
            assert int(pid.read_text()) == b.pids[0] != os.getpid()
            snoozed = await b.run(2, "snooze")
            assert snoozed.change is not None
            assert snoozed.change.scheduled_at is not None
            assert (snoozed.change.scheduled_at - snoozed.at).total_seconds() == 7
            assert state_of(await b.run(3, "discard")) is JobState.DISCARDED
            failed = await b.run(4, "fail")
            assert failed.error is not None
            assert failed.error.startswith("ValueError: wrong in a child\n")
            assert "child_workers.py" in failed.error
            b.accept(claimed(5, "child_function", args='{"number": 4}'))
            await until(lambda: 5 in b.settled)
            assert state_of(b.settled[5]) is JobState.SCHEDULED
            assert state_of(await b.run(6, "pid", pid, "async_deed")) is JobState.COMPLETED
            assert state_of(await b.run(7, "middleware")) is JobState.SCHEDULED
            await b.run(8, "resources", tmp_path / "seen")
            assert (tmp_path / "seen").read_text() == "hello True"
            assert state_of(await b.run(9, "print")) is JobState.COMPLETED
            assert state_of(await b.run(10, "thread stays")) is JobState.COMPLETED
            assert (await b.run(11, "exit")).error.startswith("SystemExit: 0")  # type: ignore[union-attr]
            assert state_of(await b.run(12, "task exits", worker="async_deed")) is JobState.COMPLETED
            assert len(b.pids) == 1

    run_async(scenario)


@pytest.mark.parametrize(
    ("what", "text"), [("kill", "process ended: signal 9"), ("hard exit", "process ended: exit code 3")]
)
def test_CW10_the_death_of_a_child_is_its_jobs_failure_alone(what: str, text: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(children=2) as b:
            other = tmp_path / "other"
            bystander = b.accept(job(1, "until stopped", other))
            died = await b.run(2, what)
            assert died.error is not None
            assert text in died.error
            assert state_of(died) is JobState.RETRYABLE
            assert 1 not in b.settled
            assert state_of(await b.run(3, "snooze")) is JobState.SCHEDULED
            await until(other.exists)
            b.executor.shut_down()
            await until(lambda: 1 in b.settled)
            assert state_of(b.settled[bystander.id]) is JobState.COMPLETED

    run_async(scenario)


def test_a_timeout_kills_the_child_and_what_it_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(children=1) as b:
            await b.run(1, "snooze", worker="hasty_deed")
            timed_out = await b.run(2, "grandchild", tmp_path / "grandchild", "hasty_deed")
            assert timed_out.error is not None
            assert timed_out.error.startswith("TimeoutError: timed out after 0.3 s")
            grandchild = int((tmp_path / "grandchild").read_text())
            await until(lambda: not _alive(grandchild))

    run_async(scenario)


def test_the_timeout_of_a_run_begins_with_its_child() -> None:
    async def scenario() -> None:
        async with bench(children=1) as b:
            for id in range(1, 4):
                b.accept(job(id, "snooze", worker="hasty_deed"))
            await until(lambda: len(b.settled) == 3, 30)
            assert {state_of(settled) for settled in b.settled.values()} == {JobState.SCHEDULED}

    run_async(scenario)


def test_a_lost_lease_kills_the_child(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(children=1) as b:
            seen = tmp_path / "pid"
            lost = b.accept(job(1, "forever", seen, "async_deed"))
            await until(lambda: seen.exists() and seen.read_text(), 30)
            b.executor.abort(lost.lease)
            await until(lambda: 1 in b.settled)
            assert b.settled[1].change is None
            await until(lambda: not _alive(int(seen.read_text())))
            assert state_of(await b.run(2, "snooze")) is JobState.SCHEDULED

    run_async(scenario)


def test_CW11_runs_that_wait_for_a_child_go_back_at_once_when_the_node_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(children=1) as b:
            seen = tmp_path / "pid"
            b.accept(job(1, "until stopped", seen))
            await until(seen.exists, 30)
            b.accept(job(2, "snooze"))
            b.executor.shut_down()
            assert state_of(b.settled[2]) is JobState.AVAILABLE
            await until(lambda: 1 in b.settled)
            assert state_of(b.settled[1]) is JobState.COMPLETED

    run_async(scenario)


def test_a_child_killed_at_the_end_of_the_grace_gives_its_job_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(children=1) as b:
            seen = tmp_path / "pid"
            b.accept(job(1, "forever", seen))
            await until(seen.exists, 30)
            b.executor.shut_down()
            b.executor.interrupt_all()
            await until(lambda: 1 in b.settled)
            change = b.settled[1].change
            assert change is not None
            assert (change.to, change.attempt_delta) == (JobState.AVAILABLE, -1)

    run_async(scenario)


def test_children_are_replaced_after_so_many_jobs_and_so_much_memory(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(children=1, max_jobs=2) as b:
            pids = []
            for id in range(1, 5):
                await b.run(id, "pid", tmp_path / "pid")
                pids.append((tmp_path / "pid").read_text())
            assert pids[0] == pids[1] != pids[2] == pids[3]
        async with bench(children=1, max_jobs=None, max_memory=200_000_000) as b:
            await b.run(1, "pid", tmp_path / "first")
            await b.run(2, "memory", 250_000_000)
            await b.run(3, "pid", tmp_path / "second")
            assert (tmp_path / "first").read_text() != (tmp_path / "second").read_text()

    run_async(scenario)


def test_a_child_that_cannot_start_fails_the_job_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with bench(children=1) as b:
            original = b.make

            def broken(executor: Executor) -> JobRunner:
                runner = original(executor)
                assert isinstance(runner, ProcessRunner)
                runner._greeting = {**runner._greeting, "plugins": ["no_such_module_at_all"]}
                return runner

            b.executor._processes = broken
            failed = await b.run(1, "snooze")
            assert failed.error is not None
            assert "no_such_module_at_all" in failed.error
            assert state_of(failed) is JobState.RETRYABLE

    run_async(scenario)


def test_idle_children_close_their_lifespans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    monkeypatch.setenv("JOBKIT_TEST_LIFESPAN", str(closed))

    async def scenario() -> None:
        async with bench(children=1) as b:
            await b.run(1, "snooze")
            pid = b.pids[0]
        assert closed.read_text() == f"closed {pid}\n"

    run_async(scenario)


PARENT = """
import json, subprocess, sys, time
child = subprocess.Popen([sys.executable, *{command!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdin.write({greeting!r}); child.stdin.flush()
child.stdout.readline()
if {busy!r}:
    child.stdin.write({busy!r}); child.stdin.flush()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("busy", [False, True])
def test_a_child_ends_within_a_second_of_its_parents_death(busy: bool, tmp_path: Path) -> None:
    config = Config(database_url="sqlite:///unused.db")
    greeting = json.dumps(
        hello(config.to_plain(), None, ["tests.runtime.child_workers"]) | {"main_path": None}
    )
    work = {
        "job": {
            "id": 1,
            "attempt": 1,
            "max_attempts": 2,
            "priority": 0,
            "worker": "deed",
            "queue": "q",
            "node": "n",
            "args": json.dumps({"what": "forever", "path": str(tmp_path / "at")}),
            "meta": "{}",
            "tags": "[]",
            **dict.fromkeys(("inserted_at", "scheduled_at", "attempted_at"), "2026-01-01T00:00:00+00:00"),
        },
        "module": "tests.runtime.child_workers",
        "qualname": "Deed",
        "stop": False,
    }
    message = json.dumps(work).encode() + b"\n" if busy else b""
    script = PARENT.format(command=COMMAND, greeting=greeting.encode() + b"\n", busy=message)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    if busy:
        asyncio.run(until((tmp_path / "at").exists))
    parent.kill()
    parent.wait()
    asyncio.run(until(lambda: not _alive(pid), 1.5))
    parent.stdout.close()


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
