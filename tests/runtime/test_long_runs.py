"""Many jobs, long outages: memory, threads and file descriptors stay where they are."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import tracemalloc
from collections.abc import Iterator

import pytest

from jobkit import JobInfo, Worker
from jobkit.runtime.poller import ROOM
from tests.runtime.nodes import App, run
from tests.runtime.support import until

RUNS = [0]


class Tick(Worker, name="tick"):
    number: int

    async def perform(self, job: JobInfo) -> None:
        RUNS[0] += 1
        if self.number % 10 == 0:
            raise ValueError(f"number {self.number}")


class ThreadTick(Worker, name="thread_tick"):
    number: int

    def perform(self, job: JobInfo) -> None:
        RUNS[0] += 1


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    RUNS[0] = 0
    made = App(database_url, [Tick, ThreadTick], queues="default:20")
    yield made
    made.core.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Tick, ThreadTick])
def test_ML1_memory_does_not_grow_with_the_number_of_jobs(
    app: App, kind: type[Tick], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "jobkit")  # pytest keeps every record

    async def scenario() -> None:
        async with app.node() as node:

            async def round_of(count: int) -> int:
                goal = RUNS[0] + count
                for start in range(0, count, 500):
                    app.enqueue(*[kind(number) for number in range(start, start + 500)])
                await until(lambda: RUNS[0] == goal and not node.recorder.unrecorded, 60)
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

            await round_of(1_000)
            tracemalloc.start()
            await round_of(1_000)
            first = await round_of(1_000)
            await round_of(3_000)
            last = await round_of(1_000)
            tracemalloc.stop()
            assert last - first < 300_000
            assert not node.executor.runs
            assert threading.active_count() < 20 + 20 + 12

    run(scenario)


@pytest.mark.slow
def test_ML1_nodes_that_come_and_go_leave_no_threads_and_no_files(app: App) -> None:
    async def scenario() -> None:
        async def once() -> None:
            async with app.node():
                app.enqueue(Tick(1), ThreadTick(1))
                goal = RUNS[0] + 2
                await until(lambda: RUNS[0] == goal)

        await once()
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            await once()
        await until(lambda: threading.active_count() <= threads + 1)
        assert len(os.listdir("/proc/self/fd")) <= files + 2

    run(scenario)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_ML2_a_node_that_cannot_record_holds_a_bounded_number_of_results(
    app: App, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    storage, failing = app.core.storage, threading.Event()
    real = storage.transition, storage.exchange

    def transition(*args: object, **kwargs: object) -> object:
        if failing.is_set():
            raise OperationalError("UPDATE", {}, Exception("gone"), connection_invalidated=True)
        return real[0](*args, **kwargs)  # type: ignore[arg-type]

    def exchange(*args: object, **kwargs: object) -> object:
        if failing.is_set():
            raise OperationalError("UPDATE", {}, Exception("gone"), connection_invalidated=True)
        return real[1](*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(storage, "transition", transition)
    monkeypatch.setattr(storage, "exchange", exchange)

    async def scenario() -> None:
        app.enqueue(*[Tick(1) for _ in range(1_500)])
        failing.set()
        async with app.node() as node:
            await until(lambda: RUNS[0] >= 20)
            await asyncio.sleep(1.5)
            assert RUNS[0] <= 20 + ROOM + 20
            assert node.recorder.unrecorded <= 20 + ROOM + 20
            failing.clear()
            await until(lambda: RUNS[0] == 1_500 and not node.recorder.unrecorded, 30)
        assert set(app.states()) == {"completed"}

    run(scenario)
