"""What storage tests share: rows, times, and a look at the database past the storage under test."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from sqlalchemy import Connection, Engine, insert, select, update

from jobkit.jobs import JobRow, JobState, Lease
from jobkit.storage.base import ClaimedJob, Storage
from jobkit.storage.schema import Tables

NOW = datetime(2026, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Settings:
    database_url: str
    sqlite_synchronous: str = "normal"
    postgres_prepare: str = "auto"


def job_row(**changes: Any) -> JobRow:
    """A row as enqueueing prepares it; dicts and lists become JSON text."""
    values: dict[str, Any] = {
        "state": JobState.AVAILABLE,
        "queue": "default",
        "worker": "echo",
        "args": {"n": 1},
        "meta": {},
        "tags": [],
        "max_attempts": 20,
        "priority": 0,
        "inserted_at": NOW,
        "scheduled_at": NOW,
        "unique_key": None,
    }
    values |= changes
    for name in ("args", "meta", "tags"):
        if not isinstance(values[name], str):
            values[name] = json.dumps(values[name], separators=(",", ":"))
    return JobRow(**values)


@dataclass
class Database:
    engine: Engine
    tables: Tables
    storage: Storage
    conn: Connection
    ticks: count = field(default_factory=lambda: count(1))  # type: ignore[type-arg]

    def add(self, **changes: Any) -> int:
        """Writes a job's row as given, any column; returns its id."""
        values: dict[str, Any] = {
            "state": "available",
            "queue": "default",
            "worker": "echo",
            "args": "{}",
            "inserted_at": NOW,
            "scheduled_at": NOW,
        }
        values |= changes
        for name in ("args", "meta", "tags", "errors"):
            if name in values and not isinstance(values[name], str):
                values[name] = json.dumps(values[name])
        result = self.conn.execute(insert(self.tables.jobs).values(**values))
        assert result.inserted_primary_key is not None
        return int(result.inserted_primary_key[0])

    def row(self, job_id: int) -> Any:
        return self.conn.execute(select(self.tables.jobs).where(self.tables.jobs.c.id == job_id)).one()

    def states(self) -> dict[int, str]:
        c = self.tables.jobs.c
        return {row[0]: row[1] for row in self.conn.execute(select(c.id, c.state).order_by(c.id))}

    def set(self, job_id: int, **values: Any) -> None:
        jobs = self.tables.jobs
        self.conn.execute(update(jobs).where(jobs.c.id == job_id).values(**values))

    def node(self, name: str = "a") -> str:
        """A live node."""
        self.storage.register_node(self.conn, name, now=NOW, queues={"default": 10}, info={})
        return name

    def claim(self, limit: int = 10, *, node: str = "a", queue: str = "default") -> list[ClaimedJob]:
        at = NOW + next(self.ticks) * timedelta(microseconds=1)
        return self.storage.claim(self.conn, queue, limit, node=node, at=at)

    def claimed(self, *, node: str = "a", **changes: Any) -> Lease:
        """One job, claimed by that node."""
        job_id = self.add(**changes)
        [job] = [job for job in self.claim(1_000, node=node) if job.id == job_id]
        return job.lease
