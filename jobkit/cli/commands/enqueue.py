"""`jobkit enqueue`: inserts one job, or many from a file.

Invariant: the args of all jobs are checked by the worker's own types before anything is written, unless `--unknown`
says that the worker is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from jobkit.cli.completing import complete
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.pairs import parse_pairs
from jobkit.cli.progress import progress
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.times import DurationParam, parse_time
from jobkit.cli.words import many

if TYPE_CHECKING:
    from jobkit.admin.results import InsertRequest, InsertResult

__all__ = ["SHAPES", "enqueue"]

MOST_TOLD: Final = 10
"""Wrong lines of a file that are named one by one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One inserted job."""

    id: int | None
    worker: str
    duplicate: bool = False
    warnings: tuple[str, ...] = ()


INSERTED: Final = Shape(
    "enqueue",
    (
        Field(
            "id",
            "integer",
            help="the job's id; of the job that was there already for a duplicate",
            column="id",
        ),
        Field("worker", help="the worker's name"),
        Field("duplicate", "boolean", help="whether a unique job was there already"),
        Field("warnings", "list", help="remarks"),
    ),
    title="Inserted jobs",
)
PREVIEW: Final = Shape(
    "enqueue.preview",
    (
        Field("worker", help="the worker's name", column="worker"),
        Field("queue", help="the queue", column="queue"),
        Field("state", help="available or scheduled", column="state"),
        Field("args", "object", help="the args, redacted", column="args"),
        Field("meta", "object", help="the meta, redacted"),
        Field("tags", "list", help="the tags", column="tags"),
        Field("priority", "integer", help="0 is first", column="priority"),
        Field("max_attempts", "integer", help="the most runs", column="attempts"),
        Field("scheduled_at", "time", help="when it would be due", column="due"),
        Field(
            "duplicate_of",
            "integer",
            help="the job that holds its unique key",
            column="duplicate of",
            nullable=True,
        ),
        Field("warnings", "list", help="remarks"),
    ),
    title="Jobs that would be inserted",
)
SHAPES: Final = (INSERTED, PREVIEW)


@click.command(
    cls=Command,
    examples=[
        ("jobkit enqueue send_welcome_email user_id:=42 --in 10m", "One job, in ten minutes."),
        (
            """jobkit enqueue resize_image '{"image_id": 1}' --queue media --wait""",
            "Args as JSON; wait for the end.",
        ),
        (
            "jobkit enqueue resize_image --args-file images.jsonl",
            "A job for each line; none where a line is wrong.",
        ),
        ("jobkit enqueue nightly_report --at 'tomorrow 09:00' --tz Europe/Paris --dry-run", "Look first."),
    ],
)
@click.argument("worker", shell_complete=complete("workers"))
@click.argument("args", nargs=-1)
@click.option("--arg", "pairs", multiple=True, metavar="KEY=VALUE", help="One arg; KEY:=VALUE takes JSON.")
@click.option(
    "--args-file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="A job for each line of JSON; - is stdin.",
)
@click.option(
    "--count", type=click.IntRange(1, 1_000_000), default=1, metavar="N", help="So many equal jobs."
)
@click.option("--queue", shell_complete=complete("queues"), help="Instead of the worker's.")
@click.option("--priority", type=click.IntRange(0, 9), help="0 is first.")
@click.option("--max-attempts", type=click.IntRange(1), help="The most runs.")
@click.option(
    "--in", "delay", type=DurationParam(), metavar="DURATION", help="Not before that time has passed."
)
@click.option("--at", metavar="TIME", help="Not before that time.")
@click.option("--tag", "tags", multiple=True, help="A tag; may be repeated.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="An entry of meta; KEY:=VALUE takes JSON.")
@click.option("--unique/--no-unique", default=None, help="As the worker says (the default), or not at all.")
@click.option("--unknown", is_flag=True, help="Also where no such worker is known here.")
@click.option("--fail-on-duplicate", is_flag=True, help="Exit code 6 where a unique job was there already.")
@click.option("--wait", is_flag=True, help="Wait until the jobs have ended; the exit code tells how.")
@click.option(
    "--timeout", type=DurationParam(), metavar="DURATION", help="With --wait: exit 124 after that time."
)
@click.option("--reason", default="", help="Why; it is kept in the audit.")
@click.option("--dry-run", is_flag=True, help="Print the jobs that would be inserted.")
@click.pass_context
def enqueue(
    ctx: click.Context,
    worker: str,
    args: tuple[str, ...],
    pairs: tuple[str, ...],
    args_file: TextIO | None,
    count: int,
    queue: str | None,
    priority: int | None,
    max_attempts: int | None,
    delay: timedelta | None,
    at: str | None,
    tags: tuple[str, ...],
    meta: tuple[str, ...],
    unique: bool | None,
    unknown: bool,
    fail_on_duplicate: bool,
    wait: bool,
    timeout: timedelta | None,
    reason: str,
    dry_run: bool,
) -> None:
    """Insert a job of WORKER and print its id. ARGS are a JSON object, or key=value and key:=json."""
    from jobkit.admin.results import InsertRequest

    session = session_of(ctx)
    types = _types(session, worker, unknown)
    base = InsertRequest(
        worker=worker,
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        scheduled_at=_at(session, at, delay),
        schedule_in=delay,
        tags=tags,
        meta=parse_pairs(meta, "--meta"),
        unique=False if unique is False else None,
    )
    batch = _batch(base, (*args, *pairs), args_file, types, count)
    if dry_run:
        with _lines(batch):
            previews = session.actions.preview_inserts(batch.requests)
        session.out.items(PREVIEW, previews)
        return
    rows = _insert(session, batch, reason)
    if fail_on_duplicate and any(row.duplicate for row in rows):
        raise CommandError("a unique job was there already", ExitCode.CONFLICT)
    if wait:
        from jobkit.cli.waiting import wait_for

        wait_for(session, [row.id for row in rows if row.id is not None], timeout=timeout)


def _at(session: Session, at: str | None, delay: timedelta | None) -> datetime | None:
    if at is None:
        return None
    if delay is not None:
        raise CommandError("--in and --at: give one of them", ExitCode.USAGE)
    try:
        return parse_time(at, session.now(), session.given.output.zone)
    except ValueError as error:
        raise CommandError(f"--at: {error}", ExitCode.USAGE) from None


def _types(session: Session, worker: str, unknown: bool) -> Mapping[str, object]:
    """The types of the worker's args, by which `key=value` is read; none where it is unknown."""
    import typing

    cls = session.app.registry.resolve(worker)
    if cls is None:
        if unknown:
            return {}
        from difflib import get_close_matches

        near = get_close_matches(worker, session.app.registry.workers, 1)
        raise CommandError(
            f"no worker {worker!r} is known here" + (f"; did you mean {near[0]!r}?" if near else ""),
            ExitCode.NOT_FOUND,
            hint="name the module that has it with --import (known ones: jobkit workers), "
            "or insert it all the same with --unknown",
        )
    try:
        return typing.get_type_hints(cls)
    except Exception:  # noqa: BLE001 - annotations may be anything; then values are read by their looks
        return {}


