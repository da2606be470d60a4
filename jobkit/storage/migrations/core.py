"""The core's own steps.

Invariant: a step describes its tables by itself, as they were in that version; the test that compares the
migrated database with `schema.py` keeps the two in agreement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from jobkit.storage.migrations.steps import Migrations, Step
from jobkit.storage.schema import BIG_ID, JSON_TEXT, UTCDateTime

if TYPE_CHECKING:
    from alembic.operations import Operations

    from jobkit.storage.schema import Tables

__all__ = ["CORE"]


def _id() -> sa.Column[Any]:
    return sa.Column("id", BIG_ID, sa.Identity(always=False), primary_key=True)


def _time(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, UTCDateTime(), nullable=null)


def _text(name: str, default: str | None = None, *, null: bool = False) -> sa.Column[Any]:
    server = None if default is None else sa.text(f"'{default}'")
    return sa.Column(name, sa.Text(), nullable=null, server_default=server)


def _json(name: str, default: str | None = None, *, null: bool = False) -> sa.Column[Any]:
    server = None if default is None else sa.text(f"'{default}'")
    return sa.Column(name, JSON_TEXT, nullable=null, server_default=server)


def _int(name: str, default: int | None = None, type_: Any = None, *, null: bool = False) -> sa.Column[Any]:
    server = None if default is None else sa.text(str(default))
    return sa.Column(name, type_ or sa.Integer(), nullable=null, server_default=server)


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.text("false"))


def _key(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), primary_key=True)


class _Maker:
    """Makes tables and indexes behind the prefix."""

    def __init__(self, op: Operations, tables: Tables) -> None:
        self.op: Final = op
        self.prefix: Final = tables.prefix
        self.schema: Final = tables.schema

    def table(self, name: str, *parts: Any) -> None:
        """One table; SQLite never uses an id again."""
        numbered = any(isinstance(part, sa.Column) and part.name == "id" for part in parts)
        self.op.create_table(self.prefix + name, *parts, schema=self.schema, sqlite_autoincrement=numbered)

    def index(
        self, name: str, table: str, columns: list[str], where: str | None, unique: bool = False
    ) -> None:
        """One index, partial if `where` is given."""
        condition = None if where is None else sa.text(where)
        self.op.create_index(
            self.prefix + name,
            self.prefix + table,
            columns,
            unique=unique,
            schema=self.schema,
            postgresql_where=condition,
            sqlite_where=condition,
        )


def _up_1(op: Operations, tables: Tables) -> None:
    make = _Maker(op, tables)
    _jobs_1(make)
    _fleet_1(make)
    _recurring_1(make)
    _administration_1(make)


def _jobs_1(make: _Maker) -> None:
    states = "'available', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled'"
    make.table(
        "jobs",
        _id(),
        _text("state"),
        _text("queue", "default"),
        _text("worker"),
        _json("args"),
        _json("meta", "{}"),
        _json("tags", "[]"),
        _json("errors", "[]"),
        _int("attempt", 0),
        _int("max_attempts", 20),
        _int("priority", 0, sa.SmallInteger()),
        _text("unique_key", null=True),
        _text("attempted_by", null=True),
        _time("inserted_at"),
        _time("scheduled_at"),
        _time("attempted_at", null=True),
        _time("completed_at", null=True),
        _time("cancelled_at", null=True),
        _time("discarded_at", null=True),
        sa.CheckConstraint(f"state IN ({states})", name=f"{make.prefix}jobs_state_check"),
    )
    waiting = "state IN ('scheduled', 'retryable')"
    claim = ["queue", "priority", "scheduled_at", "id"]
    make.index("jobs_claim_idx", "jobs", claim, "state = 'available'")
    make.index("jobs_staging_idx", "jobs", ["scheduled_at", "id"], waiting)
    make.index("jobs_executing_idx", "jobs", ["attempted_by", "attempted_at", "id"], "state = 'executing'")
    make.index("jobs_unique_key_key", "jobs", ["unique_key"], "unique_key IS NOT NULL", unique=True)
    for state in ("completed", "cancelled", "discarded"):
        make.index(f"jobs_{state}_idx", "jobs", [f"{state}_at", "id"], f"state = '{state}'")


def _fleet_1(make: _Maker) -> None:
    make.table(
        "job_queues",
        _key("name"),
        _flag("paused"),
        _time("paused_until", null=True),
        _text("reason", null=True),
        _text("paused_by", null=True),
        _int("limit_override", null=True),
        _json("node_limits", "{}"),
        _int("version", 0),
        _time("updated_at"),
    )
    make.table(
        "job_nodes",
        _key("node"),
        _json("queues", "{}"),
        _time("started_at"),
        _time("heartbeat_at"),
        _int("beat", 0, sa.BigInteger()),
        _time("lost_at", null=True),
        _json("wanted", "{}"),
        _json("info", "{}"),
    )
    make.table("job_workers", _key("name"), _time("last_seen_at"), _json("config", "{}"))


def _recurring_1(make: _Maker) -> None:
    make.table(
        "recurring_entries",
        _key("key"),
        _text("cron"),
        _text("timezone"),
        _text("worker"),
        _time("since"),
        _flag("paused"),
        _text("reason", null=True),
        _text("paused_by", null=True),
        _time("last_run_at", null=True),
        _time("updated_at"),
    )
    make.table(
        "recurring_executions",
        _id(),
        _text("key"),
        _time("run_at"),
        _int("job_id", None, sa.BigInteger(), null=True),
        _time("inserted_at"),
        sa.UniqueConstraint("key", "run_at", name=f"{make.prefix}recurring_executions_key_run_at_key"),
    )


def _administration_1(make: _Maker) -> None:
    make.table(
        "job_operations",
        _id(),
        _text("one_time_key", null=True),
        _text("actor"),
        _text("action"),
        _json("params", "{}"),
        _text("query", null=True),
        _int("max_id", None, sa.BigInteger(), null=True),
        _text("state", "pending"),
        _int("total", None, sa.BigInteger(), null=True),
        *(_int(name, 0, sa.BigInteger()) for name in ("done", "skipped", "failed")),
        _json("results", "[]"),
        _text("error", null=True),
        _flag("cancel_requested"),
        _text("lease_by", null=True),
        _time("lease_until", null=True),
        _time("created_at"),
        _time("updated_at"),
        _time("finished_at", null=True),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'done', 'cancelled', 'failed')",
            name=f"{make.prefix}job_operations_state_check",
        ),
        sa.UniqueConstraint("one_time_key", name=f"{make.prefix}job_operations_one_time_key_key"),
    )
    make.index("job_operations_open_idx", "job_operations", ["id"], "state IN ('pending', 'running')")
    make.table(
        "job_audit",
        _id(),
        _time("at"),
        _text("actor"),
        _text("via"),
        _text("action"),
        _text("target_kind", null=True),
        _json("ids", "[]"),
        _int("count", None, sa.BigInteger(), null=True),
        _text("query", null=True),
        _json("before", null=True),
        _json("after", null=True),
        _text("result", null=True),
        _text("reason", null=True),
        _int("operation_id", None, sa.BigInteger(), null=True),
        _text("request_id", null=True),
    )
    make.index("job_audit_at_idx", "job_audit", ["at", "id"], None)


_TABLES_1: Final = (
    "job_audit",
    "job_operations",
    "recurring_executions",
    "recurring_entries",
    "job_workers",
    "job_nodes",
    "job_queues",
    "jobs",
)


def _down_1(op: Operations, tables: Tables) -> None:
    for name in _TABLES_1:
        op.drop_table(tables.prefix + name, schema=tables.schema)


CORE: Final = Migrations("jobkit", (Step(1, "create the tables", _up_1, _down_1),))
"""The core's migrations; the first list of every run."""
