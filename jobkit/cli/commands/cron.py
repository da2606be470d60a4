"""`jobkit cron`: recurring jobs as the database knows them, and cron expressions by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.completing import complete
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Group
from jobkit.cli.output import Output
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.times import parse_time
from jobkit.cli.words import absolute

if TYPE_CHECKING:
    from jobkit.admin.results import CronChange
    from jobkit.admin.views import CronView
    from jobkit.schedules import CronExpression

__all__ = ["SHAPES", "cron"]

_STYLES: Final = {"active": "green", "paused": "yellow", "missed": "red", "invalid": "red"}
_ENTRY: Final = (
    Field("key", help="the entry's permanent key", column="key"),
    Field(
        "status",
        help="active, paused, missed or invalid",
        column="status",
        style=lambda c: _STYLES.get(c.status, ""),
    ),
    Field("cron", help="the expression", column="cron"),
    Field("timezone", help="the zone in which it is meant"),
    Field("words", help="the expression in words", column="when"),
    Field("worker", help="whose jobs it makes"),
    Field("next_run", "time", help="the next run", column="next", nullable=True),
    Field("next_runs", "list", help="further runs"),
    Field("last_run_at", "time", help="the last run", column="last", nullable=True),
    Field(
        "last_job_id",
        "integer",
        get=lambda c: c.last_run.job_id if c.last_run else None,
        help="the job that the last run made",
        nullable=True,
    ),
    Field(
        "last_state",
        get=lambda c: c.last_run.state if c.last_run else None,
        help="the state of that job",
        column="outcome",
        nullable=True,
    ),
    Field("since", "time", help="runs before that instant are none of its own"),
    Field("missed_at", "time", help="the due instant that has no run", nullable=True),
    Field("paused_reason", help="why it is paused"),
    Field("paused_by", help="who paused it", nullable=True),
    Field("problem", help="what is wrong with it"),
    Field("origin", help="which code declares it; null where this process knows none", nullable=True),
)
_HISTORY: Final = Field("history", "list", help="past runs, newest first")
LIST: Final = Shape("cron.list", _ENTRY, title="Recurring jobs")
SHOW: Final = Shape("cron.show", (*_ENTRY, _HISTORY), listing=False, title="One recurring job")
RUNS: Final = Shape(
    "cron.runs",
    (
        Field("key", help="the entry; empty for an expression", nullable=True),
        Field("at", "time", help="the instant", column="at", show=lambda run: absolute(run.at, UTC)),
        Field("local", help="the same in the expression's zone", column="local", whole=True),
        Field("note", help="what a change of the clock did to it", column="note"),
    ),
    title="Runs of a schedule",
)
VALID: Final = Shape(
    "cron.validate",
    (
        Field("cron", help="the expression"),
        Field("timezone", help="the zone"),
        Field("valid", "boolean", help="whether it can be used"),
        Field("words", help="it in words"),
        Field("next_run", "time", help="its next run; null for never", nullable=True),
        Field("problem", help="what is wrong with it"),
    ),
    listing=False,
    title="A cron expression",
)
CHANGE: Final = Shape(
    "cron.change",
    (
        Field("key", help="the entry"),
        Field("text", help="what was done"),
        Field("job_id", "integer", help="the job that was made", nullable=True),
        Field("duplicate", "boolean", help="whether a pending job stood for it already"),
    ),
    listing=False,
    title="What was done to a recurring job",
)
SHAPES: Final = (LIST, SHOW, RUNS, VALID, CHANGE)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as it is printed."""

    key: str | None
    at: datetime
    local: str
    note: str


@click.group(cls=Group)
def cron() -> None:
    """Recurring jobs: list, show, run, pause; and what an expression means."""


@cron.command(
    "list",
    cls=Command,
    examples=[
        ("jobkit cron", "All entries with next and last run."),
        ("jobkit cron list --declared", "Those of the installed code, without a database."),
    ],
)
@click.option("--declared", is_flag=True, help="What the app and plugins declare; needs no database.")
@click.pass_context
def list_(ctx: click.Context, declared: bool) -> None:
    """List recurring entries. The database has them from the first start of a node on."""
    session = session_of(ctx)
    found = _declared(session) if declared else list(session.reads.cron())
    hint = (
        "no entries declared" if declared else "no entries; nodes write them when they start (see --declared)"
    )
    session.out.items(LIST, found, empty=hint)


