"""The arm of SQLite: changes travel as one JSON parameter, a record and the next claim share one write
transaction.

Invariant: the write lock is taken only when there is something to write, and waited for fairly (see
`engine`). Times are fixed-width text that sorts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jobkit.jobs import JobRow
from jobkit.storage.arm import batches
from jobkit.storage.base import (
    ERRORS_KEPT,
    NO_OBSERVERS,
    Change,
    ClaimedJob,
    ClaimWish,
    Exchanged,
    Observers,
    Staged,
)
from jobkit.storage.changes import FINAL_TIMES, Group
from jobkit.storage.claims import SKEW
from jobkit.storage.engine import reading
from jobkit.storage.inserts import warn_unconfigured
from jobkit.storage.native import CLAIMED, COLUMNS, NativeStorage, sorted_claims
from jobkit.storage.schema import from_text, to_text
from jobkit.storage.statement import Row, Sql

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.storage.schema import Tables

__all__ = ["SQLiteStorage", "has_returning"]

_ROW: Final = (
    "state",
    "queue",
    "worker",
    "args",
    "meta",
    "tags",
    "max_attempts",
    "priority",
    "inserted_at",
    "scheduled_at",
    "unique_key",
)
_COLUMNS: Final = ", ".join(_ROW)
_PLACES: Final = f"({', '.join(f':{name}' for name in _ROW)})"
AT_ONCE: Final = 80
"""Rows of one statement: old builds of SQLite take 999 parameters."""
_CONFLICT: Final = "ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING"
_AVAILABLE: Final = "a.state = 'available' AND a.queue = :queue AND a.scheduled_at <= :due %s"
_LIVE: Final = "EXISTS (SELECT 1 FROM {nodes} AS n WHERE n.node = :node AND n.lost_at IS NULL)"
_CLAIM: Final = f"""
UPDATE {{jobs}} SET state = 'executing', attempt = attempt + 1, attempted_by = :node, attempted_at = :at
WHERE id IN (SELECT a.id FROM {{jobs}} AS a WHERE {_AVAILABLE} AND {_LIVE}
  ORDER BY a.priority, a.scheduled_at, a.id LIMIT :limit)
RETURNING {CLAIMED}
"""
_ANY: Final = f"SELECT 1 FROM {{jobs}} AS a WHERE {_AVAILABLE} LIMIT 1"
_SKIP: Final = "AND a.worker NOT IN (SELECT value FROM json_each(:skip))"
_DUE: Final = """
SELECT q.value FROM json_each(:queues) AS q WHERE EXISTS (
  SELECT 1 FROM {jobs} AS a WHERE a.state = 'available' AND a.queue = q.value AND a.scheduled_at <= :due %s)
"""
_STAGE: Final = """
UPDATE {jobs} SET state = 'available' WHERE id IN (
  SELECT id FROM {jobs} WHERE state IN ('scheduled', 'retryable') AND scheduled_at <= :now
  ORDER BY scheduled_at, id LIMIT :limit)
RETURNING queue
"""
_WAITS: Final = """
SELECT 1 FROM {jobs} WHERE state IN ('scheduled', 'retryable') AND scheduled_at <= :now LIMIT 1
"""
_PRUNE: Final = """
DELETE FROM {{jobs}} WHERE id IN (
  SELECT id FROM {{jobs}} WHERE state = '{state}' AND {column} < :before ORDER BY {column}, id LIMIT :limit)
