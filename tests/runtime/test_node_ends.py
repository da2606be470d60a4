"""How a node begins and ends, on both backends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from sqlalchemy import update

from jobkit import JobInfo, Worker, hookimpl
from jobkit.errors import ConfigError, NotMigrated
from jobkit.hookspecs import Node
from jobkit.runtime.node import NodeRuntime
from tests.runtime.acts import SEEN, Act, Block, Stubborn, Wait, gate
from tests.runtime.nodes import App, run
from tests.runtime.support import until

# -- the end


def test_SD8_an_idle_node_stops_at_once_and_leaves_no_row(app: App) -> None:
    async def scenario() -> None:
        node = app.node()
        await node.start()
        assert app.nodes() == [node.id]
        started = time.perf_counter()
        await node.stop()
        assert time.perf_counter() - started < 1.0
        assert app.nodes() == []

    run(scenario)


def test_SD5_a_job_that_finishes_within_the_grace_is_recorded(app: App) -> None:
    async def scenario() -> None:
        ids = app.enqueue(Wait(), Block())
        node = app.node(grace=10)
        await node.start()
        await until(lambda: len(SEEN) == 2)
        stopping = asyncio.create_task(node.stop())
        await asyncio.sleep(0.1)
        assert app.nodes() == [node.id]
        gate("gate").set()
        assert await stopping == 0
        assert [app.row(id).state for id in ids] == ["completed", "completed"]

    run(scenario)


def test_SD4_what_the_grace_interrupts_goes_back_with_its_attempt(app: App) -> None:
    async def scenario() -> None:
        [id] = app.enqueue(Wait().job(max_attempts=1))
        node = app.node(grace=0.05)
        await node.start()
        await until(lambda: id in SEEN)
        assert await node.stop() == 0
        row = app.row(id)
        assert (row.state, row.attempt, row.errors) == ("available", 0, [])

    run(scenario)


def test_jobs_see_that_the_node_is_stopping(app: App) -> None:
    class Polite(Worker, name="polite"):
        def perform(self, job: JobInfo) -> None:
            SEEN.append(job.id)
            while not job.should_stop():
                threading.Event().wait(0.005)

    app.core.registry.add_worker(Polite)

    async def scenario() -> None:
        [id] = app.enqueue(Polite())
        async with app.node():
            await until(lambda: id in SEEN)
        assert app.row(id).state == "completed"

    run(scenario)


@pytest.mark.parametrize("worker", [Block(), Stubborn()])
def test_SD2_SD6_an_embedded_node_returns_in_time_and_lives_on_for_what_cannot_be_ended(
    app: App, worker: Worker
) -> None:
    async def scenario() -> None:
        [id] = app.enqueue(worker)
        node = app.node(grace=0.1)
        started = 0.0
        async with node:
            await until(lambda: id in SEEN)
            started = time.perf_counter()
        assert time.perf_counter() - started < 2.0
        assert app.nodes() == [node.id]
        assert app.row(id).state == "executing"
        [later] = app.enqueue(Act())
        beat = node.last_beat
        await until(lambda: node.last_beat != beat)
        assert app.row(later).state == "available"
        gate("gate").set()
        await until(lambda: not app.nodes())
        assert app.row(id).state in ("completed", "available")

    run(scenario)


def test_a_node_whose_process_leaves_gives_back_what_still_runs(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jobkit")

    async def scenario() -> None:
        [id] = app.enqueue(Block())
        node = app.node(grace=0.05, leaving=True)
        await node.start()
        await until(lambda: id in SEEN)
        assert await node.stop() == 1
        row = app.row(id)
        assert (row.state, row.attempt) == ("available", 0)
        assert app.nodes() == []
        [stop] = [line.getMessage() for line in caplog.records if "job.stop" in line.getMessage()]
        assert float(stop.rpartition("duration_ms=")[2]) >= 50  # the grace at least

    run(scenario)


def test_CW11_a_claim_that_is_answered_during_the_stop_goes_back(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = app.core.storage
    claim = storage.claim

    def slow(*args: object, **kwargs: object) -> object:
        won = claim(*args, **kwargs)  # type: ignore[arg-type]
        if won:
            gate("claimed").set()
            gate("stopping").wait(10)
        return won

    monkeypatch.setattr(storage, "claim", slow)

    async def scenario() -> None:
        ids = app.enqueue(*[Act() for _ in range(5)])
        node = app.node()
        await node.start()
        await until(gate("claimed").is_set)
        assert node.in_flight()
        stop = asyncio.create_task(node.stop())
        await until(lambda: node.stopping)
        gate("stopping").set()
        assert await stop == 0
        assert [app.row(id).state for id in ids] == ["available"] * 5
        assert [app.row(id).attempt for id in ids] == [0] * 5
        assert SEEN == []

    run(scenario)


def test_SD7_an_embedded_node_touches_neither_signals_nor_the_loop_policy(app: App) -> None:
    async def scenario() -> None:
        before = (
            [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)],
            asyncio.get_event_loop_policy(),
        )
        async with app.node():
            during = (
                [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)],
                asyncio.get_event_loop_policy(),
            )
        assert before == during

    run(scenario)


def test_a_drained_node_wants_to_end(app: App) -> None:
    async def scenario() -> None:
        ids = app.enqueue(*[Act() for _ in range(30)], Act().job(schedule_in=3600))
        async with app.node(drain=True) as node:
            await asyncio.wait_for(node.ended.wait(), 10)
        assert Counter(app.states()) == {"completed": 30, "scheduled": 1}
        assert len(ids) == 31

    run(scenario)


def test_a_drained_empty_node_wants_to_end_soon(app: App) -> None:
    async def scenario() -> None:
        async with app.node(drain=True) as node:
            await asyncio.wait_for(node.ended.wait(), 5)

    run(scenario)


def test_a_node_runs_no_more_than_max_jobs(app: App) -> None:
    async def scenario() -> None:
        app.enqueue(*[Act() for _ in range(9)])
        async with app.node(max_jobs=4) as node:
            await asyncio.wait_for(node.ended.wait(), 10)
        assert Counter(app.states()) == {"completed": 4, "available": 5}

    run(scenario)


def test_a_command_in_the_nodes_row_drains_it(app: App) -> None:
    async def scenario() -> None:
        node = app.node()
        await node.start()
        nodes = app.core.tables.nodes
        with app.core.engine.begin() as conn:
            conn.execute(update(nodes).values(wanted='{"drain": true}'))
        await until(lambda: not app.nodes())
        app.enqueue(Act())
        assert await node.stop() == 0
        assert SEEN == []

    run(scenario)


# -- the beginning


@pytest.mark.empty_database
def test_MG2_a_database_without_tables_is_refused_with_the_remedy(postgres_url: str) -> None:
    from jobkit.config import Config
    from jobkit.core import Core

    async def scenario() -> None:
        core = Core(Config(database_url=postgres_url))
        with pytest.raises(NotMigrated, match="jobkit migrate"):
            await NodeRuntime(core).start()
        core.close()

    run(scenario)


def test_lifespans_open_before_jobs_and_close_after_them(make: Callable[..., App]) -> None:
    order: list[object] = []

    class First:
        @hookimpl
        @contextlib.asynccontextmanager
        async def jobkit_lifespan(self, app: object) -> AsyncIterator[Mapping[str, object]]:
            order.append("open 1")
            yield {"one": 1}
            order.append("close 1")

    class Second:
        @hookimpl
        @contextlib.asynccontextmanager
        async def jobkit_lifespan(self, app: object) -> AsyncIterator[Mapping[str, object]]:
            order.append("open 2")
            yield {"two": 2}
            order.append("close 2")
            raise RuntimeError("isolated")

    class Look(Worker, name="look"):
        async def perform(self, job: JobInfo) -> None:
            order.append(dict(job.resources))

    app = make(plugins=[First(), Second()], workers=[Look])

    async def scenario() -> None:
        [id] = app.enqueue(Look())
        async with app.node():
            await app.settled(id)
        assert order == ["open 1", "open 2", {"one": 1, "two": 2}, "close 2", "close 1"]

    run(scenario)


def test_a_key_that_two_lifespans_yield_is_refused_and_what_was_opened_is_closed(
    make: Callable[..., App],
) -> None:
    order: list[str] = []

    class One:
        @hookimpl
        @contextlib.asynccontextmanager
        async def jobkit_lifespan(self, app: object) -> AsyncIterator[Mapping[str, object]]:
            order.append("open")
            yield {"key": 1}
            order.append("close")

    app = make(plugins=[One(), type("Two", (One,), {})()])

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="'key'"):
            await app.node().start()
        assert Counter(order) == {"open": 2, "close": 2}

    run(scenario)


def test_hooks_see_the_node_start_and_stop(make: Callable[..., App]) -> None:
    seen: list[tuple[str, str]] = []

    class Plugin:
        @hookimpl
        def jobkit_node_started(self, node: Node) -> None:
            seen.append(("started", node.id))

        @hookimpl
        def jobkit_node_stopping(self, node: Node) -> None:
            seen.append(("stopping", node.id))
            raise RuntimeError("isolated")

    app = make(plugins=[Plugin()])

    async def scenario() -> None:
        async with app.node() as node:
            await until(lambda: seen)
        await until(lambda: len(seen) == 2)
        assert seen == [("started", node.id), ("stopping", node.id)]

    run(scenario)
