"""What a clean-up is, and the four of jobkit's own tables.

Invariant: a call deletes at most `limit` rows in one short transaction and may be repeated, run twice at once, or die
half-way without harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy import Connection, Table

from jobkit.core import Core

__all__ = ["CleanupSettings", "CleanupTask", "own_tasks"]

SHOWN_RUNS = 100
"""Runs of each entry that are kept whatever their age, so that a yearly entry's last run can still be shown."""


@dataclass(frozen=True, slots=True)
class CleanupTask:
    """One clean-up: `clean(conn, now, limit)` deletes at most `limit` rows and returns how many it deleted."""

    name: str
    clean: Callable[[Connection, datetime, int], int]


@dataclass(frozen=True, slots=True)
class CleanupSettings:
    """`[plugins.cleanup]`: how long things are kept, rows a statement, and statements a task and hour."""

    executions: timedelta = timedelta(days=7)
    lost_nodes: timedelta = timedelta(days=1)
    operations: timedelta = timedelta(days=30)
    audit: timedelta = timedelta(days=180)
    batch: int = 1_000
    batches: int = 1_000

    def __post_init__(self) -> None:
        for name in ("executions", "lost_nodes", "operations", "audit"):
            if getattr(self, name) < timedelta(hours=1):
                raise ValueError(f"{name} must be at least 1h, not {getattr(self, name)}")
        if not 1 <= self.batch <= 100_000 or self.batches < 1:
            raise ValueError("batch must lie between 1 and 100000, and batches be at least 1")


def own_tasks(app: Core, settings: CleanupSettings) -> list[CleanupTask]:
    """The clean-ups of jobkit's own tables."""
    tables = app.tables
    finished = tables.operations.c.state.in_(("done", "cancelled", "failed"))
    return [
        CleanupTask("recurring_executions", _executions(app, settings)),
        CleanupTask("lost_nodes", _older(tables.nodes, tables.nodes.c.lost_at, settings.lost_nodes)),
        CleanupTask(
            "operations",
            _older(tables.operations, tables.operations.c.finished_at, settings.operations, finished),
        ),
        CleanupTask("audit", _older(tables.audit, tables.audit.c.at, settings.audit)),
    ]


def _older(
    table: Table, column: sa.Column[datetime], age: timedelta, *conditions: sa.ColumnElement[bool]
) -> Callable[[Connection, datetime, int], int]:
    key = next(iter(table.primary_key.columns))

    def clean(conn: Connection, now: datetime, limit: int) -> int:
        old = sa.select(key).where(column < now - age, *conditions).limit(limit)
        return conn.execute(sa.delete(table).where(key.in_(old))).rowcount

    return clean


def _executions(app: Core, settings: CleanupSettings) -> Callable[[Connection, datetime, int], int]:
    """Past runs, but never those that a catch-up may still ask for, nor the newest of each entry."""
    table = app.tables.executions
    windows = [entry.recurring.catch_up for entry in app.registry.schedules()]
    keep = max([settings.executions, *(2 * window for window in windows)])

    def clean(conn: Connection, now: datetime, limit: int) -> int:
        keys = list(
            conn.execute(sa.select(table.c.key).where(table.c.run_at < now - keep).distinct()).scalars()
        )
        total = 0
        for key in keys:
            total += _clean_entry(conn, table, key, now - keep, limit - total)
            if total >= limit:
                break
        return total

    return clean


def _clean_entry(conn: Connection, table: Table, key: str, before: datetime, limit: int) -> int:
    """One entry's runs from `before`, its newest hundred excepted. Reads only the unique index (key, run_at)."""
    mine = table.c.key == key
    newest = sa.select(table.c.run_at).where(mine).order_by(table.c.run_at.desc())
    oldest_shown = conn.execute(newest.offset(SHOWN_RUNS - 1).limit(1)).scalar()
    if oldest_shown is None:
        return 0
    old = sa.select(table.c.id).where(mine, table.c.run_at < min(before, oldest_shown)).limit(limit)
    return conn.execute(sa.delete(table).where(table.c.id.in_(old))).rowcount
