"""What happens inside a node: recording, the loop, forks, and what it says of itself."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import Connection, insert, select

from jobkit import JobInfo, JobState, Worker, hookimpl
from jobkit.jobs import Transition
from tests.runtime.acts import SEEN, Act, Busy, Wait
from tests.runtime.nodes import App, run
from tests.runtime.support import until

# -- recording


class Veto:
    """A plugin whose observer refuses some transitions."""

    def __init__(self, refuses: Callable[[Transition], bool]) -> None:
        self.refuses = refuses
        self.calls = 0

    @hookimpl
    def jobkit_transitions(self, conn: Connection, transitions: list[Transition]) -> None:
        self.calls += 1
        if any(self.refuses(transition) for transition in transitions):
            raise RuntimeError("refused")


def test_ER3_one_row_that_cannot_be_recorded_holds_up_no_other(make: Callable[..., App]) -> None:
    bad: list[int] = []
    veto = Veto(lambda transition: transition.id in bad and transition.new is JobState.COMPLETED)
    app = make(plugins=[veto])

    async def scenario() -> None:
        ids = app.enqueue(*[Act() for _ in range(20)])
        bad.append(ids[7])
        async with app.node() as node:
            good = [id for id in ids if id not in bad]
            await app.settled(*good)
            assert app.row(ids[7]).state == "executing"
            assert any(lease.id == ids[7] for lease in node.leases())
            bad.clear()
            [row] = await app.settled(ids[7])
            assert row.state == "completed"

    run(scenario)


def test_observers_in_the_transaction_see_what_lands(make: Callable[..., App]) -> None:
    seen: list[tuple[int, str]] = []

    class Plugin:
        @hookimpl
        def jobkit_transitions(self, conn: Connection, transitions: list[Transition]) -> None:
            seen.extend((t.id, t.new.value) for t in transitions if t.new.value != "executing")

    app = make(plugins=[Plugin()])

    async def scenario() -> None:
        ids = app.enqueue(Act(), Act("fail"))
        async with app.node():
            await app.settled(*ids)
        assert sorted(seen) == [(ids[0], "completed"), (ids[1], "retryable")]

    run(scenario)


# -- the loop


def test_CW7_a_job_that_blocks_the_loop_is_named_and_stops_no_beat(app: App) -> None:
    async def scenario() -> None:
        async with app.node() as node:
            named: list[str] = []
            beats: list[float | None] = []

            def watch() -> None:
                deadline = time.monotonic() + 10
                while not named and time.monotonic() < deadline:
                    beats.append(node.last_beat)
                    if node.loop_lag() > 0.5 and "busy" in (job := node.blocked_by()):
                        named.append(job)
                    time.sleep(0.01)

            watching = asyncio.get_running_loop().run_in_executor(None, watch)
            [id] = app.enqueue(Busy(2.5))
            await watching
            await app.settled(id)
            assert named[0].startswith(f"job {id} (busy) at ")
            assert "in perform" in named[0]

    run(scenario)


def test_a_task_of_a_job_that_raises_system_exit_does_not_end_our_own_loop(app: App) -> None:
    from jobkit.runtime.ownloop import run_on_own_loop

    class Spawns(Worker, name="spawns"):
        async def perform(self, job: JobInfo) -> None:
            async def leaves() -> None:
                raise SystemExit(3)

            task = asyncio.create_task(leaves())
            await asyncio.sleep(0.01)
            assert task.done()

    app.core.registry.add_worker(Spawns)

    async def scenario() -> str:
        [id] = app.enqueue(Spawns())
        async with app.node():
            [row] = await app.settled(id)
        return row.state

    assert run_on_own_loop(scenario) == "completed"


def test_FK2_a_forked_child_never_acts_as_the_node(app: App) -> None:
    class Forks(Worker, name="forks"):
        def perform(self, job: JobInfo) -> None:
            pid = os.fork()
            if pid == 0:
                return
            SEEN.append(os.waitpid(pid, 0)[1])

    class AsyncForks(Worker, name="async_forks"):
        async def perform(self, job: JobInfo) -> None:
            pid = os.fork()
            if pid == 0:
                return
            SEEN.append(os.waitpid(pid, 0)[1])

    app.core.registry.add_worker(Forks)
    app.core.registry.add_worker(AsyncForks)

    async def scenario() -> None:
        ids = app.enqueue(Forks(), AsyncForks())
        async with app.node():
            rows = await app.settled(*ids)
        assert [row.state for row in rows] == ["completed", "completed"]
        assert [os.waitstatus_to_exitcode(status) for status in SEEN] == [1, 1]  # type: ignore[arg-type]

    run(scenario)


def test_two_nodes_in_one_process_run_each_job_once(make: Callable[..., App]) -> None:
    one, two = make(), make()

    async def scenario() -> None:
        ids = one.enqueue(*[Act() for _ in range(100)])
        async with one.node(), two.node():
            await one.settled(*ids)
        assert Counter(SEEN) == Counter(ids)

    run(scenario)


def test_info_says_what_the_node_does(app: App) -> None:
    async def scenario() -> None:
        [id] = app.enqueue(Wait())
        async with app.node(grace=0.05) as node:
            await until(lambda: id in SEEN)
            await until(lambda: node.info()["services"]["stager"]["ticked_at"])  # type: ignore[index]
            info = node.info()
            assert info["pid"] == os.getpid()
            assert info["running"] == {"default": 1}
            assert isinstance(info["memory"], int)
            assert info["memory"] > 1_000_000
            with app.core.read_engine.connect() as conn:
                assert conn.execute(select(app.core.tables.nodes.c.info)).scalar() is not None

    run(scenario)


def test_rows_that_others_insert_are_found(app: App) -> None:
    """Without any hint of ours: a plain INSERT of another program."""

    async def scenario() -> None:
        async with app.node() as node:
            await until(lambda: node.poller.idle)
            jobs, now = app.core.tables.jobs, datetime.now(UTC)
            with app.core.engine.begin() as conn:
                conn.execute(
                    insert(jobs).values(
                        state="available",
                        worker="act",
                        args="{}",
                        meta="{}",
                        tags="[]",
                        errors="[]",
                        inserted_at=now,
                        scheduled_at=now,
                        queue="default",
                    )
                )
            await until(lambda: SEEN, 3)

    run(scenario)
