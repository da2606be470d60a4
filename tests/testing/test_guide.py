"""What a kernel of jobs owes to those who rely on it, line by line, on every arm.

Where draining is enough the test drains; where a running node is the point, a node runs inside of the test.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa

from jobkit import Jobkit, Recurring, Unique
from jobkit.config import Config
from jobkit.jobs import JobState
from jobkit.plugins import cron, lifeline, pruner
from jobkit.schedules import Recurring as _Recurring
from jobkit.storage.base import Change
from jobkit.testing import FrozenClock, drain_jobs
from tests.testing.guide_workers import (
    Patient,
    cancel,
    discard,
    dropped,
    fail,
    hang,
    hold,
    journal,
    leak,
    ok,
    panic,
    shout,
    snooze,
    started,
    stranger,
    unique_args,
    unique_for_ever,
    unique_hour,
    unique_user,
    unique_worker,
)
from tests.testing.support import DAY, HOUR, MINUTE, SECOND, START, Kit, on_a_loop, service_of, until


def test_racing_claims_run_each_job_exactly_once(kit: Kit) -> None:
    kit.app.enqueue_all([ok(n) for n in range(30)])
    ready = threading.Barrier(4)

    def drain(_: int) -> int:
        ready.wait()
        return drain_jobs(kit.app)["completed"]

    with ThreadPoolExecutor(4) as pool:
        ran = list(pool.map(drain, range(4)))

    assert sorted(journal.entries) == list(range(30))
    assert sum(ran) == 30
    assert {row.attempt for row in kit.rows()} == {1}


# -- outcomes


def test_a_failing_job_is_retried_with_backoff_and_discarded_at_max_attempts(kit: Kit) -> None:
    job = kit.app.enqueue(fail()).id

    assert drain_jobs(kit.app) == {"retryable": 1}
    first = kit.row(job)
    assert (first.state, first.attempt) == ("retryable", 1)
    assert first.scheduled_at == START + timedelta(seconds=1 + 15 + 15)  # 1**4 + 15 + half of 30

    assert drain_jobs(kit.app) == {}, "not before its time"
    kit.clock.set(first.scheduled_at)
    assert drain_jobs(kit.app) == {"retryable": 1}
    second = kit.row(job)
    assert second.scheduled_at - kit.clock.now() == timedelta(seconds=2**4 + 15 + 30)

    kit.clock.set(second.scheduled_at)
    assert drain_jobs(kit.app) == {"discarded": 1}
    last = kit.row(job)
    assert (last.state, last.attempt, last.discarded_at) == ("discarded", 3, kit.clock.now())
    assert [error["attempt"] for error in last.errors] == [1, 2, 3]
    assert last.errors[2]["error"].startswith("ValueError: attempt 3 failed\n")


def test_a_worker_decides_its_own_backoff(kit: Kit) -> None:
    job = kit.app.enqueue(Patient()).id
    drain_jobs(kit.app)
    assert kit.row(job).scheduled_at == START + MINUTE


def test_a_snoozed_job_comes_back_later_and_keeps_its_attempts(kit: Kit) -> None:
    job = kit.app.enqueue(snooze()).id
    for count in (1, 2):
        assert drain_jobs(kit.app) == {"scheduled": 1}
        row = kit.row(job)
        assert (row.state, row.attempt, row.max_attempts) == ("scheduled", 0, 20)
        assert (row.meta["snoozed"], row.errors) == (count, [])
        assert row.scheduled_at == kit.clock.now() + MINUTE
        kit.clock.advance(MINUTE)
    assert drain_jobs(kit.app) == {"completed": 1}
    assert journal.entries == [1, 1, 1]
    assert kit.row(job).meta["snoozed"] == 2


def test_a_job_that_cancels_itself_is_cancelled_with_its_reason(kit: Kit) -> None:
    job = kit.app.enqueue(cancel()).id
    assert drain_jobs(kit.app) == {"cancelled": 1}
    row = kit.row(job)
    assert (row.state, row.cancelled_at, row.attempt) == ("cancelled", START, 1)
    assert [error["error"] for error in row.errors] == ["Cancel: post 42 deleted"]


def test_a_job_that_discards_itself_is_not_tried_again(kit: Kit) -> None:
    job = kit.app.enqueue(discard()).id
    assert drain_jobs(kit.app) == {"discarded": 1}
    row = kit.row(job)
    assert (row.state, row.discarded_at, row.attempt) == ("discarded", START, 1)
    assert [error["error"] for error in row.errors] == ["Discard: no such address"]


@pytest.mark.parametrize(("how", "stored"), [("exception", "RuntimeError: boom"), ("exit", "SystemExit: 3")])
def test_whatever_a_job_raises_is_a_failure_of_that_job_only(kit: Kit, how: str, stored: str) -> None:
    bad = kit.app.enqueue(panic(how)).id
    kit.app.enqueue(ok(1))
    assert drain_jobs(kit.app) == {"discarded": 1, "completed": 1}
    assert kit.row(bad).errors[0]["error"].startswith(stored)


def test_a_job_that_hangs_is_stopped_at_its_timeout(config: Config) -> None:
    app = Jobkit(config=config, workers=[hang])
    app.migrate()
    job = app.enqueue(hang()).id
    assert drain_jobs(app) == {"discarded": 1}
    assert (
        Kit(app, FrozenClock()).row(job).errors[0]["error"].startswith("TimeoutError: timed out after 0.05 s")
    )
    app.close()


# -- what cannot run


def test_an_unknown_worker_is_discarded_at_once_with_a_grace_of_zero(config: Config) -> None:
    clock = FrozenClock(START)
    kit = Kit(Jobkit(config=config.override(unknown_worker_grace=0), clock=clock), clock)
    kit.app.migrate()
    drained, ticked = kit.app.enqueue(stranger()).id, None
    assert drain_jobs(kit.app) == {"discarded": 1}

    ticked = kit.app.enqueue(stranger()).id
    service = service_of(lifeline, kit)
    kit.clock.advance(SECOND)
    assert kit.tick(service) == 1

    for job in (drained, ticked):
        row = kit.row(job)
        assert (row.state, row.attempt) == ("discarded", 0)
        assert [error["error"] for error in row.errors] == ["unknown worker: stranger"]
    kit.app.close()


def test_an_unknown_worker_waits_for_a_node_that_knows_it_until_the_grace_is_over(kit: Kit) -> None:
    job = kit.app.enqueue(stranger()).id
    service = service_of(lifeline, kit)
    for _ in range(9):
        kit.clock.advance(MINUTE)
        assert kit.tick(service) == 0
    with kit.conn() as conn:  # a node of the next release comes up, and goes again
        kit.core.storage.publish_workers(conn, {"stranger": "{}"}, now=kit.clock.now())
    for _ in range(10):
        kit.clock.advance(MINUTE)
        kit.tick(service)
        assert kit.row(job).state == "available"
    kit.clock.advance(MINUTE)
    assert kit.tick(service) == 1
    assert kit.row(job).state == "discarded"


@pytest.mark.parametrize("args", ['{"n": "many"}', "[]", '{"n": null}'])
def test_bad_args_end_the_job_as_discarded_and_break_nothing_else(kit: Kit, args: str) -> None:
    bad, good = (each.id for each in kit.app.enqueue_all([ok(1), ok(2)]))
    kit.set(bad, args=args)
    assert drain_jobs(kit.app) == {"discarded": 1, "completed": 1}
    assert journal.entries == [2]
    assert kit.row(bad).errors[0]["error"].startswith("ArgsError: ")
    assert kit.row(good).state == "completed"


# -- errors


def test_an_error_is_cut_to_four_kilobytes_and_keeps_its_start(kit: Kit) -> None:
    job = kit.app.enqueue(shout(1_000_000)).id
    drain_jobs(kit.app)
    error = kit.row(job).errors[0]["error"]
    assert len(error.encode()) <= 4096
    assert error.startswith("ValueError: word word ")


def test_the_last_twenty_errors_are_kept(kit: Kit) -> None:
    job = kit.app.enqueue(shout(1), max_attempts=25).id
    drain_jobs(kit.app, with_scheduled=True)
    row = kit.row(job)
    assert (row.state, row.attempt) == ("discarded", 25)
    assert [error["attempt"] for error in row.errors] == list(range(6, 26))


def test_job_errors_are_stored_redacted(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    job = kit.app.enqueue(leak()).id
    drain_jobs(kit.app)
    [error] = kit.row(job).errors
    for text in (error["error"], caplog.text):
        assert "not-a-password" not in text
        assert "not-a-token" not in text
        assert "api.example.com" in text
        assert "timed out" in text


# -- uniqueness


def test_unique_by_args_compares_all_of_them(kit: Kit) -> None:
    first = kit.app.enqueue(unique_args(1, "a"))
    again = kit.app.enqueue(unique_args(1, "a"))
    other = kit.app.enqueue(unique_args(1, "b"))
    assert (again.id, again.duplicate) == (first.id, True)
    assert not other.duplicate


def test_unique_by_some_args_ignores_the_others(kit: Kit) -> None:
    first = kit.app.enqueue(unique_user(1, "a"))
    assert kit.app.enqueue(unique_user(1, "b")).id == first.id
    assert not kit.app.enqueue(unique_user(2, "a")).duplicate


def test_unique_by_worker_allows_one_job_whatever_its_args(kit: Kit) -> None:
    first = kit.app.enqueue(unique_worker(1))
    assert kit.app.enqueue(unique_worker(2)).id == first.id


def test_an_incomplete_unique_job_gives_way_once_it_is_final(kit: Kit) -> None:
    first = kit.app.enqueue(unique_args(1))
    drain_jobs(kit.app)
    again = kit.app.enqueue(unique_args(1))
    assert not again.duplicate
    assert again.id != first.id


def test_unique_over_all_states_outlives_the_job(kit: Kit) -> None:
    first = kit.app.enqueue(unique_for_ever(1))
    drain_jobs(kit.app)
    assert kit.row(first.id).state == "completed"
    assert kit.app.enqueue(unique_for_ever(1)).id == first.id


def test_unique_in_a_period_allows_one_job_per_bucket_of_the_clock(kit: Kit) -> None:
    first = kit.app.enqueue(unique_hour(1), unique=Unique.args(period=HOUR, states="all"))
    kit.clock.set(START.replace(minute=59, second=59, microsecond=999_999))
    assert kit.app.enqueue(unique_hour(1), unique=Unique.args(period=HOUR, states="all")).id == first.id
    kit.clock.advance(timedelta(microseconds=1))
    assert not kit.app.enqueue(unique_hour(1), unique=Unique.args(period=HOUR, states="all")).duplicate


def test_insert_all_writes_many_jobs_and_says_which_unique_ones_were_there(kit: Kit) -> None:
    there = kit.app.enqueue(unique_args(1))
    results = kit.app.enqueue_all(
        [ok(1), unique_args(1), unique_args(2), unique_args(2), ok(2).job(priority=3, tags=["batch"])]
    )
    assert [each.duplicate for each in results] == [False, True, False, True, False]
    assert results[1].id == there.id
    assert results[3].id == results[2].id
    assert kit.row(results[4].id).tags == ["batch"]
    assert drain_jobs(kit.app) == {"completed": 4}
    assert kit.app.enqueue_all([]) == []


# -- services


def claimed_by(kit: Kit, node: str, attempts: int = 20) -> int:
    """A job that `node` executes."""
    job = kit.app.enqueue(ok(1), queue=f"of-{attempts}", max_attempts=attempts).id
    with kit.conn() as conn:
        if node not in [row.node for row in kit.core.storage.nodes(conn)]:
            kit.core.storage.register_node(conn, node, now=kit.clock.now(), queues={}, info={})
    kit.clock.advance(timedelta(milliseconds=1))
    with kit.conn() as conn:
        [won] = kit.core.storage.claim(conn, f"of-{attempts}", 10, node=node, at=kit.clock.now())
    assert won.id == job
    return job


def test_lifeline_rescues_only_the_jobs_of_dead_nodes(kit: Kit) -> None:
    lost, spent, alive = (
        claimed_by(kit, "dead:1"),
        claimed_by(kit, "dead:1", attempts=1),
        claimed_by(kit, "alive:1"),
    )
    service = service_of(lifeline, kit)
    for _ in range(3):
        assert kit.tick(service) == 0, "nobody is dead before dead_after"
        kit.clock.advance(5)
        with kit.conn() as conn:
            kit.core.storage.beat(conn, "alive:1", now=kit.clock.now(), queues={}, info={})
    assert kit.tick(service) == 2

    assert (kit.row(lost).state, kit.row(lost).attempt) == ("available", 1)
    assert kit.row(spent).state == "discarded"
    assert "rphaned" in kit.row(spent).errors[0]["error"]
    assert (kit.row(alive).state, kit.row(alive).attempted_by) == ("executing", "alive:1")
    assert kit.tick(service) == 0


def test_lifeline_rescues_the_jobs_of_a_node_without_a_row_at_once(kit: Kit) -> None:
    job = claimed_by(kit, "gone:1")
    with kit.conn() as conn:
        kit.core.storage.remove_node(conn, "gone:1")
    assert kit.tick(service_of(lifeline, kit)) == 1
    assert kit.row(job).state == "available"
    assert drain_jobs(kit.app) == {"completed": 1}


def test_the_pruner_keeps_recent_and_unfinished_jobs(kit: Kit) -> None:
    waiting = kit.app.enqueue(ok(0), schedule_in=100 * DAY).id
    old = [kit.app.enqueue(each).id for each in (ok(1), cancel(), discard())]
    failing = kit.app.enqueue(fail()).id
    drain_jobs(kit.app)
    kit.clock.advance(7 * DAY - MINUTE)
    recent = kit.app.enqueue(ok(2), queue="recent").id
    drain_jobs(kit.app, queue="recent")
    service = service_of(pruner, kit)

    assert kit.tick(service) == 0
    kit.clock.advance(2 * MINUTE)
    assert kit.tick(service) == 3

    assert [row.id for row in kit.rows()] == [waiting, failing, recent]
    assert old


def test_cron_fires_once_across_two_concurrent_ticks(config: Config) -> None:
    kit = with_schedule(config, Recurring("nightly", "0 10 * * *", ok(7).job(tags=["own"])))
    tickers = [service_of(cron, kit), service_of(cron, kit)]
    for each in tickers:
        kit.tick(each)
    assert kit.rows() == []

    kit.clock.set(START.replace(hour=10, minute=0))
    ready = threading.Barrier(2)

    def tick(number: int) -> int:
        ready.wait()
        return kit.tick(tickers[number])

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(tick, range(2))) == 1
    kit.clock.advance(30)
    assert [kit.tick(each) for each in tickers] == [0, 0]

    [row] = kit.rows()
    assert (row.worker, row.tags, row.meta["cron"]) == ("ok", ["own", "cron"], "nightly")
    executions = kit.app.tables.executions
    with kit.conn() as conn:
        [run] = conn.execute(sa.select(executions)).all()
    assert (run.key, run.run_at, run.job_id) == ("nightly", START.replace(hour=10, minute=0), row.id)
    kit.app.close()


def test_cron_skips_due_times_that_are_stale(config: Config) -> None:
    kit = with_schedule(config, Recurring("nightly", "0 10 * * *", ok(7)))
    kit.tick(service_of(cron, kit))
    kit.clock.set(START.replace(hour=10, minute=2))
    booting = service_of(cron, kit)
    assert kit.tick(booting) == 0
    assert kit.rows() == []
    kit.clock.set(START.replace(hour=10, minute=0) + DAY)
    assert kit.tick(booting) == 1
    kit.app.close()


def with_schedule(config: Config, entry: _Recurring) -> Kit:
    class Scheduled:
        """A plugin with one entry."""

    from jobkit import hookimpl

    @hookimpl
    def jobkit_schedules() -> list[_Recurring]:
        return [entry]

    plugin = Scheduled()
    plugin.jobkit_schedules = jobkit_schedules  # type: ignore[attr-defined]
    clock = FrozenClock(START)
    app = Jobkit(
        config=config.override(disable=["cleanup", "filekit"]), workers=[ok], plugins=[plugin], clock=clock
    )
    app.migrate()
    return Kit(app, clock)


# -- a running node


@on_a_loop
async def test_a_worker_runs_a_job_and_deregisters_on_shutdown(config: Config) -> None:
    kit = running(config)
    async with kit.app.node("default:2") as node:
        assert kit.nodes() == [node.id]
        job = kit.app.enqueue(ok(5)).id
        await until(lambda: kit.row(job).state == "completed")
    assert journal.entries == [5]
    assert kit.nodes() == []
    assert kit.row(job).attempted_by == node.id
    kit.app.close()


@on_a_loop
async def test_cancelling_an_executing_job_aborts_it(config: Config) -> None:
    kit = running(config)
    async with kit.app.node("default:2"):
        job = kit.app.enqueue(hold()).id
        await until(started.is_set)
        with kit.conn() as conn:
            change = Change(
                id=job, expect=frozenset({JobState.EXECUTING}), to=JobState.CANCELLED, at=kit.core.clock.now()
            )
            assert kit.core.storage.transition(conn, [change])
        await until(dropped.is_set)
    row = kit.row(job)
    assert (row.state, row.errors) == ("cancelled", [])
    kit.app.close()


@on_a_loop
async def test_a_paused_queue_is_not_fetched_until_it_is_resumed(config: Config) -> None:
    kit = running(config)
    with kit.conn() as conn:
        kit.core.storage.ensure_queues(conn, {"default": Paused()}, now=kit.core.clock.now())
    held = kit.app.enqueue(ok(1)).id
    async with kit.app.node("default:2,other:2"):
        other = kit.app.enqueue(ok(2), queue="other").id
        await until(lambda: kit.row(other).state == "completed")
        assert kit.row(held).state == "available"
        queues = kit.app.tables.queues
        with kit.conn() as conn:
            conn.execute(sa.update(queues).where(queues.c.name == "default").values(paused=False))
        await until(lambda: kit.row(held).state == "completed")
    kit.app.close()


@on_a_loop
async def test_shutdown_gives_unfinished_jobs_back(config: Config) -> None:
    kit = running(config.override(shutdown_grace="10ms"))
    async with kit.app.node("default:1"):
        job, behind = (each.id for each in kit.app.enqueue_all([hold(), ok(1)]))
        await until(started.is_set)
    assert dropped.is_set()
    row = kit.row(job)
    assert (row.state, row.attempt, row.errors) == ("available", 0, [])
    assert kit.row(behind).state == "available"
    assert kit.nodes() == []
    kit.app.close()


class Paused:
    paused = True


def running(config: Config) -> Kit:
    """An app on the machine's own clock."""
    app = Jobkit(config=config, workers=[ok, hold])
    app.migrate()
    return Kit(app, FrozenClock())
