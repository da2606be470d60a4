"""Cron: enqueues the jobs of recurring entries when they are due.

Runs on every node; (key, due instant) is unique in the database, and is written in one transaction with the
job, so each due instant yields one job however many nodes tick, and none at all where the job could not be
made. Invariant: nothing is asked of the database until an entry is due, and an entry that fails delays no
other.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from jobkit.core import Core
from jobkit.events import CronFailed, CronInserted, CronSkipped, Event
from jobkit.hookspecs import Node, PluginInfo, Service, hookimpl
from jobkit.inserting import rows_of
from jobkit.jobs import Inserted, NewJob
from jobkit.registry import ScheduleEntry
from jobkit.schedules import CronExpression, Recurring
from jobkit.storage.base import EntryRow
from jobkit.wakeup import waker_of
from jobkit.workers import Worker

log = logging.getLogger("jobkit.plugins.cron")

FIRST_PAUSE = 2.0
LONGEST_PAUSE = 60.0
COUNTED = 1_000
"""How many missed runs are counted before counting stops."""


@dataclass(frozen=True, slots=True)
class CronSettings:
    """`[plugins.cron]`: how often the entries are looked at, in memory."""

    interval: timedelta = timedelta(seconds=1)


jobkit_plugin = PluginInfo(api=1, settings=CronSettings)


@hookimpl
def jobkit_services(app: Core, node: Node) -> list[Service]:
    """One look a second; none at all where nothing recurs."""
    schedules = app.registry.schedules()
    if not schedules:
        return []
    settings = app.config.plugin("cron", CronSettings)
    return [Service("cron", settings.interval, Ticker(app, schedules).tick)]


class _Entry:
    """What one node remembers of one entry."""

    __slots__ = ("expression", "failures", "handled", "not_before", "origin", "recurring")

    def __init__(self, schedule: ScheduleEntry) -> None:
        self.recurring: Recurring = schedule.recurring
        self.origin = schedule.origin
        self.expression = CronExpression.parse(
            self.recurring.cron, key=self.recurring.key, timezone=self.recurring.timezone
        )
        self.handled: datetime | None = None
        self.failures = 0
        self.not_before = -math.inf

    @property
    def key(self) -> str:
        """The entry's key."""
        return self.recurring.key

    def due(self, now: datetime, moment: float) -> datetime | None:
        """The instant to handle now; None where there is none, or where the last try failed a moment ago."""
        if moment < self.not_before:
            return None
        latest = self.expression.latest_at(now)
        return None if latest == self.handled else latest

    def done(self, run_at: datetime) -> None:
        """That instant needs no further look by this node."""
        self.handled, self.failures, self.not_before = run_at, 0, -math.inf

    def failed(self, moment: float) -> None:
        """Try again, a little later each time."""
        self.failures += 1
        self.not_before = moment + min(FIRST_PAUSE * 2.0 ** (self.failures - 1), LONGEST_PAUSE)


