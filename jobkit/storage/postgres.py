"""The arm of Postgres: one statement claims a batch, one records a batch, COPY takes large inserts.

Invariant: `id = ANY(ARRAY(SELECT ... FOR UPDATE SKIP LOCKED))` runs the inner query exactly once, by the
claim index; every parameter is cast, so that each driver sends it as the same type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jobkit.jobs import JobRow, Lease
from jobkit.storage.base import NO_OBSERVERS, Beat, ClaimedJob, Observers, QueueSettings, Staged
from jobkit.storage.changes import FINAL_TIMES, Group
from jobkit.storage.claims import SKEW
from jobkit.storage.engine import as_sqlalchemy, reading
from jobkit.storage.fleet import as_json
from jobkit.storage.native import CLAIMED, COLUMNS, NativeStorage, sorted_claims
from jobkit.storage.schema import to_text
from jobkit.storage.statement import Row, Sql, all_rows, quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.storage.schema import Tables

__all__ = ["PostgresStorage"]

COPY_FROM: Final = 500
"""From how many plain rows on COPY is faster than unnest."""

_TYPES: Final = {
    "job": "bigint",
    "claimed": "timestamptz",
    "at": "timestamptz",
    "scheduled": "timestamptz",
    "error": "text",
    "queue": "text",
    "priority": "smallint",
    "max_attempts": "integer",
    "tags": "text",
}
_TIMES: Final = frozenset({"claimed", "at", "scheduled"})
"""These and the ids go as array literals of our own: the driver's lists cost more than the statement."""
_ROW: Final = {
    "state": "text",
    "queue": "text",
    "worker": "text",
    "args": "jsonb",
    "meta": "jsonb",
    "tags": "jsonb",
    "max_attempts": "integer",
    "priority": "smallint",
    "inserted_at": "timestamptz",
    "scheduled_at": "timestamptz",
    "unique_key": "text",
}
_COLUMNS: Final = ", ".join(_ROW)


def _typed(expression: str, type_: str, *, of: str = "") -> str:
    """JSON travels as text: drivers have ideas of their own about jsonb."""
    if type_ == "jsonb":
        return f"CAST({expression} AS text{of})" if of else f"CAST(CAST({expression} AS text) AS jsonb)"
    return f"CAST({expression} AS {type_}{of})"