@cron.command(
    "show", cls=Command, examples=[("jobkit cron show nightly", "The entry, its next and past runs.")]
)
@click.argument("key", shell_complete=complete("crons"))
@click.option("--count", type=click.IntRange(1, 200), default=10, help="How many next runs.")
@click.pass_context
def show(ctx: click.Context, key: str, count: int) -> None:
    """Show one entry with its next and past runs."""
    session = session_of(ctx)
    view = session.reads.cron_entry(key, upcoming=count)
    session.out.item(SHOW, view, lambda out: _draw(out, view))


def _draw(out: Output, view: CronView) -> None:
    pairs: dict[str, object] = {
        "key": view.key,
        "cron": f"{view.cron} ({view.words})",
        "worker": view.worker,
        "status": " ".join(filter(None, (view.status, view.paused_reason, view.problem))),
        "since": view.since,
        "missed": view.missed_at,
        "origin": view.origin,
    }
    pairs |= {f"next {n}": at for n, at in enumerate(view.next_runs, 1)}
    pairs |= {
        f"run {out.time(run.run_at)}": f"job {run.job_id} {run.state or 'gone'}" if run.job_id else "no job"
        for run in view.history
    }
    out.pairs({name: value for name, value in pairs.items() if value is not None})


@cron.command(
    "next",
    cls=Command,
    examples=[
        ("jobkit cron next nightly --count 5", "The next five runs of an entry."),
        ("jobkit cron next --tz Europe/Paris", "The next runs of all entries, shown in that zone."),
    ],
)
@click.argument("keys", nargs=-1, shell_complete=complete("crons"))
@click.option("--count", type=click.IntRange(1, 1000), default=5, help="How many runs of each.")
@click.option("--declared", is_flag=True, help="Of what the app and plugins declare; needs no database.")
@click.pass_context
def next_(ctx: click.Context, keys: tuple[str, ...], count: int, declared: bool) -> None:
    """Print the next runs of entries, all of them without KEYS, in order of time."""
    session = session_of(ctx)
    views = _declared(session) if declared else list(session.reads.cron())
    known = {view.key for view in views}
    for key in keys:
        if key not in known:
            raise CommandError(
                f"there is no entry {key!r}", ExitCode.NOT_FOUND, hint="list them: jobkit cron"
            )
    rows = [
        row
        for view in views
        if (not keys or view.key in keys) and view.status not in ("paused", "invalid")
        for row in _runs(_expression(view.cron, view.timezone, view.key), session.now(), count, view.key)
    ]
    rows.sort(key=lambda row: row.at)
    shape = Shape(RUNS.name, (_with_column(RUNS.fields[0]), *RUNS.fields[1:]), title=RUNS.title)
    _print_runs(session, shape, rows)


@cron.command(
    "simulate",
    cls=Command,
    examples=[
        ("jobkit cron simulate '0 9 * * MON-FRI' --tz Europe/Paris", "When would it run?"),
        (
            "jobkit cron simulate '30 2 * * *' --tz Europe/Paris --from 2026-03-28 --count 3",
            "Across a clock change.",
        ),
    ],
)
@click.argument("expression")
@click.option("--count", type=click.IntRange(1, 10_000), default=10, help="How many runs.")
@click.option("--from", "start", metavar="TIME", help="From that time on (now).")
@click.option("--until", metavar="TIME", help="All runs before that time, instead of a number.")
@click.option("--key", default="", help="The entry's key, which decides what H means.")
@click.pass_context
def simulate(
    ctx: click.Context, expression: str, count: int, start: str | None, until: str | None, key: str
) -> None:
    """Print when an expression runs, in the zone of --tz (UTC), with what changes of the clock do."""
    session = session_of(ctx)
    parsed = _expression(expression, session.given.output.zone_name, key, usage=True)
    begin = _time(session, start, "--from") or session.now()
    end = _time(session, until, "--until")
    rows = _runs(parsed, begin, end or count, key or None)
    session.out.note(parsed.describe())
    _print_runs(session, RUNS, rows)


@cron.command(
    "validate",
    cls=Command,
    examples=[("jobkit cron validate '*/5 * * * *'", "Exit code 10 where it is wrong.")],
)
@click.argument("expression")
@click.option("--key", default="", help="The entry's key, which decides what H means.")
@click.pass_context
def validate(ctx: click.Context, expression: str, key: str) -> None:
    """Check an expression, in the zone of --tz: what it means and when it runs next."""
    from jobkit.errors import ScheduleError
    from jobkit.schedules import CronExpression

    session = session_of(ctx)
    found: dict[str, object] = {"cron": expression, "timezone": session.given.output.zone_name}
    try:
        parsed = CronExpression.parse(expression, key=key, timezone=session.given.output.zone_name)
    except ScheduleError as error:
        wrong = found | {"valid": False, "words": "", "next_run": None, "problem": str(error)}
        session.out.item(VALID, wrong)
        raise CommandError(str(error), ExitCode.PROBLEMS) from None
    upcoming = parsed.next_after(session.now())
    session.out.item(
        VALID, found | {"valid": True, "words": parsed.describe(), "next_run": upcoming, "problem": ""}
    )


