from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from jobkit import Jobkit, Recurring, hookimpl
from jobkit.config import Config
from jobkit.core import Core
from jobkit.testing import FrozenClock, drain_jobs
from jobkit_cleanup import Cleanup, CleanupTask
from tests.plugins.conftest import START, Noop


class Others:
    """Another distribution: a yearly entry, one with a long catch-up window, and clean-ups of its own."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    @hookimpl
    def jobkit_schedules(self, config: Config) -> list[Recurring]:
        return [
            Recurring("yearly", "0 0 1 1 *", Noop()),
            Recurring("patient", "0 * * * *", Noop(), catch_up=timedelta(days=30)),
        ]

    @hookimpl
    def jobkit_cleanups(self, app: Core) -> list[CleanupTask]:
        def broken(conn: Connection, now: object, limit: int) -> int:
            raise RuntimeError("no such table: theirs")

        def fine(conn: Connection, now: object, limit: int) -> int:
            self.calls.append(limit)
            return limit if len(self.calls) < 3 else 1

        return [CleanupTask("broken", broken), CleanupTask("fine", fine)]


class Confused:
    """Gives what is no clean-up."""

    @hookimpl
    def jobkit_cleanups(self, app: Core) -> Iterator[object]:
        yield CleanupTask("early", lambda conn, now, limit: 1)
        yield "delete from everything"


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def cleaning(database_url: str, clock: FrozenClock, others: Others) -> Iterator[Jobkit]:
    app = Jobkit(
        database_url, config=Config(disable=("filekit",)), workers=[Noop], plugins=[others], clock=clock
    )
    app.migrate()
    yield app
    app.close()


def run_cleanup(app: Jobkit) -> dict[str, object]:
    """Run the job; returns its meta."""
    id = app.enqueue(Cleanup()).id
    drain_jobs(app)
    jobs = app.tables.jobs
    with app.core.read_engine.connect() as conn:
        row = conn.execute(sa.select(jobs.c.meta).where(jobs.c.id == id)).one()
        return msgspec.json.decode(row.meta)


def past_runs(app: Jobkit, key: str, *ages: timedelta) -> None:
    table = app.tables.executions
    rows = [{"key": key, "run_at": START - age, "inserted_at": START - age} for age in ages]
    with app.engine.begin() as conn:
        conn.execute(sa.insert(table), rows)


def kept(app: Jobkit, key: str) -> int:
    table = app.tables.executions
    with app.core.read_engine.connect() as conn:
        query = sa.select(sa.func.count()).select_from(table).where(table.c.key == key)
        return int(conn.execute(query).scalar_one())


def test_CT8_past_runs_are_kept_longer_than_any_window_and_the_last_ones_for_ever(cleaning: Jobkit) -> None:
    past_runs(cleaning, "yearly", *(timedelta(days=365 * n) for n in range(1, 4)))
    past_runs(cleaning, "patient", *(timedelta(hours=n) for n in range(1, 2000)))
    meta = run_cleanup(cleaning)
    assert kept(cleaning, "yearly") == 3
    assert kept(cleaning, "patient") == 60 * 24, "twice its catch-up window of 30 days"
    assert meta["cleaned"]["recurring_executions"] == 1999 - 60 * 24  # type: ignore[index]


def test_what_a_run_did_stands_in_its_meta_and_a_failure_stops_nothing(
    cleaning: Jobkit, others: Others
) -> None:
    meta = run_cleanup(cleaning)
    assert meta["cleaned"]["fine"] == 2001  # type: ignore[index]
    assert len(others.calls) == 3
    assert meta["failed"] == {"broken": "RuntimeError: no such table: theirs"}
    assert set(meta["cleaned"]) >= {"recurring_executions", "lost_nodes", "operations", "audit"}  # type: ignore[call-overload]


def test_a_plugin_that_gives_what_is_no_clean_up_is_reported_and_stops_nothing(cleaning: Jobkit) -> None:
    cleaning.registry.add_plugin(Confused(), "confused")

    cleaned = run_cleanup(cleaning)["cleaned"]

    assert "fine" in cleaned  # type: ignore[operator]
    assert "early" not in cleaned  # type: ignore[operator]
    [confused] = [plugin for plugin in cleaning.registry.plugins if plugin.name == "confused"]
    assert "expected a CleanupTask" in confused.last_failure


def test_old_nodes_operations_and_audit_rows_go(cleaning: Jobkit, clock: FrozenClock) -> None:
    t, now = cleaning.tables, clock.now()
    with cleaning.engine.begin() as conn:
        for name, lost in (("gone", now - timedelta(days=2)), ("fresh", now), ("live", None)):
            row = {"node": name, "started_at": now, "heartbeat_at": now, "lost_at": lost}
            conn.execute(sa.insert(t.nodes), row)
        for days in (10, 200):
            at = now - timedelta(days=days)
            conn.execute(sa.insert(t.audit), {"at": at, "actor": "a", "via": "cli", "action": "x"})
            operation = {"actor": "a", "action": "retry", "state": "done", "created_at": at, "updated_at": at}
            conn.execute(sa.insert(t.operations), operation | {"finished_at": at})
    cleaned = run_cleanup(cleaning)["cleaned"]
    assert (cleaned["lost_nodes"], cleaned["audit"], cleaned["operations"]) == (1, 1, 1)  # type: ignore[index]


def test_the_job_is_scheduled_hourly_by_its_own_distribution(cleaning: Jobkit) -> None:
    entries = {entry.recurring.key: entry for entry in cleaning.core.registry.schedules()}
    assert entries["jobkit_cleanup"].recurring.cron == "0 * * * *"
    assert "jobkit-queue" in entries["jobkit_cleanup"].origin