_LIVE: Final = "EXISTS (SELECT 1 FROM {nodes} AS n WHERE n.node = CAST(:node AS text) AND n.lost_at IS NULL)"
_CLAIM: Final = f"""
UPDATE {{jobs}} AS j SET state = 'executing', attempt = j.attempt + 1,
  attempted_by = CAST(:node AS text), attempted_at = CAST(:at AS timestamptz)
WHERE j.id = ANY(ARRAY(
  SELECT a.id FROM {{jobs}} AS a
  WHERE a.state = 'available' AND a.queue = CAST(:queue AS text)
    AND a.scheduled_at <= CAST(:due AS timestamptz) AND {_LIVE} %s
  ORDER BY a.priority, a.scheduled_at, a.id LIMIT CAST(:limit AS bigint) FOR UPDATE OF a SKIP LOCKED))
RETURNING {CLAIMED}
"""
_SKIP: Final = "AND a.worker <> ALL(CAST(:skip AS text[]))"
_DUE: Final = """
SELECT q.name FROM unnest(CAST(:queues AS text[])) AS q(name) WHERE EXISTS (
  SELECT 1 FROM {jobs} AS a WHERE a.state = 'available' AND a.queue = q.name
    AND a.scheduled_at <= CAST(:due AS timestamptz) %s)
"""
_STAGE: Final = """
WITH staged AS (
  UPDATE {jobs} AS j SET state = 'available' WHERE j.id = ANY(ARRAY(
    SELECT w.id FROM {jobs} AS w
    WHERE w.state IN ('scheduled', 'retryable') AND w.scheduled_at <= CAST(:now AS timestamptz)
    ORDER BY w.scheduled_at, w.id LIMIT CAST(:limit AS bigint) FOR UPDATE SKIP LOCKED))
  RETURNING j.queue)
SELECT queue, count(*) FROM staged GROUP BY queue
"""
_PRUNE: Final = """
DELETE FROM {{jobs}} WHERE id = ANY(ARRAY(
  SELECT id FROM {{jobs}} WHERE state = '{state}' AND {column} < CAST(:before AS timestamptz)
  ORDER BY {column}, id LIMIT CAST(:limit AS bigint) FOR UPDATE SKIP LOCKED))
"""
_BEAT: Final = """
WITH beating AS (
  UPDATE {nodes} AS n SET beat = n.beat + 1, heartbeat_at = CAST(:now AS timestamptz),
    queues = CAST(CAST(:queues AS text) AS jsonb), info = CAST(CAST(:info AS text) AS jsonb)
  WHERE n.node = CAST(:node AS text) AND n.lost_at IS NULL RETURNING n.wanted)
SELECT CAST(b.wanted AS text),
  (SELECT CAST(jsonb_agg(jsonb_build_array(q.name,
      q.paused AND (q.paused_until IS NULL OR q.paused_until > CAST(:now AS timestamptz)),
      COALESCE(q.node_limits -> CAST(:node AS text), to_jsonb(q.limit_override)))) AS text) FROM {queues} AS
      q),
  (SELECT CAST(jsonb_agg(jsonb_build_array(j.id, j.attempted_at) ORDER BY j.id) AS text) FROM {jobs} AS j
    WHERE j.state = 'executing' AND j.attempted_by = CAST(:node AS text))
FROM beating AS b
"""
_INSERT_ONE: Final = (
    f"INSERT INTO {{jobs}} ({_COLUMNS}) "
    f"VALUES ({', '.join(_typed(f':{name}', type_) for name, type_ in _ROW.items())}) RETURNING id"
)
_GUARD: Final = "WHERE current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')"
_CONFLICT: Final = "ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING"