@cron.command("run", cls=Command, examples=[("jobkit cron run nightly", "Enqueue its job now.")])
@click.argument("key", shell_complete=complete("crons"))
@click.option("--reason", default="", help="Why; it is kept in the audit.")
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.pass_context
def run(ctx: click.Context, key: str, reason: str, dry_run: bool) -> None:
    """Enqueue an entry's job now. It does not count as a scheduled run."""
    session = session_of(ctx)
    if dry_run:
        view = session.reads.cron_entry(key)
        _print_change(session, key, f"would enqueue a job of {view.worker}")
        return
    _print(session, session.actions.run_cron(key, reason=reason))


@cron.command(
    "pause",
    cls=Command,
    examples=[("jobkit cron pause nightly --reason migration", "No runs until resumed.")],
)
@click.argument("key", shell_complete=complete("crons"))
@click.option("--reason", default="", help="Why; it is shown wherever the entry is.")
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.pass_context
def pause(ctx: click.Context, key: str, reason: str, dry_run: bool) -> None:
    """Let an entry make no jobs until it is resumed."""
    session = session_of(ctx)
    if dry_run:
        view = session.reads.cron_entry(key)
        _print_change(session, key, "is paused already" if view.status == "paused" else "would be paused")
        return
    _print(session, session.actions.pause_cron(key, reason=reason))


@cron.command("resume", cls=Command, examples=[("jobkit cron resume nightly", "Runs again from now on.")])
@click.argument("key", shell_complete=complete("crons"))
@click.option("--reason", default="", help="Why; it is kept in the audit.")
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.pass_context
def resume(ctx: click.Context, key: str, reason: str, dry_run: bool) -> None:
    """Let an entry run again from now on; what was due meanwhile is not made up for."""
    session = session_of(ctx)
    if dry_run:
        view = session.reads.cron_entry(key)
        _print_change(session, key, "would be resumed" if view.status == "paused" else "is not paused")
        return
    _print(session, session.actions.resume_cron(key, reason=reason))


# -- helpers


def _with_column(field: Field) -> Field:
    from dataclasses import replace

    return replace(field, column="key")


def _print_runs(session: Session, shape: Shape, rows: list[RunRow]) -> None:
    session.out.items(shape, rows, empty="never runs")


def _runs(expression: CronExpression, start: datetime, stop: datetime | int, key: str | None) -> list[RunRow]:
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(expression.timezone)
    return [RunRow(key, run.at, absolute(run.at, zone), run.note) for run in expression.runs(start, stop)]


def _expression(text: str, timezone: str, key: str, *, usage: bool = False) -> CronExpression:
    from jobkit.errors import ScheduleError
    from jobkit.schedules import CronExpression

    try:
        return CronExpression.parse(text, key=key, timezone=timezone)
    except ScheduleError as error:
        if not usage:
            raise
        raise CommandError(str(error), ExitCode.USAGE) from None


def _time(session: Session, text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_time(text, session.now(), session.given.output.zone)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", ExitCode.USAGE) from None


def _declared(session: Session) -> list[CronView]:
    """The entries of the code, as if they had never run."""
    from jobkit.admin.views import CronView

    now = session.now()
    found = []
    for entry in session.app.registry.schedules():
        recurring = entry.recurring
        upcoming = recurring.expression.next_after(now)
        job = recurring.job
        worker = getattr(getattr(type(job), "__jobkit__", None), "name", None) or getattr(job, "worker", None)
        found.append(
            CronView(
                key=recurring.key,
                cron=recurring.cron,
                timezone=recurring.timezone,
                words=recurring.expression.describe(),
                worker=worker if isinstance(worker, str) else "",
                status="paused" if recurring.paused else "active",
                since=now,
                paused_reason="",
                paused_by=None,
                last_run_at=None,
                last_run=None,
                next_runs=() if upcoming is None or recurring.paused else (upcoming,),
                missed_at=None,
                problem="",
                history=(),
                origin=entry.origin,
            )
        )
    return found


def _print(session: Session, change: CronChange) -> None:
    session.out.item(CHANGE, change, lambda out: out.write(change.text))


def _print_change(session: Session, key: str, text: str) -> None:
    change = {"key": key, "text": f"{key} {text}", "job_id": None, "duplicate": False}
    session.out.item(CHANGE, change, lambda out: out.write(f"{key} {text}"))
