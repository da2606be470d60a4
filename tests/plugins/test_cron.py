from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import sqlalchemy as sa

from jobkit import Jobkit, NewJob, Recurring
from jobkit.events import CronFailed, CronInserted, CronSkipped
from jobkit.testing import FrozenClock
from tests.plugins.conftest import START, Noop, Single, Witness, services, tick
from tests.support.nodes import StillNode

MINUTE = timedelta(minutes=1)


def jobs(app: Jobkit) -> list[sa.Row[tuple[object, ...]]]:
    table = app.tables.jobs
    with app.core.read_engine.connect() as conn:
        return list(conn.execute(sa.select(table).order_by(table.c.id)))


def runs(app: Jobkit, key: str | None = None) -> list[tuple[str, datetime, int | None]]:
    table = app.tables.executions
    query = sa.select(table.c.key, table.c.run_at, table.c.job_id).order_by(table.c.id)
    with app.core.read_engine.connect() as conn:
        return [(k, at, job) for k, at, job in conn.execute(query) if key in (None, k)]


def ticker(app: Jobkit, node: StillNode | None = None) -> Callable[[], int]:
    service = services(app, node or StillNode())["cron"]
    return lambda: tick(app, service)


def test_CR12_repeated_ticks_within_a_minute_insert_one_job(
    app: Jobkit, witness: Witness, clock: FrozenClock
) -> None:
    witness.entries = [Recurring("each_minute", "* * * * *", Noop(n=1))]
    go = ticker(app)
    assert go() == 0, "the instant that passed before the entry was written is not due"
    clock.set(datetime(2030, 5, 6, 12, 1, tzinfo=UTC))
    assert go() == 1, "the instant itself is due"
    assert go() == 0
    clock.advance(59)
    assert go() == 0
    assert runs(app) == [("each_minute", datetime(2030, 5, 6, 12, 1, tzinfo=UTC), jobs(app)[0].id)]


def test_a_job_of_an_entry_is_tagged_and_names_its_key(
    app: Jobkit, witness: Witness, clock: FrozenClock
) -> None:
    witness.entries = [Recurring("mine", "* * * * *", Noop().job(tags=["own"], priority=5))]
    go = ticker(app)
    go()
    clock.advance(MINUTE)
    go()
    (row,) = jobs(app)
    assert msgspec.json.decode(row.tags) == ["own", "cron"]
    assert msgspec.json.decode(row.meta)["cron"] == "mine"
    assert row.priority == 5
    assert witness.seen(CronInserted)[0].key == "mine"  # type: ignore[attr-defined]


def test_CT1_a_failing_entry_keeps_no_other_from_running(
    app: Jobkit, witness: Witness, clock: FrozenClock
) -> None:
    def broken() -> NewJob:
        raise RuntimeError("no job today")

    witness.entries = [Recurring("a_broken", "* * * * *", broken), Recurring("b_fine", "* * * * *", Noop())]
    go = ticker(app)
    go()
    clock.advance(MINUTE)
    assert go() == 1
    assert [key for key, _, _ in runs(app)] == ["b_fine"]
    assert witness.seen(CronFailed)[0].error == "RuntimeError: no job today"  # type: ignore[attr-defined]


