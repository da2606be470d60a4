"""Whole nodes: jobs through the database and back, on both backends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, insert, select, update

from jobkit import Cancel, Discard, JobInfo, JobState, Outcome, QueueConfig, Snooze, Worker, hookimpl
from jobkit.errors import ConfigError, NotMigrated
from jobkit.events import (
    Event,
    JobFailed,
    JobLeaseLost,
    JobStarted,
    JobStopped,
    NodeFenced,
    NodeStarted,
    NodeStopped,
)
from jobkit.hookspecs import Node
from jobkit.jobs import Transition
from jobkit.runtime.node import NodeRuntime
from tests.runtime.nodes import App, run
from tests.runtime.support import until

GATES: dict[str, threading.Event] = {}
SEEN: list[object] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    GATES.clear()
    SEEN.clear()
    yield
    for gate in GATES.values():
        gate.set()


def gate(name: str) -> threading.Event:
    return GATES.setdefault(name, threading.Event())


class Act(Worker, name="act", max_attempts=3):
    what: str = ""

    async def perform(self, job: JobInfo) -> Outcome | None:
        SEEN.append(job.id)
        return outcome(self.what)


class Block(Worker, name="block"):
    """Waits in a thread until its gate opens."""

    gate: str = "gate"

    def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)
        gate(self.gate).wait(30)


class Wait(Worker, name="wait"):
    """Waits on the loop until its gate opens or it is cancelled."""

    gate: str = "gate"

    async def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)
        while not gate(self.gate).is_set():
            await asyncio.sleep(0.005)


class Stubborn(Worker, name="stubborn"):
    """Ignores its cancellation until its gate opens."""

    async def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)
        while not gate("gate").is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)


class Busy(Worker, name="busy"):
    """Blocks the loop."""

    seconds: float

    async def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)
        time.sleep(self.seconds)


class Tally(Worker, name="tally"):
    """Counts how many of its kind run at once."""

    running = 0
    most = 0

    async def perform(self, job: JobInfo) -> None:
        Tally.running += 1  # type: ignore[misc]
        Tally.most = max(Tally.most, Tally.running)  # type: ignore[misc]
        await asyncio.sleep(0.002)
        Tally.running -= 1  # type: ignore[misc]
        SEEN.append(job.id)


def outcome(what: str) -> Outcome | None:
    if what == "fail":
        raise ValueError("wrong")
    if what == "exit":
        raise SystemExit(0)
    return {"snooze": Snooze(60), "cancel": Cancel("gone"), "discard": Discard("bad")}.get(what)


WORKERS = [Act, Block, Wait, Stubborn, Busy, Tally]


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    made = App(database_url, WORKERS)
    yield made
    made.core.close()


@pytest.fixture
def make(database_url: str) -> Iterator[Callable[..., App]]:
    """Make apps with other settings on the same database."""
    made: list[App] = []

    def build(**settings: object) -> App:
        settings.setdefault("workers", WORKERS)
        made.append(App(database_url, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for one in made:
        one.core.close()


# -- the table of results, in the database


def test_every_result_ends_in_its_state(app: App) -> None:
    async def scenario() -> None:
        kinds = ["", "snooze", "cancel", "discard", "fail", "exit"]
        ids = app.enqueue(*[Act(what) for what in kinds])
        async with app.node():
            rows = await app.settled(*ids)
        states = [row.state for row in rows]
        assert states == ["completed", "scheduled", "cancelled", "discarded", "retryable", "retryable"]
        assert [row.attempt for row in rows] == [1, 0, 1, 1, 1, 1]
        assert rows[1].meta["snoozed"] == 1
        assert [len(row.errors) for row in rows] == [0, 0, 1, 1, 1, 1]
        assert rows[4].errors[0]["error"].startswith("ValueError: wrong\n")
        assert rows[4].errors[0]["attempt"] == 1

    run(scenario)


def test_CW6_the_last_attempt_discards(app: App) -> None:
    async def scenario() -> None:
        [id] = app.enqueue(Act("fail").job(max_attempts=1))
        async with app.node():
            [row] = await app.settled(id)
        assert row.state == "discarded"

    run(scenario)


def test_a_job_inserted_here_starts_at_once(app: App) -> None:
    async def scenario() -> None:
        async with app.node() as node:
            await until(lambda: node.poller.idle)
            await asyncio.sleep(0.05)
            started = time.perf_counter()
            [id] = app.enqueue(Act())
            await until(lambda: id in SEEN)
            assert time.perf_counter() - started < 0.5

    run(scenario)


def test_plain_log_lines_tell_start_stop_and_exception(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jobkit")

    async def scenario() -> None:
        good, bad, last = app.enqueue(Act(), Act("fail"), Act("fail").job(max_attempts=1))
        async with app.node():
            await app.settled(good, bad, last)
        lines = {
            (r.jobkit["event"], r.jobkit.get("job_id")): r for r in caplog.records if hasattr(r, "jobkit")
        }
        assert lines["job.start", good].jobkit["queue_ms"] >= 0
        assert lines["job.stop", good].jobkit["outcome"] == "completed"
        assert lines["job.stop", good].jobkit["duration_ms"] >= 0
        assert lines["job.exception", bad].levelno == logging.WARNING
        assert lines["job.exception", last].levelno == logging.ERROR
        assert "ValueError: wrong" in lines["job.exception", bad].getMessage()

    run(scenario)


def test_events_tell_what_stands_in_the_database(make: Callable[..., App]) -> None:
    events: list[Event] = []

    class Observer:
        @hookimpl
        def jobkit_event(self, event: Event) -> None:
            events.append(event)

    app = make(plugins=[Observer()])

    async def scenario() -> None:
        ids = app.enqueue(Act(), Act("fail"))
        async with app.node():
            await app.settled(*ids)

    run(scenario)
    kinds = [type(event) for event in events]
    assert kinds.count(JobStarted) == 2
    assert [event.outcome for event in events if isinstance(event, JobStopped)] == ["completed"]
    [failed] = [event for event in events if isinstance(event, JobFailed)]
    assert failed.retry_at is not None
    assert kinds.index(NodeStarted) < kinds.index(JobStarted)
    assert kinds[-1] is NodeStopped


def test_PL5_an_observer_that_raises_changes_nothing(make: Callable[..., App]) -> None:
    class Observer:
        @hookimpl
        def jobkit_event(self, event: Event) -> None:
            raise RuntimeError("observer")

    app = make(plugins=[Observer()])

    async def scenario() -> None:
        ids = app.enqueue(Act(), Act("fail"))
        async with app.node():
            assert [row.state for row in await app.settled(*ids)] == ["completed", "retryable"]

    run(scenario)


# -- queues


def test_QU6_a_nodes_limit_is_never_exceeded(make: Callable[..., App]) -> None:
    app = make(queues="default:3,other:2")
    Tally.running = Tally.most = 0  # type: ignore[misc]

    async def scenario() -> None:
        ids = app.enqueue(*[Tally() for _ in range(40)])
        async with app.node():
            await app.settled(*ids)
        assert Tally.most == 3

    run(scenario)


def test_QU3_jobs_start_by_priority_then_time_then_id(make: Callable[..., App]) -> None:
    app = make(queues="default:1")

    async def scenario() -> None:
        ids = app.enqueue(*[Act().job(priority=p) for p in (5, 0, 9, 0, 5)])
        async with app.node():
            await app.settled(*ids)
        assert [ids[1], ids[3], ids[0], ids[4], ids[2]] == SEEN

    run(scenario)


def test_QU3_a_full_queue_does_not_starve_another(make: Callable[..., App]) -> None:
    app = make(queues="default:2,other:2")

    async def scenario() -> None:
        app.enqueue(*[Wait("hold") for _ in range(50)])
        async with app.node(grace=0.05):
            await until(lambda: len(SEEN) == 2)
            [id] = app.enqueue(Act().job(queue="other"))
            await app.settled(id)

    run(scenario)


def test_QU1_a_pause_is_honoured_from_the_first_fetch_and_ends_when_resumed(app: App) -> None:
    async def scenario() -> None:
        async with app.node():
            pass
        app.pause("default")
        [id] = app.enqueue(Act())
        async with app.node() as node:
            await until(lambda: node.producers["default"].paused)
            await asyncio.sleep(0.3)
            assert app.row(id).state == "available"
            app.pause("default", False)
            await app.settled(id)

    run(scenario)


def test_a_queue_configured_as_paused_starts_paused(make: Callable[..., App]) -> None:
    app = make(queues={"default": QueueConfig(5, paused=True)})

    async def scenario() -> None:
        [id] = app.enqueue(Act())
        async with app.node():
            await asyncio.sleep(0.3)
            assert app.row(id).state == "available"

    run(scenario)


def test_QU2_queue_specifications_are_checked(app: App) -> None:
    with pytest.raises(ConfigError):
        app.node("default:0")


# -- workers that are not known here


class Newer(Worker, name="newer"):
    async def perform(self, job: JobInfo) -> None:
        SEEN.append(("newer", job.id))


def test_CW13_a_job_of_an_unknown_worker_goes_back_unharmed_and_runs_where_it_is_known(
    make: Callable[..., App],
) -> None:
    old = make()
    new = make(workers=[Newer])

    async def scenario() -> None:
        [id] = new.enqueue(Newer())
        [other] = old.enqueue(Act())
        async with old.node() as node:
            await until(lambda: "newer" in node.known.skip)
            await old.settled(other)
            row = old.row(id)
            assert (row.state, row.attempt) == ("available", 0)
            async with new.node():
                [row] = await new.settled(id)
            assert (row.state, row.attempt) == ("completed", 1)

    run(scenario)


def test_a_worker_that_becomes_known_leaves_the_skip_list(make: Callable[..., App]) -> None:
    app = make()

    async def scenario() -> None:
        [id] = app.enqueue(Newer())
        async with app.node() as node:
            await until(lambda: "newer" in node.known.skip)
            app.core.registry.add_worker(Newer)
            [row] = await app.settled(id)
            assert row.state == "completed"

    run(scenario)


def test_an_unknown_worker_is_told_once(make: Callable[..., App], caplog: pytest.LogCaptureFixture) -> None:
    app = make()

    async def scenario() -> None:
        app.enqueue(*[Newer() for _ in range(5)])
        async with app.node() as node:
            await until(lambda: "newer" in node.known.skip)
            await asyncio.sleep(0.2)

    run(scenario)
    assert len([r for r in caplog.records if "left to other nodes" in r.getMessage()]) == 1


# -- leases


def test_a_cancel_in_the_database_ends_the_run_on_its_node(make: Callable[..., App]) -> None:
    events: list[Event] = []

    class Observer:
        @hookimpl
        def jobkit_event(self, event: Event) -> None:
            events.append(event)

    app = make(plugins=[Observer()])

    async def scenario() -> None:
        [id] = app.enqueue(Wait())
        async with app.node() as node:
            await until(lambda: id in SEEN)
            app.change(id, state="cancelled", cancelled_at=datetime.now(UTC))
            await until(lambda: not node.executor.runs)
        assert app.row(id).state == "cancelled"
        assert [event.outcome for event in events if isinstance(event, JobLeaseLost)] == ["lost"]

    run(scenario)


def test_CW3_a_run_that_lost_its_lease_writes_nothing(app: App) -> None:
    async def scenario() -> None:
        [id] = app.enqueue(Block())
        async with app.node():
            await until(lambda: id in SEEN)
            app.change(
                id, state="available", attempted_by=None, scheduled_at=datetime.now(UTC) + timedelta(days=1)
            )
            gate("gate").set()
            await asyncio.sleep(0.2)
            assert app.row(id).state == "available"

    run(scenario)


def test_a_node_that_was_declared_dead_drops_its_runs_and_goes_on_under_another_name(
    make: Callable[..., App],
) -> None:
    events: list[Event] = []

    class Observer:
        @hookimpl
        def jobkit_event(self, event: Event) -> None:
            events.append(event)

    app = make(plugins=[Observer()])

    async def scenario() -> None:
        [id] = app.enqueue(Wait())
        async with app.node() as node:
            before = node.id
            await until(lambda: id in SEEN)
            nodes = app.core.tables.nodes
            with app.core.engine.begin() as conn:
                conn.execute(update(nodes).values(lost_at=datetime.now(UTC)))
            await until(lambda: node.id != before)
            await until(lambda: not any(lease.node == before for lease in node.leases()))
            [fenced] = [event for event in events if isinstance(event, NodeFenced)]
            assert (fenced.node, fenced.renewed, fenced.aborted) == (before, node.id, 1)
            gate("gate").set()
            [row] = await app.settled(id)
            assert row.state == "completed"
            assert row.attempted_by == node.id

    run(scenario)


def test_a_row_whose_claim_was_never_answered_is_given_back(app: App) -> None:
    async def scenario() -> None:
        [id] = app.enqueue(Act().job(schedule_in=3600))
        async with app.node() as node:
            app.change(
                id,
                state="executing",
                attempt=1,
                attempted_by=node.id,
                attempted_at=datetime.now(UTC),
                scheduled_at=datetime.now(UTC),
            )
            [row] = await app.settled(id)
            assert (row.state, row.attempt) == ("completed", 1)

    run(scenario)


def test_CW2_each_start_has_an_id_of_its_own(app: App) -> None:
    ids = {app.node().id for _ in range(20)} | {app.node(name="web").id for _ in range(20)}
    assert len(ids) == 40


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


def test_a_node_whose_process_leaves_gives_back_what_still_runs(app: App) -> None:
    async def scenario() -> None:
        [id] = app.enqueue(Block())
        node = app.node(grace=0.05, leaving=True)
        await node.start()
        await until(lambda: id in SEEN)
        assert await node.stop() == 1
        row = app.row(id)
        assert (row.state, row.attempt) == ("available", 0)
        assert app.nodes() == []

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
        [id] = app.enqueue(Busy(2.5))
        async with app.node() as node:
            named: list[str] = []
            beats: list[float | None] = []

            def watch() -> None:
                deadline = time.monotonic() + 10
                while not named and time.monotonic() < deadline:
                    beats.append(node.last_beat)
                    if node.loop_lag() > 0.5:
                        named.append(node.blocked_by())
                    time.sleep(0.01)

            await asyncio.to_thread(watch)
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
