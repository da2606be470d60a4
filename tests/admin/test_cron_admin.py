"""Recurring entries: next and last runs, missed ones, and what operators do to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from jobkit.admin.actions import Actions
from jobkit.admin.errors import Invalid, NotFound
from jobkit.admin.reads import Reads
from jobkit.core import Core
from jobkit.hookspecs import hookimpl
from jobkit.jobs import JobInfo, JobState
from jobkit.schedules import Recurring
from jobkit.workers import Worker
from tests.admin.conftest import make_app
from tests.admin.support import ADMIN, NOW, add, ago, put, row


class Report(Worker, name="report", queue="reports"):
    def perform(self, job: JobInfo) -> None: ...


def fail() -> Report:
    raise RuntimeError("no date yet, password=hunter2")


class Schedules:
    @hookimpl
    def jobkit_schedules(self) -> list[Recurring]:
        return [
            Recurring("nightly", "0 1 * * *", Report(), timezone="Europe/Paris"),
            Recurring("broken", "0 1 * * *", fail),
        ]


@pytest.fixture
def knowing(database_url: str) -> Iterator[Core]:
    made = make_app(database_url, workers=[Report], plugins=[Schedules()])
    yield made
    made.close()


def entry(app: Core, key: str, **values: Any) -> None:
    put(
        app,
        "entries",
        **{
            "key": key,
            "cron": "0 1 * * *",
            "timezone": "UTC",
            "worker": "report",
            "since": ago(days=10),
            "paused": False,
            "updated_at": NOW,
            "last_run_at": NOW.replace(hour=1, minute=0, second=0, microsecond=0),
            **values,
        },
    )


def run(app: Core, key: str, at: datetime, job_id: int | None, late: timedelta = timedelta(0)) -> None:
    put(app, "executions", key=key, run_at=at, job_id=job_id, inserted_at=at + late)


def test_an_entry_shows_its_words_its_next_runs_and_its_history(app: Core) -> None:
    entry(
        app,
        "nightly",
        timezone="Europe/Paris",
        last_run_at=NOW.replace(hour=0, minute=0, second=0, microsecond=0),
    )
    (job_id,) = add(
        app, row(state="completed", attempted_at=ago(hours=12), completed_at=ago(hours=11, minutes=59))
    )
    run(app, "nightly", NOW.replace(hour=0, minute=0, second=0, microsecond=0), job_id, timedelta(seconds=3))
    run(app, "nightly", ago(days=1).replace(hour=0, minute=0, second=0, microsecond=0), 999)
    view = Reads(app, ADMIN).cron_entry("nightly", upcoming=2)
    assert view.status == "active"
    assert "Europe/Paris" in view.words
    assert view.next_runs == (
        datetime(2026, 12, 2, 0, 0, tzinfo=UTC),
        datetime(2026, 12, 3, 0, 0, tzinfo=UTC),
    )
    assert view.last_run is not None
    assert (view.last_run.job_id, view.last_run.state, view.last_run.lateness) == (
        job_id,
        JobState.COMPLETED,
        timedelta(seconds=3),
    )
    assert view.last_run.duration == timedelta(minutes=1)
    assert [item.state for item in view.history] == [JobState.COMPLETED, None]
    with pytest.raises(NotFound):
        Reads(app, ADMIN).cron_entry("nowhere")


def test_DA9_the_list_is_drawn_whatever_the_state_of_single_entries(app: Core) -> None:
    entry(app, "a-bad", cron="61 * * * *")
    entry(app, "b-zone", timezone="Mars/Olympus")
    entry(app, "c-never", cron="0 0 30 2 *")
    entry(app, "d-reboot", cron="@reboot")
    entry(app, "e-paused", paused=True, reason="token=abcdefgh12345", paused_by="bo")
    entry(app, "f-missed", last_run_at=ago(days=3))
    entry(app, "g-new", since=NOW, last_run_at=None)
    entry(app, "h-good")
    views = Reads(app, ADMIN).cron()
    assert [view.status for view in views] == ["invalid"] * 4 + ["paused", "missed", "active", "active"]
    assert all(view.problem for view in views[:4])
    assert views[4].next_run is None
    assert "abcdefgh" not in views[4].paused_reason
    assert views[5].missed_at == datetime(2026, 12, 1, 1, 0, tzinfo=UTC)
    assert views[7].next_run == datetime(2026, 12, 2, 1, 0, tzinfo=UTC)


def test_a_manual_run_is_tagged_and_does_not_count_as_a_scheduled_one(knowing: Core) -> None:
    entry(knowing, "nightly")
    change = Actions(knowing, ADMIN).run_cron("nightly", reason="once more")
    assert change.job_id is not None
    job = Reads(knowing, ADMIN).job(change.job_id)
    assert (job.job.tags, job.job.cron, job.job.queue) == (("manual",), "nightly", "reports")
    view = Reads(knowing, ADMIN).cron_entry("nightly")
    assert (view.history, view.origin is not None) == ((), True)
    assert Reads(knowing, ADMIN).audit().entries[0].action == "cron.run"


def test_a_run_that_cannot_be_made_is_refused_in_words(knowing: Core) -> None:
    entry(knowing, "elsewhere")
    actions = Actions(knowing, ADMIN)
    with pytest.raises(NotFound):
        actions.run_cron("nowhere")
    with pytest.raises(Invalid, match="does not know the code"):
        actions.run_cron("elsewhere")
    with pytest.raises(Invalid, match="no date yet") as caught:
        actions.run_cron("broken")
    assert "hunter2" not in str(caught.value)
    assert Reads(knowing, ADMIN).count().count.value == 0


def test_a_pause_and_a_resume_that_counts_from_now_on(app: Core) -> None:
    entry(app, "nightly")
    actions = Actions(app, ADMIN)
    actions.pause_cron("nightly", reason="holidays")
    view = Reads(app, ADMIN).cron_entry("nightly")
    assert (view.status, view.paused_reason, view.paused_by) == ("paused", "holidays", "ana@host")
    assert "already" in actions.pause_cron("nightly").text
    actions.resume_cron("nightly")
    entries = app.tables.entries
    with app.engine.connect() as conn:
        found = conn.execute(select(entries)).one()
    assert (found.paused, found.since, found.reason) == (False, NOW, None)
    assert [e.result for e in Reads(app, ADMIN).audit().entries] == ["ok", "conflict", "ok"]
    with pytest.raises(NotFound):
        actions.resume_cron("nowhere")
    assert json.dumps([e.after for e in Reads(app, ADMIN).audit().entries])
