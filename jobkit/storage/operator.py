"""What only operators write: unique keys taken back, rows deleted, settings of queues, entries and nodes.

Invariants: every function runs in the caller's transaction; states are written by `Storage.transition`
alone, so nothing here does; the unique index decides who holds a key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from jobkit.jobs import JobState
from jobkit.storage.arm import batches

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.storage.schema import Tables

__all__ = [
    "delete_jobs",
    "holders",
    "lock_entry",
    "lock_jobs",
    "lock_node",
    "lock_queue",
    "set_entry",
    "set_queue",
    "set_wanted",
    "take_keys",
]

_MANY: Final = 500
_TRIES: Final = 5


def lock_jobs(conn: Connection, tables: Tables, ids: Collection[int]) -> None:
    """Locks these rows in the order of their ids, so that their states stay what they are.

    SQLite has one lock, which a writing transaction holds from its beginning.
    """
    if conn.dialect.name == "sqlite":
        return
    c = tables.jobs.c
    for some in batches(sorted(ids), _MANY):
        conn.execute(select(c.id).where(c.id.in_(some)).order_by(c.id).with_for_update()).all()


def holders(conn: Connection, tables: Tables, keys: Collection[str]) -> dict[str, int]:
    """Which job holds each of these unique keys now."""
    c = tables.jobs.c
    found: dict[str, int] = {}
    for some in batches(sorted(keys), _MANY):
        rows = conn.execute(select(c.unique_key, c.id).where(c.unique_key.in_(some)))
        found |= {row.unique_key: row.id for row in rows}
    return found


def take_keys(conn: Connection, tables: Tables, wanted: Mapping[int, str]) -> dict[int, int]:
    """Gives released unique keys back to these (locked) jobs: per key to the lowest id, where no other row
    holds it.

    Returns, for each job that did not get its key, the job that holds it.
    """
    first: dict[str, int] = {}
    for job_id in sorted(wanted):
        first.setdefault(wanted[job_id], job_id)
    refused = {job_id: first[key] for job_id, key in wanted.items() if first[key] != job_id}
    open_keys = dict(first)
    for _ in range(_TRIES):
        for key, holder in holders(conn, tables, open_keys).items():
            if holder != open_keys[key]:
                refused |= {job_id: holder for job_id, wants in wanted.items() if wants == key}
            del open_keys[key]
        if not open_keys or _written(conn, tables, open_keys):
            return refused
    return refused | {job_id: job_id for job_id in open_keys.values()}


def _written(conn: Connection, tables: Tables, keys: Mapping[str, int]) -> bool:
    """All of them, or none where another transaction took one meanwhile."""
    table = tables.jobs
    try:
        with conn.begin_nested():
            for key, job_id in sorted(keys.items()):
                conn.execute(update(table).where(table.c.id == job_id).values(unique_key=key))
        return True
    except IntegrityError:
        return False


def delete_jobs(conn: Connection, tables: Tables, ids: Sequence[int]) -> set[int]:
    """Deletes those of the (locked) rows that are not executing; returns which."""
    c = tables.jobs.c
    gone: set[int] = set()
    for some in batches(sorted(ids), _MANY):
        deletable = [c.id.in_(some), c.state != JobState.EXECUTING.value]
        found = set(conn.scalars(select(c.id).where(*deletable)))
        conn.execute(delete(tables.jobs).where(*deletable))
        gone |= found
    return gone


# -- settings


def _locked(conn: Connection, table: Any, column: Any, name: str) -> Mapping[str, Any] | None:
    row = conn.execute(select(table).where(column == name).with_for_update()).first()
    return None if row is None else dict(row._mapping)


def lock_queue(conn: Connection, tables: Tables, name: str) -> Mapping[str, Any] | None:
    """The queue's row, locked; None without one."""
    return _locked(conn, tables.queues, tables.queues.c.name, name)


def set_queue(conn: Connection, tables: Tables, name: str, values: Mapping[str, Any], now: datetime) -> None:
    """Writes these columns of the queue's row, which is made where it is missing; counts its version up."""
    table = tables.queues
    changed = {**values, "version": table.c.version + 1, "updated_at": now}
    if not conn.execute(update(table).where(table.c.name == name).values(**changed)).rowcount:
        conn.execute(insert(table).values(name=name, **{**changed, "version": 1}))


def lock_entry(conn: Connection, tables: Tables, key: str) -> Mapping[str, Any] | None:
    """The recurring entry's row, locked; None without one."""
    return _locked(conn, tables.entries, tables.entries.c.key, key)


def set_entry(conn: Connection, tables: Tables, key: str, values: Mapping[str, Any], now: datetime) -> None:
    """Writes these columns of the entry's row."""
    table = tables.entries
    conn.execute(update(table).where(table.c.key == key).values(**values, updated_at=now))


def lock_node(conn: Connection, tables: Tables, node: str) -> Mapping[str, Any] | None:
    """The node's row, locked; None without one."""
    return _locked(conn, tables.nodes, tables.nodes.c.node, node)


def set_wanted(conn: Connection, tables: Tables, node: str, wanted: Mapping[str, bool]) -> None:
    """Writes what the node reads at its next beat."""
    table = tables.nodes
    conn.execute(update(table).where(table.c.node == node).values(wanted=json.dumps(dict(wanted))))