class Ticker:
    """The entries of one node."""

    def __init__(self, app: Core, schedules: list[ScheduleEntry]) -> None:
        self._app = app
        self._entries = [_Entry(schedule) for schedule in schedules]
        self._written = False

    def tick(self, conn: Connection, now: datetime) -> int:
        """Handle each entry that is due. Returns how many jobs were inserted."""
        if not self._written:
            self._write_entries(conn, now)
        moment = self._app.clock.monotonic()
        due = [(entry, run_at) for entry in self._entries if (run_at := entry.due(now, moment)) is not None]
        if not due:
            return 0
        with conn.begin():
            rows = {row.key: row for row in self._app.storage.entries(conn)}
        return sum(self._handle(conn, entry, rows.get(entry.key), run_at, now) for entry, run_at in due)

    def _write_entries(self, conn: Connection, now: datetime) -> None:
        """Once, at the node's start: a new or changed expression begins to count now."""
        for entry in self._entries:
            recurring = entry.recurring
            self._app.storage.ensure_entry(
                conn,
                recurring.key,
                cron=recurring.cron,
                timezone=recurring.timezone,
                worker=_worker_name(recurring.job),
                paused=recurring.paused,
                now=now,
            )
        self._written = True

    def _handle(
        self, conn: Connection, entry: _Entry, row: EntryRow | None, run_at: datetime, now: datetime
    ) -> int:
        if row is None:
            self._written = False  # somebody removed the row; it is written again, and counts from then on
            return 0
        if row.paused or run_at <= row.since or run_at == row.last_run_at:
            entry.done(run_at)
            return 0
        late = now - run_at > entry.recurring.catch_up
        try:
            inserted = self._record(conn, entry, run_at, now, run=not late)
        except Exception as error:  # noqa: BLE001
            entry.failed(self._app.clock.monotonic())
            self._say_failed(entry, run_at, now, error)
            return 0
        entry.done(run_at)
        if inserted is not None:
            self._say_missed(entry, row, run_at, now, also_this=late)
        if not inserted:
            return 0
        self._say_inserted(entry.key, run_at, now, inserted[0])
        return 1

    def _record(
        self, conn: Connection, entry: _Entry, run_at: datetime, now: datetime, *, run: bool
    ) -> list[Inserted] | None:
        """Record the instant and, where it is to run, insert its job; None where another node was first.

        The factory is called first: where it fails, nothing is recorded, so the run can be tried again.
        """
        storage = self._app.storage
        rows = rows_of(self._app, [self._job(entry)], system_meta={"cron": entry.key}) if run else []
        with conn.begin():
            if not storage.record_run(conn, entry.key, run_at, now=now):
                return None
            inserted = storage.insert(conn, rows) if rows else []
            for each in inserted:
                storage.link_run(conn, entry.key, run_at, each.id)
        waker_of(self._app).wake(row.queue for row in rows)
        return inserted

    def _job(self, entry: _Entry) -> NewJob:
        source = entry.recurring.job
        made = source() if not isinstance(source, Worker | NewJob) else source
        if not isinstance(made, Worker | NewJob):
            raise TypeError(f"the entry's job gave {made!r:.100}, expected a worker's value or a NewJob")
        return (made.job() if isinstance(made, Worker) else made).tag("cron")

    # -- what is said of it

    def _say_missed(
        self, entry: _Entry, row: EntryRow, run_at: datetime, now: datetime, *, also_this: bool
    ) -> None:
        """One event for all that was missed since the last run; the node that recorded the latest sends it."""
        missed, last = int(also_this), run_at if also_this else None
        instant = entry.expression.next_after(max(row.since, row.last_run_at or row.since))
        while instant is not None and instant < run_at and missed < COUNTED:
            missed, last = missed + 1, run_at if also_this else instant
            instant = entry.expression.next_after(instant)
        if last is not None:
            log.warning(
                "cron %s: %d due runs lay too far back and were skipped, the last one due at %s",
                entry.key,
                missed,
                last.isoformat(),
                extra={"plugin": "cron", "key": entry.key, "missed": missed},
            )
            self._observe(CronSkipped(at=now, key=entry.key, run_at=last, missed=missed))

    def _say_inserted(self, key: str, run_at: datetime, now: datetime, inserted: Inserted) -> None:
        self._observe(
            CronInserted(at=now, key=key, run_at=run_at, job_id=inserted.id, duplicate=inserted.duplicate)
        )

    def _say_failed(self, entry: _Entry, run_at: datetime, now: datetime, error: Exception) -> None:
        text = self._app.redactor.text(f"{type(error).__name__}: {error}")
        if entry.failures == 1:
            log.error(
                "cron %s (%s): the run due at %s could not be enqueued and is tried again: %s",
                entry.key,
                entry.origin,
                run_at.isoformat(),
                text,
                extra={"plugin": "cron", "key": entry.key},
            )
        self._observe(CronFailed(at=now, key=entry.key, run_at=run_at, error=text))

    def _observe(self, event: Event) -> None:
        self._app.registry.observe("jobkit_event", event=event)


def _worker_name(source: object) -> str:
    """The worker's name as far as it can be told without making a job; a factory's own name otherwise."""
    if isinstance(source, Worker):
        return type(source).__jobkit__.name
    if isinstance(source, NewJob):
        return source.worker
    return str(getattr(source, "__qualname__", type(source).__qualname__))
