"""Applying, undoing, listing and printing migrations.

Invariant: looking at the version table and applying the step happen under one lock and, for transactional
steps, in one transaction; a migration started twice does nothing the second time.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from jobkit.errors import ConfigError, NotMigrated
from jobkit.storage.engine import atomic, reading
from jobkit.storage.faults import retrying
from jobkit.storage.migrations.core import CORE
from jobkit.storage.migrations.steps import Migrations, Step
from jobkit.storage.schema import Tables, UTCDateTime, tables_for

if TYPE_CHECKING:
    from alembic.operations import Operations

__all__ = [
    "Applied",
    "Status",
    "check",
    "down",
    "downgrade",
    "migrate_if_empty",
    "sql",
    "status",
    "up",
    "upgrade",
]

REMEDY: Final = "run `jobkit migrate up`"
_LOCK_WAIT: Final = 300.0
_DDL_WAIT: Final = "5s"
"""How long a step waits for a table's lock before it lets everybody else pass and tries again (Postgres)."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One step that was just applied or undone."""

    name: str
    version: int
    title: str


@dataclass(frozen=True, slots=True)
class Status:
    """One known step; `applied_at` is None while it is pending."""

    name: str
    version: int
    title: str
    applied_at: datetime | None


def up(
    bind: Engine | Connection, tables: Tables, plugins: Sequence[Migrations] = (), *, to: int | None = None
) -> list[Applied]:
    """Applies all pending steps (of the core only up to version `to`); returns what it did.

    With an Engine each step is a transaction of its own; with a Connection all run in its transaction.
    """
    done: list[Applied] = []
    for owner in _lists(plugins):
        target = owner.head if to is None or owner is not CORE else min(to, owner.head)
        for step in owner.steps[:target]:
            if _locked(bind, tables, owner, step, wanted=True):
                done.append(Applied(owner.name, step.version, step.title))
    return done


def down(
    bind: Engine | Connection,
    tables: Tables,
    to: int = 0,
    *,
    plugins: Sequence[Migrations] = (),
    name: str | None = None,
) -> list[Applied]:
    """Undoes applied steps above version `to`, newest first, of the core or of the plugin `name`.

    The core's tables carry the others: `to=0` of the core undoes the plugins' steps first.
    """
    owners = _undone(plugins, name, to)
    done: list[Applied] = []
    for owner, lowest in owners:
        for step in reversed(owner.steps[lowest:]):
            if _locked(bind, tables, owner, step, wanted=False):
                done.append(Applied(owner.name, step.version, step.title))
    return done


def _undone(plugins: Sequence[Migrations], name: str | None, to: int) -> list[tuple[Migrations, int]]:
    if name is None or name == CORE.name:
        first = [(owner, 0) for owner in reversed(plugins)] if to == 0 else []
        return [*first, (CORE, to)]
    for owner in plugins:
        if owner.name == name:
            return [(owner, to)]
    raise ConfigError(f"no migrations are known by the name {name!r}")


def status(conn: Connection, tables: Tables, plugins: Sequence[Migrations] = ()) -> list[Status]:
    """All known steps, the core's first, with the time each was applied."""
    applied = _applied(conn, tables)
    return [
        Status(owner.name, step.version, step.title, applied.get((owner.name, step.version)))
        for owner in _lists(plugins)
        for step in owner.steps
    ]


def check(conn: Connection, tables: Tables, plugins: Sequence[Migrations] = ()) -> None:
    """Raises NotMigrated, naming the remedy, unless every known step is applied."""
    pending = [step for step in status(conn, tables, plugins) if step.applied_at is None]
    if not pending:
        return
    what = ", ".join(f"{step.name} version {step.version} ({step.title})" for step in pending)
    where = f"{tables.schema + '.' if tables.schema else ''}{tables.prefix}jobs"
    raise NotMigrated(f"the database of {where} lacks {what}; {REMEDY}")


def migrate_if_empty(engine: Engine, tables: Tables, plugins: Sequence[Migrations] = ()) -> list[Applied]:
    """Migrates a SQLite file that holds no table at all; leaves every other database alone.

    Looks first without the write lock, then applies all steps in one transaction: a file is empty or whole.
    """
    if engine.dialect.name != "sqlite" or not _empty(engine):
        return []
    return retrying(lambda: _filled(engine, tables, plugins), deadline=_LOCK_WAIT)


def _empty(engine: Engine) -> bool:
    with engine.connect() as conn, reading(conn):
        return (
            conn.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE type = 'table' LIMIT 1").first() is None
        )


def _filled(engine: Engine, tables: Tables, plugins: Sequence[Migrations]) -> list[Applied]:
    with engine.begin() as conn:
        return up(conn, tables, plugins)


