"""Recurring entries and the record of their runs.

Invariant: the unique (key, run_at) decides which node's transaction owns a run; the others learn that it is
taken.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select, or_, select, update

from jobkit.storage.arm import StorageArm
from jobkit.storage.base import EntryRow
from jobkit.storage.engine import reading
from jobkit.storage.fleet import insert_if_missing

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["RecurringEntries"]


class RecurringEntries(StorageArm):
    """The methods that cron is made of."""

    def ensure_entry(
        self,
        conn: Connection,
        key: str,
        *,
        cron: str,
        timezone: str,
        worker: str,
        paused: bool,
        now: datetime,
    ) -> EntryRow:
        """See `Storage.ensure_entry`."""
        table = self.tables.entries
        same = {"worker": worker, "updated_at": now}
        changed = {"cron": cron, "timezone": timezone, "since": now, **same}

        def work() -> EntryRow:
            entry = self._entry(conn, key)
            if entry is None and insert_if_missing(conn, table, {"key": key, "paused": paused, **changed}):
                entry = self._entry(conn, key)
                assert entry is not None
                return entry
            other = or_(table.c.cron != cron, table.c.timezone != timezone)
            if not conn.execute(update(table).where(table.c.key == key, other).values(**changed)).rowcount:
                older = table.c.worker != worker
                conn.execute(update(table).where(table.c.key == key, older).values(**same))
            entry = self._entry(conn, key)
            assert entry is not None
            return entry

        return self._whole(conn, work)

    def _columns(self) -> Select[*tuple[Any, ...]]:
        c = self.tables.entries.c
        return select(
            c.key, c.cron, c.timezone, c.worker, c.since, c.paused, c.last_run_at, c.reason, c.paused_by
        )

    def _entry(self, conn: Connection, key: str) -> EntryRow | None:
        query = self._columns().where(self.tables.entries.c.key == key)
        row = conn.execute(query).one_or_none()
        return None if row is None else EntryRow(*row)

    def entries(self, conn: Connection) -> list[EntryRow]:
        """See `Storage.entries`."""
        with reading(conn):
            query = self._columns().order_by(self.tables.entries.c.key)
            return [EntryRow(*row) for row in conn.execute(query)]

    def record_run(self, conn: Connection, key: str, run_at: datetime, *, now: datetime) -> bool:
        """See `Storage.record_run`."""
        table = self.tables.entries

        def work() -> bool:
            values = {"key": key, "run_at": run_at, "inserted_at": now}
            if not insert_if_missing(conn, self.tables.executions, values):
                return False
            later = or_(table.c.last_run_at.is_(None), table.c.last_run_at < run_at)
            conn.execute(update(table).where(table.c.key == key, later).values(last_run_at=run_at))
            return True

        return self._whole(conn, work)

    def link_run(self, conn: Connection, key: str, run_at: datetime, job_id: int) -> None:
        """See `Storage.link_run`."""
        table = self.tables.executions
        run = (table.c.key == key) & (table.c.run_at == run_at)
        self._single(conn, lambda: conn.execute(update(table).where(run).values(job_id=job_id)))
