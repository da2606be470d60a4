"""A real database with rows that tests write themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert

from jobkit.clock import SystemClock
from jobkit.core import Core
from jobkit.hookspecs import Actor
from jobkit.storage.schema import to_text

NOW = datetime(2026, 12, 1, 12, 0, 0, 123456, tzinfo=UTC)
ADMIN = Actor("ana@host", "ana", "cli")


class FixedClock(SystemClock):
    """A wall clock that tests move; the monotonic one is the machine's."""

    def __init__(self, now: datetime = NOW) -> None:
        self.moment = now

    def now(self) -> datetime:
        return self.moment

    def advance(self, delta: timedelta) -> None:
        self.moment += delta


def ago(**spans: float) -> datetime:
    return NOW - timedelta(**spans)


def row(**values: Any) -> dict[str, Any]:
    """One row of the jobs table, JSON columns given as values; times default to NOW."""
    found: dict[str, Any] = {
        "state": "available",
        "queue": "default",
        "worker": "w",
        "args": {},
        "meta": {},
        "tags": [],
        "errors": [],
        "attempt": 0,
        "max_attempts": 20,
        "priority": 0,
        "unique_key": None,
        "attempted_by": None,
        "inserted_at": NOW,
        "scheduled_at": NOW,
        "attempted_at": None,
        "completed_at": None,
        "cancelled_at": None,
        "discarded_at": None,
        **values,
    }
    state = found["state"]
    if state in ("completed", "cancelled", "discarded") and found[f"{state}_at"] is None:
        found[f"{state}_at"] = NOW
    if state == "executing":
        found["attempted_at"] = found["attempted_at"] or NOW
        found["attempted_by"] = found["attempted_by"] or "host:1:n"
    for name in ("args", "meta", "tags", "errors"):
        if not isinstance(found[name], str):
            found[name] = json.dumps(found[name], ensure_ascii=name == "errors", separators=(",", ":"))
    return found


def error(text: str, attempt: int = 1, at: datetime = NOW) -> Mapping[str, Any]:
    """One entry of `errors`."""
    return {"attempt": attempt, "at": to_text(at), "error": text}


def add(app: Core, *rows: Mapping[str, Any]) -> list[int]:
    """Writes rows as they are; returns their ids."""
    ids = []
    with app.engine.begin() as conn:
        for values in rows:
            result = conn.execute(insert(app.tables.jobs).values(dict(values)))
            key = result.inserted_primary_key
            assert key is not None
            ids.append(key[0])
    return ids


def put(app: Core, table: str, **values: Any) -> None:
    """Writes one row of another table."""
    with app.engine.begin() as conn:
        conn.execute(insert(getattr(app.tables, table)).values(**values))


def put_node(app: Core, node: str, queues: Mapping[str, int] | None = None, **values: Any) -> None:
    """Writes a live node."""
    put(
        app,
        "nodes",
        node=node,
        queues=json.dumps(dict(queues or {"default": 10})),
        **{"started_at": NOW, "heartbeat_at": NOW, "beat": 1, **values},
    )