def test_CT2_nodes_that_tick_at_once_insert_one_job(
    app: Jobkit, witness: Witness, clock: FrozenClock
) -> None:
    witness.entries = [Recurring("shared", "* * * * *", Noop())]
    tickers = [ticker(app, StillNode(id=f"host:{n}:aaaaaaaa")) for n in range(4)]
    for go in tickers:
        go()
    clock.advance(MINUTE)
    start, counts = threading.Barrier(4), []

    def race(go: Callable[[], int]) -> None:
        start.wait(10)
        counts.append(go())

    threads = [threading.Thread(target=race, args=(go,)) for go in tickers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(counts) == [0, 0, 0, 1]
    assert len(jobs(app)) == 1


@pytest.mark.parametrize(
    ("down", "inserted", "skipped"),
    [(timedelta(minutes=9, seconds=20), 1, 9), (timedelta(minutes=9, seconds=50), 0, 10)],
    ids=["within the window", "too late"],
)
def test_CT3_a_missed_run_is_caught_up_within_the_window_or_reported(
    app: Jobkit, witness: Witness, clock: FrozenClock, down: timedelta, inserted: int, skipped: int
) -> None:
    witness.entries = [Recurring("e", "* * * * *", Noop(), catch_up=timedelta(seconds=15))]
    go = ticker(app)
    go()
    clock.set(START.replace(second=0) + MINUTE)
    assert go() == 1
    clock.set(
        START.replace(second=0) + MINUTE + timedelta(minutes=10) + (down - timedelta(minutes=9, seconds=10))
    )
    assert go() == inserted
    (event,) = witness.seen(CronSkipped)
    assert event.missed == skipped  # type: ignore[attr-defined]
    assert len(jobs(app)) == 1 + inserted


def test_CT4_a_clock_that_steps_back_runs_nothing_again(
    app: Jobkit, witness: Witness, clock: FrozenClock
) -> None:
    witness.entries = [Recurring("e", "* * * * *", Noop())]
    go = ticker(app)
    go()
    for _ in range(3):
        clock.advance(MINUTE)
        assert go() == 1
    clock.set(clock.now() - timedelta(minutes=2))
    for restarted in (go, ticker(app, StillNode(id="host:2:bbbbbbbb"))):
        assert restarted() == 0
    assert len(jobs(app)) == 3


def test_CT5_a_duplicate_of_a_pending_job_is_recorded_and_is_no_error(
    app: Jobkit, witness: Witness, clock: FrozenClock
) -> None:
    witness.entries = [Recurring("e", "* * * * *", Single())]
    go = ticker(app)
    go()
    for _ in range(2):
        clock.advance(MINUTE)
        go()
    (job,) = jobs(app)
    assert [id for _, _, id in runs(app)] == [job.id, job.id]
    assert [event.duplicate for event in witness.seen(CronInserted)] == [False, True]  # type: ignore[attr-defined]


def test_CT6_the_factory_is_called_for_each_run_and_a_failure_is_tried_again(
    app: Jobkit, witness: Witness, clock: FrozenClock
) -> None:
    calls: list[int] = []

    def factory() -> Noop:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("not this time")
        return Noop(n=len(calls))

    witness.entries = [Recurring("e", "* * * * *", factory)]
    go = ticker(app)
    go()
    clock.advance(MINUTE)
    assert go() == 1
    clock.advance(MINUTE)
    assert go() == 0
    assert len(runs(app)) == 1
    assert go() == 0, "it backs off before it tries again"
    assert len(calls) == 2
    clock.advance(2)
    assert go() == 1
    assert [msgspec.json.decode(row.args)["n"] for row in jobs(app)] == [1, 3]


def test_a_paused_entry_does_not_run_and_counts_anew_when_it_is_resumed(
    app: Jobkit, witness: Witness, clock: FrozenClock
) -> None:
    from jobkit.admin.actions import Actions
    from jobkit.hookspecs import Actor

    witness.entries = [Recurring("e", "* * * * *", Noop(), paused=True)]
    go = ticker(app)
    go()
    clock.advance(MINUTE)
    assert go() == 0
    Actions(app.core, Actor("tester@host")).resume_cron("e")
    assert ticker(app)() == 0, "what passed while it was paused is not caught up"
    clock.advance(MINUTE)
    assert go() == 1


def test_a_changed_expression_counts_from_the_node_s_start(
    app: Jobkit, make_app: Callable[..., Jobkit], witness: Witness, clock: FrozenClock
) -> None:
    witness.entries = [Recurring("e", "0 * * * *", Noop())]
    ticker(app)()
    clock.advance(MINUTE)
    witness.entries = [Recurring("e", "* * * * *", Noop(), catch_up=timedelta(hours=1))]
    go = ticker(make_app())
    assert go() == 0
    clock.advance(MINUTE)
    assert go() == 1


def test_an_idle_ticker_asks_nothing_of_the_database(
    app: Jobkit, witness: Witness, clock: FrozenClock
) -> None:
    witness.entries = [Recurring("e", "0 0 1 1 *", Noop())]
    service = services(app, StillNode())["cron"]
    tick(app, service)
    tick(app, service)
    statements: list[str] = []
    sa.event.listen(app.engine, "before_cursor_execute", lambda c, cur, stmt, *rest: statements.append(stmt))
    with app.engine.connect() as conn:
        for _ in range(10):
            service.tick(conn, clock.advance(1))
    assert statements == []


def test_without_entries_there_is_no_service(app: Jobkit) -> None:
    assert "cron" not in services(app, StillNode())
