"""Whole nodes: jobs through the database and back, on both backends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from jobkit import QueueConfig, hookimpl
from jobkit.errors import ConfigError
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
from tests.runtime.acts import SEEN, Act, Block, Newer, Tally, Wait, gate
from tests.runtime.nodes import App, run
from tests.runtime.support import until

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