@dataclass(frozen=True, slots=True)
class Batch:
    """What is to be inserted; of a file also its name and the line of each."""

    requests: list[InsertRequest]
    file: str = ""
    lines: tuple[int, ...] = ()


def _batch(
    base: InsertRequest,
    words: tuple[str, ...],
    file: TextIO | None,
    types: Mapping[str, object],
    count: int,
) -> Batch:
    if file is None:
        return Batch([replace(base, args=_args(words, types))] * count)
    if words:
        raise CommandError("args and --args-file: give one of them", ExitCode.USAGE)
    if count != 1:
        raise CommandError("--count and --args-file: give one of them", ExitCode.USAGE)
    try:
        found = {number: text.strip() for number, text in enumerate(file, 1) if text.strip()}
    except UnicodeDecodeError as error:
        raise CommandError(f"{file.name} is no UTF-8 text: {error}", ExitCode.USAGE) from None
    requests = [replace(base, args=text) for text in found.values()]
    return Batch(requests, "stdin" if file.name in ("<stdin>", "-") else file.name, tuple(found))


@contextmanager
def _lines(batch: Batch) -> Iterator[None]:
    """Name what is wrong in a file by its line."""
    from jobkit.admin.errors import Invalid, InvalidRequests

    try:
        yield
    except Invalid as error:
        if not batch.file:
            raise
        problems = error.problems if isinstance(error, InvalidRequests) else {0: str(error)}
        told = [f"{batch.file}, line {batch.lines[at]}: {text}" for at, text in problems.items()]
        if more := len(told) - MOST_TOLD:
            told[MOST_TOLD:] = [f"and {more:,} more lines" if more > 1 else "and one more line"] * (more > 0)
        raise CommandError("\n".join(told), ExitCode.USAGE, hint="nothing was inserted") from None


def _args(words: tuple[str, ...], types: Mapping[str, object]) -> str:
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _object(words[0], "args")
    return json.dumps(parse_pairs(words, "args", types), ensure_ascii=False)


def _object(text: str, where: str) -> str:
    """The text, once it is known to be a JSON object; numbers keep all their digits."""
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{where}: no valid JSON: {error}", ExitCode.USAGE) from None
    if not isinstance(found, dict):
        raise CommandError(f"{where}: expected a JSON object, found {type(found).__name__}", ExitCode.USAGE)
    return text.strip()


def _insert(session: Session, batch: Batch, reason: str) -> list[Row]:
    """Insert all, and print what has an id; also where the database fails on the way."""
    from jobkit.admin.errors import Invalid

    rows: list[Row] = []
    total = len(batch.requests)
    with progress(session, "inserting", total) as meter:

        def done(results: Sequence[InsertResult]) -> None:
            rows.extend(Row(r.id, batch.requests[0].worker, r.duplicate, r.warnings) for r in results)
            meter.update(len(rows), total)

        try:
            with _lines(batch):
                session.actions.insert_many(batch.requests, reason=reason, done=done)
        except (Invalid, CommandError):
            raise
        except BaseException:
            if rows:
                _print(session, rows)
                session.out.note(f"{len(rows):,} of {many(total, 'job')} were inserted")
            raise
    _print(session, rows)
    return rows


def _print(session: Session, rows: Iterable[Row]) -> None:
    found: list[Any] = list(rows)
    for text in dict.fromkeys(text for row in found for text in row.warnings):
        session.out.warn(text)
    if session.out.human:
        for row in found:
            session.out.write(str(row.id))
            if row.duplicate:
                session.out.note(f"job {row.id} was there already")
        return
    session.out.items(INSERTED, found)
