"""`jobkit jobs tail` and `jobkit jobs export`: many jobs, one line each."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TextIO

import click

from jobkit.cli.commands.jobs import SHOW, filters
from jobkit.cli.completing import complete_query
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.jobtext import JOB_FIELDS, problem_text, query_of, state_style
from jobkit.cli.output import disarm
from jobkit.cli.progress import progress
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.terminal import json_safe, line
from jobkit.cli.times import DurationParam, parse_time
from jobkit.cli.words import many

if TYPE_CHECKING:
    from jobkit.admin.views import JobSummary

__all__ = ["SHAPES", "export", "tail"]

PAGE: Final = 200
OVERLAP: Final = timedelta(seconds=5)
"""How far back each look reaches: changes become visible in another order than they are dated."""
REMEMBERED: Final = 50_000
EVENTS: Final = {
    "available": "inserted",
    "scheduled": "scheduled",
    "executing": "started",
    "retryable": "failed",
    "completed": "completed",
    "discarded": "discarded",
    "cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a job's state, as far as its row tells."""

    at: datetime
    event: str
    job: JobSummary


TAIL: Final = Shape(
    "jobs.tail",
    (
        Field("at", "time", help="when", column="at"),
        Field("event", help=", ".join(EVENTS.values()), column="event"),
        Field("id", "integer", get=lambda c: c.job.id, help="the job", column="id"),
        Field("worker", get=lambda c: c.job.worker, help="its worker", column="worker"),
        Field("queue", get=lambda c: c.job.queue, help="its queue", column="queue"),
        Field("attempt", "integer", get=lambda c: c.job.attempt, help="runs begun", column="attempt"),
        Field(
            "duration",
            "seconds",
            get=lambda c: c.job.duration,
            help="of the run",
            column="ran",
            nullable=True,
        ),
        Field("node", get=lambda c: c.job.node, help="where", nullable=True),
        Field("error", get=lambda c: c.job.error, help="the first line of the last error", column="error"),
    ),
    title="Changes of jobs as they happen",
)
EXPORT: Final = Shape("jobs.export", JOB_FIELDS, title="Exported jobs, one object a line")
SHAPES: Final = (TAIL, EXPORT)


# -- tail


@click.command(
    cls=Command,
    examples=[
        ("jobkit jobs tail queue:mail", "Every change in that queue from now on."),
        (
            "jobkit jobs tail --from -10m --event failed,discarded --jsonl",
            "Failures, ten minutes back and on.",
        ),
    ],
)
@click.argument("query", nargs=-1, shell_complete=complete_query)
@click.option("--from", "start", default="now", metavar="TIME", help="From then on: now, -10m, an ISO time.")
@click.option("--event", multiple=True, metavar="EVENT", help=f"Only these: {', '.join(EVENTS.values())}.")
@click.option("--interval", type=DurationParam(), default="1s", metavar="DURATION", help="How often to look.")
@click.option(
    "--until-idle", type=DurationParam(), metavar="DURATION", help="End once nothing happened for that long."
)
@click.pass_context
def tail(
    ctx: click.Context,
    query: tuple[str, ...],
    start: str,
    event: tuple[str, ...],
    interval: timedelta,
    until_idle: timedelta | None,
) -> None:
    """Print a line for each change of matching jobs, until Ctrl-C.

    A job that changes twice between two looks shows once.
    """
    session = session_of(ctx)
    try:
        since = parse_time(start, session.now(), session.given.output.zone)
    except ValueError as error:
        raise CommandError(f"--from: {error}", ExitCode.USAGE) from None
    wanted = {name for given in event for name in given.split(",")}
    if unknown := wanted - set(EVENTS.values()):
        raise CommandError(
            f"there is no event {sorted(unknown)[0]!r}", ExitCode.USAGE, hint=", ".join(EVENTS.values())
        )
    show = _line_printer(session)
    session.endless = True
    last = time.monotonic()
    for change in _changes(session, " ".join(query), since, max(interval.total_seconds(), 0.1)):
        if change is not None and (not wanted or change.event in wanted):
            show(change)
            last = time.monotonic()
        elif change is None:
            session.out.flush()
            if until_idle is not None and time.monotonic() - last > until_idle.total_seconds():
                return


def _changes(session: Session, query: str, since: datetime, pause: float) -> Iterator[Change | None]:
    """Changes in order, and None after each look."""
    from jobkit.admin.errors import QueryRefused

    seen: OrderedDict[tuple[int, str, datetime], None] = OrderedDict()
    begin, cursor, told = since, None, ""
    while True:
        try:
            page = session.reads.changes_since(query, since=since, limit=PAGE, cursor=cursor)
        except QueryRefused as error:
            raise CommandError(problem_text(query, error.problems), ExitCode.USAGE) from None
        if page.note != told:
            session.out.warn(page.note)
            told = page.note
        found = [Change(change.at, EVENTS[str(change.job.state)], change.job) for change in page.changes]
        yield from (change for change in found if change.at >= begin and _first(seen, change))
        cursor = page.next
        if cursor is None:
            since = max(since, session.now() - OVERLAP)
            yield None
            time.sleep(pause)