class PostgresStorage(NativeStorage):
    """See the module."""

    _returned_from = "j."

    def __init__(self, tables: Tables, observers: Observers = NO_OBSERVERS) -> None:
        super().__init__(tables, observers)

        def sql(template: str) -> Sql:
            return Sql(template, tables)

        self._claim: Final = {False: sql(_CLAIM % ""), True: sql(_CLAIM % _SKIP)}
        self._due_in: Final = {False: sql(_DUE % ""), True: sql(_DUE % _SKIP)}
        self._stage_all: Final = sql(_STAGE)
        self._pruners = [
            sql(_PRUNE.format(state=state.value, column=column)) for state, column in FINAL_TIMES.items()
        ]
        self._beat: Final = sql(_BEAT)
        self._insert_one: Final = sql(_INSERT_ONE)
        self._insert_and_tell: Final = sql(f"{_INSERT_ONE}, pg_notify(CAST(:channel AS text), queue)")
        self._insert_many: Final = {False: sql(_insert_many("")), True: sql(_insert_many(_GUARD))}

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
        params: dict[str, object] = {
            "queue": queue,
            "limit": limit,
            "node": node,
            "at": at,
            "due": at + SKEW,
        }
        if skip:
            params["skip"] = sorted(skip)
        statement = self._claim[bool(skip)]
        if self.observers.transitions is None:
            return self._claimed(self._single(conn, lambda: statement.rows(conn, params)), node, at)

        def work() -> list[ClaimedJob]:
            jobs = self._claimed(statement.rows(conn, params), node, at)
            self._report_claims(conn, jobs)
            return jobs

        return self._whole(conn, work)

    def _claimed(self, rows: Sequence[tuple[Any, ...]], node: str, at: datetime) -> list[ClaimedJob]:
        if rows and rows[0][9].tzinfo is not UTC:  # a session that is not ours
            rows = [_in_utc(row) for row in rows]
        return sorted_claims(rows, node, at)

    def due_queues(
        self, conn: Connection, queues: Sequence[str], *, now: datetime, skip: Collection[str] = ()
    ) -> list[str]:
        """See `Storage.due_queues`."""
        params: dict[str, object] = {"queues": list(queues), "due": now + SKEW, "skip": sorted(skip)}
        with reading(conn):
            return [row[0] for row in self._due_in[bool(skip)].rows(conn, params)]

    # --- services

    def _stage(self, conn: Connection, now: datetime, limit: int) -> Staged:
        if self.observers.transitions is not None:
            return super()._stage(conn, now, limit)
        params = {"now": now, "limit": limit}
        rows = self._single(conn, lambda: self._stage_all.rows(conn, params))
        return Staged(sum(row[1] for row in rows), frozenset(row[0] for row in rows))

    def beat(
        self,
        conn: Connection,
        node: str,
        *,
        now: datetime,
        queues: Mapping[str, int],
        info: Mapping[str, object],
    ) -> Beat | None:
        """See `Storage.beat`; one statement."""
        params = {"node": node, "now": now, "queues": as_json(queues), "info": as_json(info)}
        rows = self._single(conn, lambda: self._beat.rows(conn, params))
        if not rows:
            return None
        wanted, settings, executing = (json.loads(text) if text else None for text in rows[0])
        return Beat(
            {name: QueueSettings(bool(paused), limit) for name, paused, limit in settings or ()},
            wanted or {},
            [Lease(id_, node, datetime.fromisoformat(at).astimezone(UTC)) for id_, at in executing or ()],
        )

    # --- inserting

    def tells(self, rows: Sequence[JobRow]) -> bool:
        """See `Storage.tells`."""
        return len(rows) == 1 and rows[0].unique_key is None

    def _insert_plain(self, conn: Connection, row: JobRow, tell: str | None) -> int:
        params: dict[str, object] = row._asdict()
        if tell is None:
            return int(self._insert_one.rows(conn, params)[0][0])
        params["channel"] = tell
        return int(self._insert_and_tell.rows(conn, params)[0][0])

    def _insert_rows(
        self, conn: Connection, rows: Sequence[JobRow], *, guarded: bool
    ) -> list[tuple[int, str | None]]:
        if len(rows) >= COPY_FROM and conn.dialect.driver == "psycopg" and rows[-1].unique_key is None:
            return [(id_, None) for id_ in self._copy(conn, rows)]
        columns = dict(zip(JobRow._fields, zip(*rows, strict=True), strict=True))
        literal = conn.dialect.driver != "asyncpg"  # which takes lists only
        params = {name: _array(name, columns[name]) if literal else list(columns[name]) for name in _ROW}
        return self._insert_many[guarded].rows(conn, params)

    def _copy(self, conn: Connection, rows: Sequence[JobRow]) -> list[int]:
        """COPY returns nothing, so the ids are drawn first."""
        table = quoted(self.tables.jobs, conn.dialect).replace("%%", "%")
        result = conn.exec_driver_sql(
            "SELECT nextval(pg_get_serial_sequence(%(table)s, 'id')) FROM generate_series(1, %(count)s)",
            {"table": table, "count": len(rows)},
        )
        ids = [row[0] for row in all_rows(result)]
        raw: Any = conn.connection.driver_connection
        statement = f"COPY {table} (id, {_COLUMNS}) FROM STDIN"
        try:
            with raw.cursor() as cursor, cursor.copy(statement) as copy:
                for some in range(0, len(rows), 500):
                    copy.write(_copy_lines(ids[some : some + 500], rows[some : some + 500]))
        except conn.dialect.loaded_dbapi.Error as error:
            raise as_sqlalchemy(conn, error, statement, None) from error
        return ids

    # --- the words of the dialect

    def _source(self, columns: Sequence[str]) -> str:
        arrays = ", ".join(f"CAST(:{name} AS {_TYPES[name]}[])" for name in columns)
        return f"unnest({arrays}) AS c({', '.join(columns)})"

    def _values(self, conn: Connection, group: Group, columns: Sequence[str]) -> dict[str, object]:
        literal = conn.dialect.driver != "asyncpg"  # which takes lists only
        values: dict[str, object] = {"job": list(group.by_id)}
        for name in columns[1:]:
            read = COLUMNS[name]
            values[name] = [read(change) for change in group.changes]
        if literal:
            values["job"] = f"{{{','.join(map(str, group.by_id))}}}"
            for name in _TIMES.intersection(columns):
                values[name] = _instants(values[name])
        return values

    def _lease_fence(self) -> str:
        """Written so that only the primary key can serve it: the index of executing rows fills up with dead
        entries as fast as jobs run, and the planner cannot know."""
        return (
            "j.state IS NOT DISTINCT FROM 'executing' "
            "AND j.attempted_by IS NOT DISTINCT FROM CAST(:node AS text) AND j.attempted_at = c.claimed"
        )

    def _json(self, column: str) -> str:
        return f"CAST(c.{column} AS jsonb)"

    def _with_error(self) -> str:
        return "jsonb_path_query_array(j.errors || CAST(c.error AS jsonb), '$[last-19 to last]')"

    def _with_snooze(self) -> str:
        count = "CASE WHEN jsonb_typeof(j.meta -> 'snoozed') = 'number' THEN CAST(j.meta ->> 'snoozed' AS numeric) END"
        return f"jsonb_set(j.meta, ARRAY['snoozed'], to_jsonb(COALESCE({count}, 0) + 1))"

    def _larger(self, one: str, other: str) -> str:
        return f"GREATEST({one}, {other})"

    def _unique_states(self) -> str:
        return "j.meta ->> 'unique_states'"

    def _moment(self, at: datetime) -> object:
        return at


