"""The tables: their columns, types and indexes, behind a prefix and, on Postgres, a schema.

Invariant: every time is bound and read through `UTCDateTime`, every JSON column through `JSON_TEXT`, so that
all statements compare and store the same representation. Indexes are partial where they can be: a finished
job costs the paths of living ones nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Dialect,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    cast,
    text,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP
from sqlalchemy.types import TypeEngine, UserDefinedType

from jobkit.jobs import JobState

__all__ = ["BIG_ID", "JSON_TEXT", "Tables", "UTCDateTime", "from_text", "tables_for", "to_text"]

_JSON: Final = msgspec.json.Encoder().encode


def to_text(moment: datetime) -> str:
    """The form of an instant as text: UTC, to the microsecond, fixed width, so that it sorts as it passes.

    Raises ValueError for a naive datetime.
    """
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone cannot be stored: {moment!r}")
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    if moment.microsecond:  # then the JSON encoder writes this very form, ten times as fast
        return _JSON(moment)[1:-1].decode()
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def from_text(value: str) -> datetime:
    """The aware UTC instant that `to_text` wrote."""
    return datetime.fromisoformat(value)


class UTCDateTime(TypeDecorator[datetime]):
    """An exact instant: `timestamptz` on Postgres, fixed-width text that sorts elsewhere; read as aware
    UTC.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """`timestamptz` where the database has it."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(TIMESTAMP(timezone=True))
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> object:
        """Refuses naive datetimes with ValueError."""
        if value is None:
            return None
        if dialect.name != "postgresql":
            return to_text(value)
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone cannot be stored: {value!r}")
        return value

    def process_result_value(self, value: object, dialect: Dialect) -> datetime | None:
        """Always aware UTC, whatever the session's zone is."""
        if isinstance(value, str):
            return from_text(value)
        return value.astimezone(UTC) if isinstance(value, datetime) else None


class _JSONBText(UserDefinedType[str]):
    """JSONB in the table, text on our side of it: the driver never decodes what only the executor needs."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "JSONB"

    def bind_expression(self, bindvalue: ColumnElement[str]) -> ColumnElement[str]:
        return cast(type_coerce(bindvalue, Text()), JSONB())

    def column_expression(self, column: ColumnElement[str]) -> ColumnElement[str]:
        return cast(column, Text())


JSON_TEXT: Final[TypeEngine[str]] = Text().with_variant(_JSONBText(), "postgresql")
"""A JSON column that is written and read as text."""

BIG_ID: Final = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits everywhere; SQLite only numbers rows by itself where the type is spelled INTEGER."""

_STATES: Final = ", ".join(f"'{state.value}'" for state in JobState)
_FINAL_TIMES: Final = ("completed_at", "cancelled_at", "discarded_at")


def _id_column() -> Column[int]:
    return Column("id", BIG_ID, Identity(always=False), primary_key=True)


def _when(name: str, *, null: bool = False) -> Column[datetime]:
    return Column(name, UTCDateTime(), nullable=null)


def _words(name: str, default: str | None = None, *, null: bool = False) -> Column[str]:
    return Column(
        name, Text(), nullable=null, server_default=None if default is None else text(f"'{default}'")
    )


def _number(name: str, default: int | None = None, *, null: bool = False) -> Column[int]:
    return Column(
        name, Integer(), nullable=null, server_default=None if default is None else text(str(default))
    )


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean(), nullable=False, server_default=text("false"))


def _json(name: str, default: str | None = None, *, null: bool = False) -> Column[str]:
    server = None if default is None else text(f"'{default}'")
    return Column(name, JSON_TEXT, nullable=null, server_default=server)