def sql(dialect_name: str, tables: Tables, plugins: Sequence[Migrations] = (), *, start: int = 0) -> str:
    """The SQL of all steps, the core's from above version `start`, for that dialect; touches no database."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    out = io.StringIO()
    context = MigrationContext.configure(
        dialect_name=dialect_name, opts={"as_sql": True, "output_buffer": out, "literal_binds": True}
    )
    op = Operations(context)
    out.write("BEGIN;\n\n")
    if start == 0:
        if tables.schema and dialect_name == "postgresql":
            op.execute(sa.schema.CreateSchema(tables.schema, if_not_exists=True))
        op.create_table(_versions(tables).name, *_version_columns(), schema=tables.schema)
    for owner in _lists(plugins):
        for step in owner.steps[start if owner is CORE else 0 :]:
            out.write(f"-- {owner.name} {step.version}: {step.title}\n\n")
            step.up(op, tables)
            op.execute(_versions(tables).insert().values(_record(owner, step)))
    out.write("COMMIT;\n")
    return out.getvalue()


def upgrade(
    bind: Connection, *, prefix: str = "jobkit_", schema: str | None = None, to: int | None = None
) -> None:
    """The core's steps, from inside a user's own Alembic migration: `upgrade(op.get_bind())`."""
    up(bind, tables_for(prefix, schema), to=to)


def downgrade(bind: Connection, *, prefix: str = "jobkit_", schema: str | None = None, to: int = 0) -> None:
    """Undoes the core's steps above `to`, from inside a user's own Alembic migration."""
    down(bind, tables_for(prefix, schema), to)


# --- one step


def _lists(plugins: Sequence[Migrations]) -> list[Migrations]:
    names = [CORE.name, *(owner.name for owner in plugins)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"migrations: the name {sorted(twice)[0]!r} is used twice")
    return [CORE, *plugins]


def _locked(
    bind: Engine | Connection, tables: Tables, owner: Migrations, step: Step, *, wanted: bool
) -> bool:
    """Applies or undoes one step unless that is done already; True if it did."""
    if isinstance(bind, Connection):
        with atomic(bind):
            return _turn(bind, tables, owner, step, wanted=wanted)
    with bind.connect() as conn:
        if step.transactional or conn.dialect.name != "postgresql":
            return retrying(lambda: _in_transaction(conn, tables, owner, step, wanted), deadline=_LOCK_WAIT)
        with _session_lock(bind, tables):
            return _outside_transaction(conn, tables, owner, step, wanted)


def _in_transaction(conn: Connection, tables: Tables, owner: Migrations, step: Step, wanted: bool) -> bool:
    with conn.begin():
        return _turn(conn, tables, owner, step, wanted=wanted)


def _turn(conn: Connection, tables: Tables, owner: Migrations, step: Step, *, wanted: bool) -> bool:
    """Under the lock: look, and do."""
    _lock(conn, tables)
    _make_version_table(conn, tables)
    if ((owner.name, step.version) in _applied(conn, tables)) is wanted:
        return False
    if conn.dialect.name == "postgresql" and not in_savepoint(conn):
        conn.exec_driver_sql(f"SET LOCAL lock_timeout = '{_DDL_WAIT}'")
    (step.up if wanted else step.down)(_operations(conn), tables)
    _note(conn, tables, owner, step, wanted)
    return True


def in_savepoint(conn: Connection) -> bool:
    """Whether the caller works in a savepoint, where settings would outlive our part."""
    return conn.in_nested_transaction()


def _outside_transaction(
    conn: Connection, tables: Tables, owner: Migrations, step: Step, wanted: bool
) -> bool:
    with conn.begin():
        _make_version_table(conn, tables)
        if ((owner.name, step.version) in _applied(conn, tables)) is wanted:
            return False
    conn.execution_options(isolation_level="AUTOCOMMIT")
    (step.up if wanted else step.down)(_operations(conn), tables)
    _note(conn, tables, owner, step, wanted)
    conn.rollback()
    return True


def _operations(conn: Connection) -> Operations:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    return Operations(MigrationContext.configure(conn))


def _note(conn: Connection, tables: Tables, owner: Migrations, step: Step, wanted: bool) -> None:
    versions = _versions(tables)
    if wanted:
        conn.execute(versions.insert().values(_record(owner, step)))
        return
    gone = (versions.c.name == owner.name) & (versions.c.version == step.version)
    conn.execute(versions.delete().where(gone))


def _record(owner: Migrations, step: Step) -> dict[str, object]:
    return {"name": owner.name, "version": step.version, "applied_at": datetime.now(UTC)}


# --- the lock and the version table


def _lock_key(tables: Tables) -> int:
    digest = hashlib.sha256(f"jobkit migrate {tables.schema}.{tables.prefix}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _lock(conn: Connection, tables: Tables) -> None:
    """SQLite's transaction holds the file's write lock already (BEGIN IMMEDIATE)."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_lock_key(tables)})")


@contextmanager
def _session_lock(engine: Engine, tables: Tables) -> Iterator[None]:
    with engine.connect() as conn, conn.begin():
        _lock(conn, tables)
        yield


def _version_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("version", sa.Integer(), primary_key=True),
        sa.Column("applied_at", UTCDateTime(), nullable=False),
    ]


def _versions(tables: Tables) -> sa.Table:
    return sa.Table(f"{tables.prefix}schema_versions", sa.MetaData(schema=tables.schema), *_version_columns())


def _make_version_table(conn: Connection, tables: Tables) -> None:
    if sa.inspect(conn).has_table(_versions(tables).name, schema=tables.schema):
        return
    schema = tables.schema if conn.dialect.name == "postgresql" else None
    if schema and not sa.inspect(conn).has_schema(schema):
        conn.execute(sa.schema.CreateSchema(schema, if_not_exists=True))
    _versions(tables).create(conn)


def _applied(conn: Connection, tables: Tables) -> dict[tuple[str, int], datetime]:
    versions = _versions(tables)
    with reading(conn):
        if not sa.inspect(conn).has_table(versions.name, schema=tables.schema):
            return {}
        return {(row[0], row[1]): row[2] for row in conn.execute(sa.select(versions))}