def _first(seen: OrderedDict[tuple[int, str, datetime], None], change: Change) -> bool:
    key = (change.job.id, change.event, change.at)
    if key in seen:
        return False
    seen[key] = None
    if len(seen) > REMEMBERED:
        seen.popitem(last=False)
    return True


def _line_printer(session: Session) -> Callable[[Change], None]:
    """Prints one change in the chosen format; a table has no end here, so people get lines."""
    out = session.out
    if not out.human:
        if out.format == "json":
            out.options.format = "jsonl"
        return lambda change: out.items(TAIL, [change], empty="")
    from rich.text import Text

    console = out.console

    def show(change: Change) -> None:
        job = change.job
        text = Text(f"{out.time(change.at)}  ")
        text.append(f"{change.event:10}", style=state_style(job.state))
        ran = f"  {out.show(job.duration)}" if job.duration is not None else ""
        text.append(line(f" {job.id}  {job.worker}  {job.queue}  {job.attempt}/{job.max_attempts}{ran}"))
        if job.error and change.event in ("failed", "discarded"):
            text.append(line(f"  {job.error}"), style="red")
        console.print(text, soft_wrap=True)

    return show


# -- export


@click.command(
    cls=Command,
    examples=[
        ("jobkit jobs export state:discarded -o failed.jsonl", "One JSON object a line."),
        ("jobkit jobs export queue:mail --format csv --full -o mail.csv", "With args, meta and errors."),
    ],
)
@click.argument("query", nargs=-1, shell_complete=complete_query)
@filters
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", help="The file's form."
)
@click.option("-o", "--output", metavar="FILE", help="Where to; stdout without it. A complete file or none.")
@click.option("--full", is_flag=True, help="With args, meta, errors and timeline; slower.")
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="At most so many.")
@click.pass_context
def export(
    ctx: click.Context,
    query: tuple[str, ...],
    state: tuple[str, ...],
    queue: tuple[str, ...],
    worker: tuple[str, ...],
    tag: tuple[str, ...],
    node: tuple[str, ...],
    error: str | None,
    since: str | None,
    until: str | None,
    form: Literal["jsonl", "csv"],
    output: str | None,
    full: bool,
    most: int | None,
) -> None:
    """Write all matching jobs, redacted as everywhere."""
    session = session_of(ctx)
    terms = {"state": state, "queue": queue, "worker": worker, "tag": tag, "node": node, "error": error}
    text = query_of(session, query, since=since, until=until, **terms)
    shape = SHOW if full else EXPORT
    fields = (
        shape.pick(session.given.output.fields.split(",")) if session.given.output.fields else shape.fields
    )
    total = session.reads.count(text)
    if total.problems:
        raise CommandError(problem_text(text, total.problems), ExitCode.USAGE, hint="jobkit help query")
    written = 0
    with _destination(output) as file, progress(session, "exporting", total.count.value) as meter:
        write = _writer(session, file, form, shape, fields)
        for job in _all(session, text, most):
            write(session.reads.job(job.id) if full else job)
            written += 1
            meter.update(written, max(total.count.value, written))
    if output is not None:
        session.out.note(f"{many(written, 'job')} in {output}")


def _all(session: Session, query: str, most: int | None) -> Iterator[JobSummary]:
    cursor, left = None, most
    while left is None or left > 0:
        page = session.reads.jobs(query, cursor=cursor, limit=PAGE if left is None else min(PAGE, left))
        if page.problems:
            raise CommandError(problem_text(query, page.problems), ExitCode.USAGE, hint="jobkit help query")
        yield from page.jobs
        if page.next is None:
            return
        cursor = page.next
        left = None if left is None else left - len(page.jobs)


@contextlib.contextmanager
def _destination(output: str | None) -> Iterator[TextIO]:
    """stdout, or a file that appears under its name only once it is whole."""
    if output is None or output == "-":
        yield sys.stdout
        return
    path = Path(output)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def _writer(
    session: Session, file: TextIO, form: str, shape: Shape, fields: tuple[Field, ...]
) -> Callable[[object], None]:
    if form == "jsonl":
        return lambda job: print(
            json_safe(json.dumps(shape.document(job, fields), ensure_ascii=False)), file=file
        )
    table = csv.writer(file, lineterminator="\n")
    table.writerow([field.name for field in fields])
    return lambda job: table.writerow([disarm(session.out.flat(field.value(job))) for field in fields])