class Tables:
    """All tables of one jobkit: `jobs`, `queues`, `nodes`, `workers`, `entries`, `executions`, `operations`,
    `audit`.

    `prefix` stands before each name (may be empty), `schema` is a Postgres schema or None.
    """

    def __init__(self, prefix: str, schema: str | None) -> None:
        self.prefix: Final = prefix
        self.schema: Final = schema
        self.metadata: Final = MetaData(schema=schema)
        self.jobs: Final = self._jobs()
        self.queues: Final = self._queues()
        self.nodes: Final = self._nodes()
        self.workers: Final = self._workers()
        self.entries: Final = self._entries()
        self.executions: Final = self._executions()
        self.operations: Final = self._operations()
        self.audit: Final = self._audit()

    def _table(self, name: str, *parts: Column[Any] | CheckConstraint | UniqueConstraint) -> Table:
        return Table(self.prefix + name, self.metadata, *parts, sqlite_autoincrement="id" in _names(parts))

    def _index(
        self, name: str, *columns: Column[Any], where: str | None = None, unique: bool = False
    ) -> None:
        condition = None if where is None else text(where)
        Index(self.prefix + name, *columns, unique=unique, postgresql_where=condition, sqlite_where=condition)

    def _jobs(self) -> Table:
        jobs = self._table(
            "jobs",
            _id_column(),
            _words("state"),
            _words("queue", "default"),
            _words("worker"),
            _json("args"),
            _json("meta", "{}"),
            _json("tags", "[]"),
            _json("errors", "[]"),
            _number("attempt", 0),
            _number("max_attempts", 20),
            Column("priority", SmallInteger(), nullable=False, server_default=text("0")),
            _words("unique_key", null=True),
            _words("attempted_by", null=True),
            _when("inserted_at"),
            _when("scheduled_at"),
            _when("attempted_at", null=True),
            *(_when(name, null=True) for name in _FINAL_TIMES),
            CheckConstraint(f"state IN ({_STATES})", name=f"{self.prefix}jobs_state_check"),
        )
        self._job_indexes(jobs)
        return jobs

    def _job_indexes(self, jobs: Table) -> None:
        c = jobs.c
        claim = (c.queue, c.priority, c.scheduled_at, c.id)
        self._index("jobs_claim_idx", *claim, where="state = 'available'")
        self._index("jobs_staging_idx", c.scheduled_at, c.id, where="state IN ('scheduled', 'retryable')")
        self._index("jobs_executing_idx", c.attempted_by, c.attempted_at, c.id, where="state = 'executing'")
        self._index("jobs_unique_key_key", c.unique_key, where="unique_key IS NOT NULL", unique=True)
        for name in _FINAL_TIMES:  # pruning, and the lists of finished jobs by the time they finished
            state = name.removesuffix("_at")
            self._index(f"jobs_{state}_idx", c[name], c.id, where=f"state = '{state}'")

    def _queues(self) -> Table:
        return self._table(
            "job_queues",
            Column("name", Text(), primary_key=True),
            _flag("paused"),
            _when("paused_until", null=True),
            _words("reason", null=True),
            _words("paused_by", null=True),
            _number("limit_override", null=True),
            _json("node_limits", "{}"),
            _number("version", 0),
            _when("updated_at"),
        )

    def _nodes(self) -> Table:
        return self._table(
            "job_nodes",
            Column("node", Text(), primary_key=True),
            _json("queues", "{}"),
            _when("started_at"),
            _when("heartbeat_at"),
            Column("beat", BigInteger(), nullable=False, server_default=text("0")),
            _when("lost_at", null=True),
            _json("wanted", "{}"),
            _json("info", "{}"),
        )

    def _workers(self) -> Table:
        return self._table(
            "job_workers",
            Column("name", Text(), primary_key=True),
            _when("last_seen_at"),
            _json("config", "{}"),
        )

    def _entries(self) -> Table:
        return self._table(
            "recurring_entries",
            Column("key", Text(), primary_key=True),
            _words("cron"),
            _words("timezone"),
            _words("worker"),
            _when("since"),
            _flag("paused"),
            _words("reason", null=True),
            _words("paused_by", null=True),
            _when("last_run_at", null=True),
            _when("updated_at"),
        )

    def _executions(self) -> Table:
        name = f"{self.prefix}recurring_executions_key_run_at_key"
        return self._table(
            "recurring_executions",
            _id_column(),
            _words("key"),
            _when("run_at"),
            Column("job_id", BigInteger(), nullable=True),
            _when("inserted_at"),
            UniqueConstraint("key", "run_at", name=name),
        )

    def _operations(self) -> Table:
        operations = self._table(
            "job_operations",
            _id_column(),
            _words("one_time_key", null=True),
            _words("actor"),
            _words("action"),
            _json("params", "{}"),
            _words("query", null=True),
            Column("max_id", BigInteger(), nullable=True),
            _words("state", "pending"),
            Column("total", BigInteger(), nullable=True),
            *(Column(n, BigInteger(), nullable=False, server_default=text("0")) for n in _COUNTS),
            _json("results", "[]"),
            _words("error", null=True),
            _flag("cancel_requested"),
            _words("lease_by", null=True),
            _when("lease_until", null=True),
            _when("created_at"),
            _when("updated_at"),
            _when("finished_at", null=True),
            CheckConstraint(
                "state IN ('pending', 'running', 'done', 'cancelled', 'failed')",
                name=f"{self.prefix}job_operations_state_check",
            ),
            UniqueConstraint("one_time_key", name=f"{self.prefix}job_operations_one_time_key_key"),
        )
        self._index("job_operations_open_idx", operations.c.id, where="state IN ('pending', 'running')")
        return operations

    def _audit(self) -> Table:
        audit = self._table(
            "job_audit",
            _id_column(),
            _when("at"),
            _words("actor"),
            _words("via"),
            _words("action"),
            _words("target_kind", null=True),
            _json("ids", "[]"),
            Column("count", BigInteger(), nullable=True),
            _words("query", null=True),
            _json("before", null=True),
            _json("after", null=True),
            _words("result", null=True),
            _words("reason", null=True),
            Column("operation_id", BigInteger(), nullable=True),
            _words("request_id", null=True),
        )
        self._index("job_audit_at_idx", audit.c.at, audit.c.id)
        return audit


_COUNTS: Final = ("done", "skipped", "failed")


def _names(parts: tuple[object, ...]) -> set[str]:
    return {part.name for part in parts if isinstance(part, Column)}


@lru_cache(maxsize=64)
def tables_for(prefix: str = "jobkit_", schema: str | None = None) -> Tables:
    """The tables behind that prefix and schema; the same object for the same names."""
    return Tables(prefix, schema)
