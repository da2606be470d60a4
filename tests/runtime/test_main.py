"""`jobkit run` as a process: signals, exit codes, and leaving in time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit import Worker
from tests.runtime.nodes import App
from tests.runtime.runs_node import WORKERS, Blocker, Executor, Leaver, Quick, Sleeper, Spawner, Thread
from tests.runtime.support import wait_until

pytestmark = pytest.mark.timeout(90)


class Program:
    """A node in a process of its own."""

    def __init__(self, url: str, notes: Path, *options: str) -> None:
        self.notes = notes
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.runs_node", url, str(notes), *options],
            stderr=subprocess.PIPE,
            text=True,
        )

    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def wait_for(self, note: str) -> None:
        wait_until(lambda: note in self.noted() or self.process.poll() is not None, 30)
        assert note in self.noted(), self.process.communicate()[1]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, timeout: float = 20) -> tuple[int, str, float]:
        """Wait for the end: exit code, what it logged, and how long it took."""
        started = time.perf_counter()
        _, log = self.process.communicate(timeout=timeout)
        return self.process.returncode, log, time.perf_counter() - started


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    made = App(database_url, WORKERS)
    yield made
    made.core.close()


@pytest.fixture
def programs(app: App, database_url: str, tmp_path: Path) -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.communicate()


def start(programs: list[Program], url: str, tmp_path: Path, *options: str) -> Program:
    programs.append(Program(url, tmp_path / f"notes{len(programs)}", *options))
    return programs[-1]


def begun(
    app: App, programs: list[Program], url: str, tmp_path: Path, worker: Worker, *options: str
) -> tuple[Program, int]:
    """A program that has begun to run one job."""
    [id] = app.enqueue(worker)
    program = start(programs, url, tmp_path, *options)
    program.wait_for(f"began {id}")
    return program, id


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_SD1_the_first_signal_lets_running_jobs_finish(
    app: App, programs: list[Program], database_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    program, id = begun(app, programs, database_url, tmp_path, Sleeper(0.7))
    program.signal(number)
    code, _, _ = program.end()
    assert code == 0
    assert app.row(id).state == "completed"
    assert app.nodes() == []


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_SD1_the_second_signal_ends_at_once_with_another_code(
    app: App,
    programs: list[Program],
    database_url: str,
    tmp_path: Path,
    number: signal.Signals,
    expected: int,
) -> None:
    program, id = begun(app, programs, database_url, tmp_path, Thread(30), "grace=30")
    program.signal(signal.SIGTERM)
    wait_until(lambda: app.nodes())
    time.sleep(0.3)
    program.signal(number)
    code, _, took = program.end()
    assert code == expected
    assert took < 2
    assert app.row(id).state == "executing"


def test_SD1_both_signals_work_while_a_job_blocks_the_loop(
    app: App, programs: list[Program], database_url: str, tmp_path: Path
) -> None:
    program, _ = begun(app, programs, database_url, tmp_path, Blocker(30), "grace=30")
    program.signal(signal.SIGINT)
    time.sleep(0.3)
    program.signal(signal.SIGINT)
    code, _, took = program.end()
    assert code == 130
    assert took < 2


def test_SD2_a_thread_cannot_delay_the_exit_beyond_the_grace(
    app: App, programs: list[Program], database_url: str, tmp_path: Path
) -> None:
    program, id = begun(app, programs, database_url, tmp_path, Thread(60), "grace=0.3")
    program.signal(signal.SIGTERM)
    code, log, took = program.end()
    assert code == 11
    assert took < 5
    assert f"job {id} (thread)" in log
    assert (app.row(id).state, app.row(id).attempt) == ("available", 0)
    assert app.nodes() == []


def test_SD2_neither_can_a_job_that_blocks_the_loop(
    app: App, programs: list[Program], database_url: str, tmp_path: Path
) -> None:
    program, id = begun(app, programs, database_url, tmp_path, Blocker(60), "grace=0.3")
    program.signal(signal.SIGTERM)
    code, log, took = program.end()
    assert code == 11
    assert took < 8
    assert f"blocked by job {id} (blocker)" in log
    assert (app.row(id).state, app.row(id).attempt) == ("available", 0)
    assert app.nodes() == []


def test_SD2_neither_can_a_stubborn_coroutine_with_a_thread_of_the_loops_pool(
    app: App, programs: list[Program], database_url: str, tmp_path: Path
) -> None:
    program, id = begun(app, programs, database_url, tmp_path, Executor(), "grace=0.3")
    program.signal(signal.SIGTERM)
    code, _, took = program.end()
    assert code == 11
    assert took < 5
    assert app.row(id).state == "available"


def test_SD8_an_idle_worker_stops_within_a_second(
    app: App, programs: list[Program], database_url: str, tmp_path: Path
) -> None:
    program = start(programs, database_url, tmp_path)
    program.wait_for("up")
    program.signal(signal.SIGTERM)
    code, log, _ = program.end()
    assert code == 0
    moments = {line.split()[2]: float(line.split()[0]) for line in log.splitlines() if " INFO node." in line}
    assert moments["node.stop"] - moments["node.stopping"] < 1.0


@pytest.mark.parametrize("worker", [Leaver(), Spawner()])
def test_ER6_a_job_that_exits_does_not_end_the_worker(
    app: App, programs: list[Program], database_url: str, tmp_path: Path, worker: Worker
) -> None:
    program, id = begun(app, programs, database_url, tmp_path, worker)
    [later] = app.enqueue(Quick())
    wait_until(lambda: app.row(later).state == "completed")
    wait_until(lambda: app.row(id).state in ("completed", "retryable"))
    program.signal(signal.SIGTERM)
    assert program.end()[0] == 0


def test_drain_ends_by_itself_once_nothing_is_due(
    app: App, programs: list[Program], database_url: str, tmp_path: Path
) -> None:
    ids = app.enqueue(*[Quick() for _ in range(25)])
    program = start(programs, database_url, tmp_path, "drain=1")
    code, _, _ = program.end()
    assert code == 0
    assert [app.row(id).state for id in ids] == ["completed"] * 25


@pytest.mark.slow
def test_CW1_the_jobs_of_a_killed_process_run_again_within_half_a_minute(
    app: App, programs: list[Program], database_url: str, tmp_path: Path
) -> None:
    first, id = begun(app, programs, database_url, tmp_path, Sleeper(60))
    second = start(programs, database_url, tmp_path)
    second.wait_for("up")
    first.signal(signal.SIGKILL)
    first.end()
    wait_until(lambda: f"began {id}" in second.noted(), 30)
    assert app.row(id).attempt == 2


@pytest.mark.parametrize("backend", ["postgres"])
def test_SD3_the_end_is_bounded_while_the_database_is_away(
    app: App, programs: list[Program], database_url: str, tmp_path: Path, backend: str
) -> None:
    from tests.support.postgres import PostgresServer

    server = PostgresServer.create()
    try:
        url = server.url(server.new_database())
        other = App(url, WORKERS)
        program, _ = begun(other, programs, url, tmp_path, Sleeper(60), "grace=0.3")
        other.core.close()
        server.stop("immediate")
        program.signal(signal.SIGTERM)
        code, _, took = program.end(30)
        assert code == 0
        assert took < 12
    finally:
        server.destroy()