def _insert_many(guard: str) -> str:
    arrays = ", ".join(_typed(f":{name}", type_, of="[]") for name, type_ in _ROW.items())
    values = ", ".join(f"CAST(t.{n} AS jsonb)" if t == "jsonb" else f"t.{n}" for n, t in _ROW.items())
    return (
        f"INSERT INTO {{jobs}} ({_COLUMNS}) SELECT {values} "
        f"FROM unnest({arrays}) WITH ORDINALITY AS t({_COLUMNS}, place) {guard} "
        f"ORDER BY t.unique_key NULLS FIRST, t.place {_CONFLICT} RETURNING id, unique_key"
    )


_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_ESCAPED: Final = re.compile(r"[\\\t\n\r]").search


def _copy_lines(ids: Sequence[int], rows: Sequence[JobRow]) -> str:
    """The rows in COPY's text format; args and tags may hold any character."""
    lines: list[str] = []
    last, at = None, ""
    for id_, row in zip(ids, rows, strict=True):
        if row.inserted_at is not last:
            last, at = row.inserted_at, to_text(row.inserted_at)
        due = at if row.scheduled_at is last else to_text(row.scheduled_at)
        words = f"{row.queue}\t{row.worker}\t{_word(row.args)}\t{_word(row.meta)}\t{_word(row.tags)}"
        numbers = f"{row.max_attempts}\t{row.priority}"
        lines.append(f"{id_}\t{row.state.value}\t{words}\t{numbers}\t{at}\t{due}\t\\N\n")
    return "".join(lines)


def _word(text: str) -> str:
    return text.translate(_ESCAPES) if _ESCAPED(text) else text


def _array(name: str, values: Sequence[Any]) -> str:
    """A column of rows as an array literal: the driver's lists cost more than the statement.

    JSON's quotes are an array's as long as no character needs more than a backslash before it, and none does: names
    are plain, and JSON texts have no control characters.
    """
    if _ROW[name] == "timestamptz":
        return _instants(values)
    return f"{{{_JSON(values).decode()[1:-1]}}}"


_JSON: Final = msgspec.json.Encoder().encode


def _instants(times: Any) -> str:
    """An array literal; neighbours often share one claim."""
    texts: list[str] = []
    last, text = None, ""
    for moment in times:
        if moment is not last:
            last, text = moment, to_text(moment)
        texts.append(text)
    return f"{{{','.join(texts)}}}"


def _in_utc(row: Row) -> Row:
    """The driver speaks in the session's zone."""
    return (*row[:9], row[9].astimezone(UTC), row[10].astimezone(UTC))
