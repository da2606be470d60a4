"""`jobkit migrate`: makes and updates the tables, or prints the SQL for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.confirm import confirm
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Group
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.words import many

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core
    from jobkit.storage.migrations import Applied, Migrations, Status

__all__ = ["SHAPES", "migrate"]

OWN: Final = "jobkit"
"""Under which name the tables of jobkit itself are migrated."""

_STEP: Final = (
    Field("name", help="`jobkit`, or the plugin that the step belongs to", column="of"),
    Field("version", "integer", help="the step's number", column="version"),
    Field("title", help="what it does", column="step"),
)
STATUS: Final = Shape(
    "migrate.status",
    (*_STEP, Field("applied_at", "time", help="null while it is pending", column="applied", nullable=True)),
    title="Migration steps",
)
APPLIED: Final = Shape(
    "migrate.applied", _STEP, title="Steps that were applied or undone", extra=(Field("seconds", "number"),)
)
SQL: Final = Shape(
    "migrate.sql",
    (
        Field("dialect", help="sqlite or postgresql"),
        Field("sql", help="all statements, in order, each with a semicolon"),
    ),
    listing=False,
    title="The steps as SQL",
)
SHAPES: Final = (STATUS, APPLIED, SQL)

_to = click.option("--to", type=click.IntRange(0), metavar="N", help="The version to stop at.")
_plugin = click.option("--plugin", metavar="NAME", help="Only this plugin's tables; `jobkit` means its own.")
_dry = click.option("--dry-run", is_flag=True, help="Print what would be done.")
_show = click.option("--show-sql", is_flag=True, help="Print the SQL on stderr.")


@click.group(cls=Group, default="up")
def migrate() -> None:
    """Make or update the tables of jobkit and of plugins; without a verb: up. Safe to run from many processes."""


@migrate.command(
    "up",
    cls=Command,
    examples=[
        ("jobkit migrate", "Bring all tables to the newest version."),
        ("jobkit migrate --check", "Exit code 9 where a step is pending; changes nothing."),
    ],
)
@_to
@_plugin
@_dry
@_show
@click.option("--check", is_flag=True, help="Change nothing; exit 9 where a step is pending.")
@click.pass_context
def up(
    ctx: click.Context, to: int | None, plugin: str | None, dry_run: bool, show_sql: bool, check: bool
) -> None:
    """Apply all pending steps, each in a transaction of its own, under a lock."""
    session = session_of(ctx)
    pending = [step for step in _status(session, plugin) if step.applied_at is None and _within(step, to)]
    if check or dry_run:
        session.out.items(APPLIED, pending, empty="nothing is pending")
        if check and pending:
            raise CommandError(
                f"{many(len(pending), 'step')} {'is' if len(pending) == 1 else 'are'} pending",
                ExitCode.SCHEMA,
                hint="jobkit migrate",
            )
        return
    from jobkit.storage import migrations

    core, owners = session.app, _owners(session.app, plugin)
    _report(session, "applied", lambda: migrations.up(core.engine, core.tables, owners, to=to), show_sql)


@migrate.command(
    "down",
    cls=Command,
    examples=[
        ("jobkit migrate down --to 1", "Undo jobkit's own steps above version 1."),
        ("jobkit migrate down --plugin acme --to 0 --yes", "Remove a plugin's tables."),
    ],
)
@click.option(
    "--to",
    type=click.IntRange(0),
    required=True,
    metavar="N",
    help="The version to go back to; 0 removes all.",
)
@_plugin
@_dry
@_show
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def down(ctx: click.Context, to: int, plugin: str | None, dry_run: bool, show_sql: bool, yes: bool) -> None:
    """Undo steps, newest first. Tables and the jobs in them are lost with the steps that made them."""
    session = session_of(ctx)
    name = plugin or OWN
    undone = [
        step
        for step in reversed(_status(session, None))
        if step.applied_at is not None
        and (step.version > to if step.name == name else name == OWN and to == 0)
    ]
    if dry_run or not undone:
        session.out.items(APPLIED, undone, empty="nothing to undo")
        return
    confirm(session, f"undo {many(len(undone), 'step')}; data in what they made is lost", yes=yes)
    from jobkit.storage import migrations

    core, owners = session.app, _owners(session.app, plugin)
    _report(
        session,
        "undone",
        lambda: migrations.down(core.engine, core.tables, to, plugins=owners, name=name),
        show_sql,
    )


@migrate.command(
    "status", cls=Command, examples=[("jobkit migrate status", "Every step, and when it was applied.")]
)
@_plugin
@click.pass_context
def status(ctx: click.Context, plugin: str | None) -> None:
    """List all known steps with the time each was applied."""
    session = session_of(ctx)
    found = _status(session, plugin)
    pending = sum(step.applied_at is None for step in found)
    session.out.items(STATUS, found, footer=f"{pending} pending: jobkit migrate" if pending else "up to date")


@migrate.command(
    "sql",
    cls=Command,
    examples=[
        ("jobkit migrate sql > jobkit.sql", "All statements, for the configured kind of database."),
        ("jobkit migrate sql --from 1", "Only what comes after version 1 of jobkit's own steps."),
    ],
)
@click.option(
    "--from",
    "start",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Leave out jobkit's steps up to N.",
)
@click.option("--dialect", type=click.Choice(["sqlite", "postgresql"]), help="Instead of the configured one.")
@_plugin
@click.pass_context
def sql(ctx: click.Context, start: int, dialect: str | None, plugin: str | None) -> None:
    """Print the steps as SQL; touches no database."""
    from jobkit.storage import migrations
    from jobkit.storage.schema import tables_for

    session = session_of(ctx)
    core = session.app
    kind = dialect or core.dialect
    tables = tables_for(core.config.table_prefix, core.config.schema if kind == "postgresql" else None)
    text = migrations.sql(kind, tables, _owners(core, plugin), start=start).rstrip()
    if session.out.json:
        session.out.item(SQL, {"dialect": kind, "sql": text})
    else:
        session.out.write(text)


# -- helpers


def _owners(core: Core, plugin: str | None) -> list[Migrations]:
    """The plugins' migrations that are wanted; jobkit's own always come along."""
    owners = core.migrations()
    if plugin is None:
        return owners
    if plugin != OWN and plugin not in {owner.name for owner in owners}:
        raise CommandError(f"no plugin {plugin!r} brings tables", ExitCode.NOT_FOUND)
    return [owner for owner in owners if owner.name == plugin]


def _status(session: Session, plugin: str | None) -> list[Status]:
    from jobkit.storage import migrations

    core = session.app
    owners = _owners(core, plugin)
    with _looking(session, core) as conn:
        found = migrations.status(conn, core.tables, owners)
    return [step for step in found if plugin is None or step.name == plugin]


@contextmanager
def _looking(session: Session, core: Core) -> Iterator[Connection]:
    """A connection that changes nothing; of a SQLite file that is not there yet, one to an empty database."""
    from sqlalchemy import create_engine

    from jobkit.admin._sqlite_files import file_of
    from jobkit.admin.guard import read_only

    file = file_of(core.engine.url)
    if file is None or file.exists():
        with read_only(core, session.given.db_timeout or timedelta(seconds=10)) as conn:
            yield conn
        return
    engine = create_engine("sqlite://")
    with engine.connect() as conn:
        yield conn
    engine.dispose()


def _within(step: Status, to: int | None) -> bool:
    return to is None or step.name != OWN or step.version <= to


def _report(session: Session, word: str, work: object, show_sql: bool) -> None:
    started = time.monotonic()
    with _echoing(session, show_sql):
        done: Sequence[Applied] = work() if callable(work) else ()
    seconds = time.monotonic() - started
    if not session.out.human:
        session.out.items(
            APPLIED, done, extra={"seconds": round(seconds, 3)}, empty="everything is up to date"
        )
        return
    for step in done:
        session.out.note(f"✓ {step.name} {step.version} {word}: {step.title}")
    session.out.note(
        f"{many(len(done), 'step')} {word} in {seconds:.1f} s" if done else "everything is up to date"
    )


@contextmanager
def _echoing(session: Session, wanted: bool) -> Iterator[None]:
    """Print each statement on stderr while it runs."""
    if not wanted:
        yield
        return
    from sqlalchemy import event

    def tell(conn: object, cursor: object, statement: str, *rest: object) -> None:
        session.out.note(f"{statement.strip()};")

    engine = session.app.engine
    event.listen(engine, "before_cursor_execute", tell)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", tell)
