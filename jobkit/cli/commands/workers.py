"""`jobkit workers`: what this installation registers, and what nodes have been seen with."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.completing import complete
from jobkit.cli.errors import CommandError, failure_of
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Group
from jobkit.cli.output import Output
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.words import many

if TYPE_CHECKING:
    from jobkit.admin.views import WorkerFigures, WorkerView
    from jobkit.registry import Registry, WorkerEntry
    from jobkit.workers import Worker

__all__ = ["SHAPES", "workers"]


@dataclass(frozen=True, slots=True)
class Row:
    """One worker name, as this process and the database know it."""

    name: str
    registered: bool
    place: str | None = None
    distribution: str | None = None
    version: str | None = None
    queue: str | None = None
    max_attempts: int | None = None
    priority: int | None = None
    timeout: timedelta | None = None
    unique: str | None = None
    runner: str | None = None
    schedules: tuple[str, ...] = ()
    doc: str = ""
    error: str = ""
    seen_at: datetime | None = None
    live: bool = False
    missing: bool = False
    figures: WorkerFigures | None = None

    @property
    def status(self) -> str:
        """In one word."""
        if self.error:
            return "broken"
        if self.missing:
            return "missing"
        return "registered" if self.registered else "seen"


def _figure(state: str, column: str) -> Field:
    return Field(
        f"{state}_24h",
        "count",
        get=lambda w: getattr(w.figures, state, None),
        help=f"jobs that ended as {state} within 24 hours; null where the database was not asked",
        column=column,
        nullable=True,
    )


_STYLES: Final = {"broken": "red", "missing": "red", "seen": "dim"}
_FIELDS: Final = (
    Field("name", help="the permanent name that jobs refer to", column="name"),
    Field(
        "status",
        help="registered, seen (by nodes only), missing (jobs wait for it, no node has it) or broken",
        column="status",
        style=lambda w: _STYLES.get(w.status, ""),
    ),
    Field("queue", help="its default queue", column="queue", nullable=True),
    Field(
        "max_attempts", "integer", help="attempts before a job is discarded", column="attempts", nullable=True
    ),
    Field("priority", "integer", help="0 is first", nullable=True),
    Field(
        "timeout",
        "seconds",
        help="limit of one run; null for none or unknown",
        column="timeout",
        nullable=True,
    ),
    Field("unique", help="what makes its jobs unique", nullable=True),
    Field("runner", help="loop, thread or process", nullable=True),
    Field(
        "distribution", help="what brings it; null for workers in code", column="distribution", nullable=True
    ),
    Field("version", help="of the distribution", column="version", nullable=True),
    Field("place", help="where it is defined", nullable=True),
    Field("schedules", "list", help="keys of recurring entries that make its jobs"),
    Field("doc", help="the first line of its docstring", column="about"),
    Field("registered", "boolean", help="whether this installation knows it"),
    Field("live", "boolean", help="whether a living node published it"),
    Field("seen_at", "time", help="when a node last published it", nullable=True),
    Field("missing", "boolean", help="whether jobs wait for it and no living node has it"),
    *(_figure(state, column) for state, column in (("completed", "done 24h"), ("discarded", "failed 24h"))),
    Field("error", help="why it cannot be imported here"),
)
LIST: Final = Shape("workers.list", _FIELDS, title="Workers")
SHOW: Final = Shape("workers.show", _FIELDS, listing=False, title="One worker")
SHAPES: Final = (LIST, SHOW)


@click.group(cls=Group)
def workers() -> None:
    """List and show workers: those of installed distributions and the app, and those that nodes were seen with."""


@workers.command(
    "list",
    cls=Command,
    examples=[
        ("jobkit workers", "All workers with distribution and version."),
        ("jobkit workers list --missing", "Workers that jobs wait for and no node has; exit code 10 if any."),
    ],
)
@click.option("--registered", "only", flag_value="registered", help="Only what this installation registers.")
@click.option("--seen", "only", flag_value="seen", help="Only what the database knows; imports nothing.")
@click.option(
    "--missing", is_flag=True, help="Only workers that jobs wait for and no node has; exit 10 if any."
)
@click.pass_context
def list_(ctx: click.Context, only: str | None, missing: bool) -> None:
    """List workers by name."""
    session = session_of(ctx)
    rows = _rows(session, only, needs_database=missing or only == "seen")
    found = [row for row in rows if not missing or row.missing]
    session.out.items(LIST, found, empty="no worker is missing" if missing else "no workers are known")
    if missing and found:
        verb = "is" if len(found) == 1 else "are"
        raise CommandError(f"{many(len(found), 'worker')} {verb} missing", ExitCode.PROBLEMS)


@workers.command(
    "show",
    cls=Command,
    examples=[("jobkit workers show send_welcome_email", "Its settings and where it is.")],
)
@click.argument("name", shell_complete=complete("workers"))
@click.pass_context
def show(ctx: click.Context, name: str) -> None:
    """Show one worker."""
    session = session_of(ctx)
    row = next((row for row in _rows(session, None, needs_database=False) if row.name == name), None)
    if row is None:
        raise CommandError(
            f"no worker {name!r} is known", ExitCode.NOT_FOUND, hint="list them: jobkit workers"
        )
    session.out.item(SHOW, row, lambda out: _draw(out, row))


def _draw(out: Output, row: Row) -> None:
    shown = {field.name: field.value(row) for field in SHOW.fields}
    out.pairs({name: value for name, value in shown.items() if value not in (None, "", ())})


def _rows(session: Session, only: str | None, *, needs_database: bool) -> list[Row]:
    registered = {} if only == "seen" else _registered(session.app.registry)
    if only == "registered":
        return [registered[name] for name in sorted(registered)]
    seen, figures = _seen(session, needs_database)
    names = sorted({*registered, *seen})
    rows = [_merged(name, registered.get(name), seen.get(name)) for name in names]
    if figures is None:
        return rows
    from jobkit.admin.views import Count, WorkerFigures

    none = WorkerFigures(Count(0), Count(0), Count(0))
    return [replace(row, figures=figures.get(row.name, none)) for row in rows]


def _registered(registry: Registry) -> dict[str, Row]:
    keys: dict[str, list[str]] = {}
    for entry in registry.schedules():
        job = entry.recurring.job
        named = getattr(getattr(type(job), "__jobkit__", None), "name", None) or getattr(job, "worker", None)
        if isinstance(named, str):
            keys.setdefault(named, []).append(entry.recurring.key)
    return {
        name: _known(registry, entry, tuple(keys.get(name, ())))
        for name, entry in dict(registry.workers).items()
    }


def _known(registry: Registry, entry: WorkerEntry, schedules: tuple[str, ...]) -> Row:
    row = Row(entry.name, True, place=entry.place, distribution=entry.distribution, version=entry.version)
    try:
        cls = registry.resolve(entry.name)
    except Exception as error:  # noqa: BLE001 - importing a worker may raise anything
        return replace(row, error=str(error))
    if cls is None:
        return row
    config = cls.__jobkit__
    return replace(
        row,
        place=config.place,
        queue=config.queue,
        max_attempts=config.max_attempts,
        priority=config.priority,
        timeout=config.timeout,
        unique=None if config.unique is None else str(config.unique),
        runner=config.runner,
        schedules=schedules,
        doc=_first_line(cls),
    )


def _first_line(cls: type[Worker]) -> str:
    text = cls.__dict__.get("__doc__") or getattr(getattr(cls, "fn", None), "__doc__", None) or ""
    lines = inspect.cleandoc(text).splitlines()
    return "" if not lines or lines[0].startswith(f"{cls.__name__}(") else lines[0]


def _seen(session: Session, needed: bool) -> tuple[dict[str, WorkerView], dict[str, WorkerFigures] | None]:
    """What the database knows; where it cannot be asked, that is a remark unless it is needed."""
    try:
        return {view.name: view for view in session.reads.workers()}, session.reads.worker_figures()
    except Exception as error:
        if needed:
            raise
        session.out.note(f"only what is installed here: {session.redact(failure_of(error).message)}")
        return {}, None


def _merged(name: str, row: Row | None, view: WorkerView | None) -> Row:
    if view is None:
        return row or Row(name, False)
    if row is None or row.error:
        timeout, attempts, queue = (view.config.get(key) for key in ("timeout", "max_attempts", "queue"))
        row = replace(
            row or Row(name, view.registered, error=view.error),
            queue=str(queue) if queue else None,
            max_attempts=attempts if isinstance(attempts, int) else None,
            timeout=timedelta(seconds=timeout) if isinstance(timeout, (int, float)) else None,
        )
    return replace(row, seen_at=view.seen_at, live=view.live, missing=view.missing)