"""


def has_returning() -> bool:
    """Whether this SQLite knows UPDATE ... FROM ... RETURNING (3.35, March 2021)."""
    return sqlite3.sqlite_version_info >= (3, 35)


class SQLiteStorage(NativeStorage):
    """See the module."""

    _returned_from = ""

    def __init__(self, tables: Tables, observers: Observers = NO_OBSERVERS) -> None:
        super().__init__(tables, observers)

        def sql(template: str) -> Sql:
            return Sql(template, tables)

        self._claim: Final = {False: sql(_CLAIM % ""), True: sql(_CLAIM % _SKIP)}
        self._any: Final = {False: sql(_ANY % ""), True: sql(_ANY % _SKIP)}
        self._due_in: Final = {False: sql(_DUE % ""), True: sql(_DUE % _SKIP)}
        self._stage_all: Final = sql(_STAGE)
        self._waits: Final = sql(_WAITS)
        self._pruners = [
            sql(_PRUNE.format(state=state.value, column=column)) for state, column in FINAL_TIMES.items()
        ]
        self._insert_one: Final = sql(f"INSERT INTO {{jobs}} ({_COLUMNS}) VALUES {_PLACES} RETURNING id")
        self._insert_values: Final = {keyed: sql(_insert_at_once(keyed)) for keyed in (False, True)}
        self._insert_json: Final = {keyed: sql(_insert_many(keyed)) for keyed in (False, True)}

    # --- claiming

    def claim(
        self,
        conn: Connection,
        queue: str,
        limit: int,
        *,
        node: str,
        at: datetime,
        skip: Collection[str] = (),
    ) -> list[ClaimedJob]:
        """See `Storage.claim`."""
        wish = ClaimWish(queue, limit, skip)
        with reading(conn):  # looks before it asks for the write lock
            if not self._any[bool(skip)].rows(conn, _claim_params(wish, node, at)):
                return []
        run = self._whole if self.observers.transitions is not None else self._single
        return run(conn, lambda: self._claim_now(conn, wish, node, at))

    def exchange(
        self,
        conn: Connection,
        changes: Sequence[Change],
        claims: Sequence[ClaimWish],
        *,
        node: str,
        at: datetime,
    ) -> Exchanged:
        """See `Storage.exchange`."""
        if not changes:
            return super().exchange(conn, changes, claims, node=node, at=at)

        def work() -> Exchanged:
            landed = self.transition(conn, changes)
            claimed: list[ClaimedJob] = []
            for wish in claims:
                claimed += self._claim_now(conn, wish, node, at)
            return Exchanged(landed, claimed)

        return self._whole(conn, work) if claims else Exchanged(self.transition(conn, changes), [])

    def _claim_now(self, conn: Connection, wish: ClaimWish, node: str, at: datetime) -> list[ClaimedJob]:
        rows = self._claim[bool(wish.skip)].rows(conn, _claim_params(wish, node, at))
        jobs = sorted_claims([_with_times(row) for row in rows], node, at)
        self._report_claims(conn, jobs)
        return jobs

    def due_queues(
        self, conn: Connection, queues: Sequence[str], *, now: datetime, skip: Collection[str] = ()
    ) -> list[str]:
        """See `Storage.due_queues`."""
        params = {
            "queues": _json_text(list(queues)),
            "due": to_text(now + SKEW),
            "skip": _json_text(sorted(skip)),
        }
        with reading(conn):
            return [row[0] for row in self._due_in[bool(skip)].rows(conn, params)]

    # --- services

    def _stage(self, conn: Connection, now: datetime, limit: int) -> Staged:
        params = {"now": to_text(now), "limit": limit}
        with reading(conn):
            if not self._waits.rows(conn, params):
                return Staged(0)
        if self.observers.transitions is not None:
            return super()._stage(conn, now, limit)
        rows = self._single(conn, lambda: self._stage_all.rows(conn, params))
        return Staged(len(rows), frozenset(row[0] for row in rows))

    # --- inserting

    def _insert_plain(self, conn: Connection, row: JobRow, tell: str | None) -> int:
        warn_unconfigured(conn)
        return int(self._insert_one.rows(conn, dict(zip(_ROW, _row_values(row), strict=True)))[0][0])

    def _needs_transaction(self, rows: Sequence[JobRow]) -> bool:
        return len(rows) > AT_ONCE or super()._needs_transaction(rows)

    def _insert_rows(
        self, conn: Connection, rows: Sequence[JobRow], *, guarded: bool
    ) -> list[tuple[int, str | None]]:
        warn_unconfigured(conn)
        keyed = rows[-1].unique_key is not None
        written: list[tuple[int, str | None]] = []
        rest = len(rows) % AT_ONCE
        for some in batches(rows[: len(rows) - rest], AT_ONCE):
            values = list(chain.from_iterable(map(_row_values, some)))
            written += self._insert_values[keyed].rows_by_place(conn, values)
        if rest:
            params = {"rows": _json_text([_row_values(row) for row in rows[-rest:]])}
            written += self._insert_json[keyed].rows(conn, params)
        return written

    # --- the words of the dialect

    def _source(self, columns: Sequence[str]) -> str:
        fields = ", ".join(
            f"json_extract(value, '$[{place}]') AS {name}" for place, name in enumerate(columns)
        )
        return f"(SELECT {fields} FROM json_each(:rows)) AS c"

    def _values(self, conn: Connection, group: Group, columns: Sequence[str]) -> dict[str, object]:
        readers = [COLUMNS[name] for name in columns]
        return {"rows": _json_text([[_plain(read(change)) for read in readers] for change in group.changes])}

    def _lease_fence(self) -> str:
        """The + keeps the planner at the primary key: by the index of executing rows, each change would look
        through all that the node executes."""
        return "+j.state = 'executing' AND +j.attempted_by = :node AND j.attempted_at = c.claimed"

    def _json(self, column: str) -> str:
        return f"json(c.{column})"

    def _with_error(self) -> str:
        longer = "json_insert(j.errors, '$[#]', json(c.error))"
        kept = f"json_array_length(j.errors) < {ERRORS_KEPT}"
        return f"CASE WHEN {kept} THEN {longer} ELSE json_remove({longer}, '$[0]') END"

    def _with_snooze(self) -> str:
        return "json_set(j.meta, '$.snoozed', COALESCE(json_extract(j.meta, '$.snoozed'), 0) + 1)"

    def _larger(self, one: str, other: str) -> str:
        return f"MAX({one}, {other})"

    def _unique_states(self) -> str:
        return "json_extract(j.meta, '$.unique_states')"

    def _moment(self, at: datetime) -> object:
        return to_text(at)


def _insert_at_once(keyed: bool) -> str:
    """AT_ONCE rows, given in their order: their text need not be taken apart, and each statement's own work is shared.

    Half the time of JSON's, and of executemany's.
    """
    values = ", ".join([_PLACES] * AT_ONCE)
    return f"INSERT INTO {{jobs}} ({_COLUMNS}) VALUES {values} {_CONFLICT if keyed else ''} RETURNING id, unique_key"


def _insert_many(keyed: bool) -> str:
    """Any number of rows. Those without a key go in as they come; sorting them would cost a third more."""
    fields = ", ".join(f"json_extract(value, '$[{place}]') AS {name}" for place, name in enumerate(_ROW))
    order = f"ORDER BY json_extract(value, '$[{_ROW.index('unique_key')}]'), key {_CONFLICT} "
    return (
        f"INSERT INTO {{jobs}} ({_COLUMNS}) SELECT {fields} FROM json_each(:rows) WHERE true "
        f"{order if keyed else ''}RETURNING id, unique_key"
    )


def _row_values(row: JobRow) -> tuple[object, ...]:
    return (
        row.state.value,
        row.queue,
        row.worker,
        row.args,
        row.meta,
        row.tags,
        row.max_attempts,
        row.priority,
        _text_of(row.inserted_at),
        _text_of(row.scheduled_at),
        row.unique_key,
    )


_cached_text: Final = lru_cache(256)(to_text)


def _text_of(moment: datetime) -> str:
    """The rows of a batch share their times. In UTC only: both passes of a repeated local hour compare as equal."""
    return _cached_text(moment) if moment.tzinfo is UTC else to_text(moment)


def _plain(value: object) -> object:
    """What the JSON encoder writes as it is to be stored: a time of a whole second it would write too short."""
    if not isinstance(value, datetime) or (value.microsecond and value.tzinfo is UTC):
        return value
    return to_text(value)


_JSON: Final = msgspec.json.Encoder().encode


def _json_text(value: object) -> str:
    return _JSON(value).decode()


def _claim_params(wish: ClaimWish, node: str, at: datetime) -> dict[str, Any]:
    return {
        "queue": wish.queue,
        "limit": wish.limit,
        "node": node,
        "at": to_text(at),
        "due": to_text(at + SKEW),
        "skip": _json_text(sorted(wish.skip)) if wish.skip else None,
    }


def _with_times(row: Row) -> Row:
    inserted = from_text(row[9])
    return (*row[:9], inserted, inserted if row[10] == row[9] else from_text(row[10]))
