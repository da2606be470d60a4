"""Reads of recurring entries.

Invariant: an entry whose expression or zone is wrong is shown with what is wrong, and hides no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select

from jobkit.admin._context import Context
from jobkit.admin._facts import Facts, columns_of
from jobkit.admin.errors import NotFound
from jobkit.admin.views import CronRun, CronView
from jobkit.errors import ScheduleError
from jobkit.hookspecs import Resource
from jobkit.schedules import CronExpression
from jobkit.storage.base import EntryRow

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.registry import ScheduleEntry

__all__ = ["CronReads", "missed_run"]

LATE: Final = timedelta(minutes=1)
"""A due instant counts as missed after this, or after the entry's own catch-up."""


def missed_run(
    entry: EntryRow, expression: CronExpression, now: datetime, catch_up: timedelta = LATE
) -> datetime | None:
    """The last due instant, where it should have run and has not."""
    if entry.paused:
        return None
    due = expression.latest_at(now - max(catch_up, LATE))
    if due is None or due <= entry.since or (entry.last_run_at is not None and due <= entry.last_run_at):
        return None
    return due


class CronReads:
    """See `Reads`, whose methods these are."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def entries(self, upcoming: int, history: int, only: str | None = None) -> tuple[CronView, ...]:
        """All, by key."""
        self._context.require("view.cron", Resource("cron", only))
        known = self._known()
        with self._context.reading() as conn:
            rows = self._context.app.storage.entries(conn)
            return tuple(
                self._view(conn, row, known.get(row.key), upcoming, history)
                for row in rows
                if only is None or row.key == only
            )

    def entry(self, key: str, upcoming: int, history: int) -> CronView:
        """One."""
        for view in self.entries(upcoming, history, key):
            return view
        raise NotFound(f"there is no recurring entry {key!r}")

    def _known(self) -> Mapping[str, ScheduleEntry]:
        try:
            return {entry.recurring.key: entry for entry in self._context.app.registry.schedules()}
        except ScheduleError:  # two of one key, in code: the rows are still there to be shown
            return {}

    def _view(
        self, conn: Connection, row: EntryRow, known: ScheduleEntry | None, upcoming: int, history: int
    ) -> CronView:
        now = self._context.now
        runs = self._runs(conn, row.key, max(history, 1))
        problem, words, missed = "", "", None
        coming: tuple[datetime, ...] = ()
        try:
            expression = CronExpression.parse(row.cron, key=row.key, timezone=row.timezone)
            words = expression.describe()
            missed = missed_run(row, expression, now, known.recurring.catch_up if known else LATE)
            if not row.paused:
                coming = tuple(run.at for run in islice(expression.runs(_after(now), upcoming), upcoming))
        except (ScheduleError, OverflowError) as error:
            problem = str(error)
        status = "invalid" if problem else "paused" if row.paused else "missed" if missed else "active"
        return CronView(
            key=row.key,
            cron=row.cron,
            timezone=row.timezone,
            words=words,
            worker=row.worker,
            status=status,  # type: ignore[arg-type]
            since=row.since,
            paused_reason=self._context.app.redactor.text(row.reason or "", kind="audit"),
            paused_by=row.paused_by,
            last_run_at=row.last_run_at,
            last_run=runs[0] if runs else None,
            next_runs=coming,
            missed_at=missed,
            problem=problem,
            history=runs[:history],
            origin=known.origin if known else None,
        )

    def _runs(self, conn: Connection, key: str, limit: int) -> tuple[CronRun, ...]:
        app = self._context.app
        c = app.tables.executions.c
        rows = conn.execute(
            select(c.run_at, c.inserted_at, c.job_id)
            .where(c.key == key)
            .order_by(c.run_at.desc())
            .limit(limit)
        ).all()
        jobs = self._jobs(conn, [row.job_id for row in rows if row.job_id is not None])
        return tuple(_run(row, jobs.get(row.job_id)) for row in rows)

    def _jobs(self, conn: Connection, ids: list[int]) -> dict[int, Facts]:
        app = self._context.app
        rows = conn.execute(select(*columns_of(app.tables)).where(app.tables.jobs.c.id.in_(ids)))
        now = self._context.now
        return {row.id: Facts(dict(row._mapping), app.redactor, now) for row in rows}


def _after(now: datetime) -> datetime:
    return now + timedelta(microseconds=1)


def _run(row: Any, job: Facts | None) -> CronRun:
    if job is None:
        return CronRun(row.run_at, row.inserted_at, row.job_id, None, None)
    return CronRun(
        row.run_at,
        row.inserted_at,
        row.job_id,
        job.state,
        job.duration,
        job.attempted_at,
        job.finished_at,
    )
