"""`jobkit jobs retry|run-now|cancel|delete|edit`: what changes jobs, by id or by query.

Invariants: a single job is changed without asking unless that destroys it; more are shown first and confirmed; every
job that was asked for is accounted for in the summary and in the exit code.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from jobkit.cli.bulk import Bulk
from jobkit.cli.completing import complete
from jobkit.cli.confirm import confirm, on_terminal
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.jobtext import parse_id, parse_ids, query_of
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape, plain
from jobkit.cli.times import DurationParam, parse_time
from jobkit.redact import REDACTED

if TYPE_CHECKING:
    from jobkit.admin.results import JobAction, JobEdit

__all__ = ["SHAPES", "cancel", "delete", "edit", "retry", "run_now"]

RESULTS: Final = Shape(
    "jobs.change",
    (
        Field("id", "integer", help="the job", column="id"),
        Field("result", help="done, skipped, conflict, missing or failed", column="result"),
        Field("text", help="what happened, in words", column="text"),
        Field("before", help="its state before", nullable=True),
        Field("after", help="its state afterwards", nullable=True),
    ),
    title="What happened to each job",
)
OPERATION: Final = Shape(
    "jobs.operation",
    (
        Field("id", "integer", help="the operation"),
        Field("action", help="what was done"),
        Field("state", help="done, cancelled, failed; pending or running where it goes on"),
        Field("total", "count", help="how many matched when it began", nullable=True),
        Field("done", "integer", help="jobs that were changed"),
        Field("skipped", "integer", help="jobs that were left alone"),
        Field("failed", "integer", help="jobs that could not be changed"),
        Field("skips", "object", help="why jobs were left alone, with how often"),
        Field("results", "list", help="the first jobs that were left alone or failed"),
        Field("query", help="which jobs", nullable=True),
        Field("error", help="what ended it"),
    ),
    listing=False,
    title="A bulk operation",
)
PREVIEW: Final = Shape(
    "jobs.preview",
    (
        Field("action", help="what would be done"),
        Field("words", help="the same in words"),
        Field("query", help="which jobs", nullable=True),
        Field("total", "count", help="how many match"),
        Field("will_change", "count", help="how many would be changed"),
        Field("by_state", "object", help="of the first 10,000"),
        Field("by_queue", "object", help="of the first 10,000"),
        Field("by_worker", "object", help="of the first 10,000"),
        Field("skips", "list", help="which would be left alone, and why"),
    ),
    listing=False,
    title="What a bulk operation would do",
)
EDIT: Final = Shape(
    "jobs.edit",
    (
        Field("field", help="what changes", column="field"),
        Field("before", "any", help="its value now", column="before", nullable=True),
        Field("after", "any", help="its value then", column="after", nullable=True),
    ),
    title="What an edit changes",
)
SHAPES: Final = (RESULTS, OPERATION, PREVIEW, EDIT)


def _selecting(function: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that changes many jobs."""
    for option in reversed(
        (
            click.argument("ids", nargs=-1, shell_complete=complete("ids")),
            click.option("--query", metavar="QUERY", help="All jobs that match, instead of IDS."),
            click.option("--yes", is_flag=True, help="Do not ask."),
            click.option("--dry-run", is_flag=True, help="Print what would be done."),
            click.option("--max", "most", type=click.IntRange(1), metavar="N", help="At most so many jobs."),
            click.option("--reason", default="", help="Why; it is kept in the audit."),
        )
    ):
        function = option(function)
    return function


_spread = click.option(
    "--spread",
    type=DurationParam(),
    metavar="DURATION",
    help="Start them evenly over that time, not all at once.",
)


def _bulk(
    ctx: click.Context,
    action: JobAction,
    ids: tuple[str, ...],
    query: str | None,
    *,
    destroys: bool = False,
    **given: Any,
) -> None:
    session = session_of(ctx)
    if bool(ids) == (query is not None):
        raise CommandError("give ids or --query", ExitCode.USAGE, hint=f"see: {ctx.command_path} --help")
    bulk = Bulk(
        session, action, results=RESULTS, operation=OPERATION, preview=PREVIEW, destroys=destroys, **given
    )
    if query is not None:
        bulk.on_query(query_of(session, [query]))
    else:
        bulk.on_ids(parse_ids(ids))


@click.command(
    cls=Command,
    examples=[
        ("jobkit jobs retry 42", "One job, now."),
        (
            "jobkit jobs retry --query 'state:discarded worker:Mail* finished:<2h' --spread 10m",
            "Many, over ten minutes.",
        ),
        (
            "jobkit jobs list is:failing --json=id | jq .items[].id | jobkit jobs retry - --yes",
            "Ids from stdin.",
        ),
    ],
)
@_selecting
@_spread
@click.pass_context
def retry(ctx: click.Context, /, ids: tuple[str, ...], query: str | None, **given: Any) -> None:
    """Run finished or failed jobs again, now; a job with no attempts left gets one more."""
    _bulk(ctx, "retry", ids, query, **given)


@click.command("run-now", cls=Command, examples=[("jobkit jobs run-now 42", "Do not wait for its time.")])
@_selecting
@_spread
@click.pass_context
def run_now(ctx: click.Context, /, ids: tuple[str, ...], query: str | None, **given: Any) -> None:
    """Make scheduled and retryable jobs available now."""
    _bulk(ctx, "run_now", ids, query, **given)


@click.command(
    cls=Command,
    examples=[
        ("jobkit jobs cancel 42 --reason 'wrong customer'", "One job; a running one is stopped."),
        ("jobkit jobs cancel --query 'queue:imports is:incomplete' --dry-run", "Look first."),
    ],
)
@_selecting
@click.pass_context
def cancel(ctx: click.Context, /, ids: tuple[str, ...], query: str | None, **given: Any) -> None:
    """Cancel jobs that have not ended; running ones are stopped at their node's next heartbeat."""
    _bulk(ctx, "cancel", ids, query, **given)


@click.command(
    cls=Command,
    examples=[
        ("jobkit jobs delete 42 --yes", "Remove its row."),
        ("jobkit jobs delete --query 'state:cancelled' --max 1000", "At most a thousand."),
    ],
)
@_selecting
@click.pass_context
def delete(ctx: click.Context, /, ids: tuple[str, ...], query: str | None, **given: Any) -> None:
    """Delete jobs that are not running. The audit keeps id, worker, queue and state."""
    _bulk(ctx, "delete", ids, query, destroys=True, **given)


@click.command(
    cls=Command,
    examples=[
        ("jobkit jobs edit 42 --queue slow --priority 9", "Move it, to the end."),
        ("jobkit jobs edit 42 --at 'tomorrow 09:00' --tag+ later", "Another time, one more tag."),
    ],
)
@click.argument("job_id", metavar="ID", shell_complete=complete("ids"))
@click.option("--queue", help="Another queue.")
@click.option("--priority", type=click.IntRange(0, 9), help="0 is first.")
@click.option("--at", metavar="TIME", help="When it is due.")
@click.option("--in", "delay", type=DurationParam(), metavar="DURATION", help="When it is due, from now.")
@click.option("--max-attempts", type=click.IntRange(1), help="The most runs.")
@click.option("--tag+", "--add-tag", "add", multiple=True, metavar="TAG", help="A tag more.")
@click.option("--tag-", "--remove-tag", "remove", multiple=True, metavar="TAG", help="A tag less.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Print what would change.")
@click.option("--reason", default="", help="Why; it is kept in the audit.")
@click.pass_context
def edit(
    ctx: click.Context,
    job_id: str,
    queue: str | None,
    priority: int | None,
    at: str | None,
    delay: timedelta | None,
    max_attempts: int | None,
    add: tuple[str, ...],
    remove: tuple[str, ...],
    yes: bool,
    dry_run: bool,
    reason: str,
) -> None:
    """Change a job that has not ended and is not running."""
    from jobkit.admin.results import JobEdit

    session = session_of(ctx)
    number = parse_id(job_id)
    wanted = JobEdit(
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        scheduled_at=_when(session, at, delay),
        add_tags=add,
        remove_tags=remove,
    )
    changes = {
        name: (_timed(name, old), _timed(name, new))
        for name, (old, new) in session.actions.preview_edit(number, wanted).items()
    }
    rows = [{"field": name, "before": plain(a), "after": plain(b)} for name, (a, b) in changes.items()]
    if dry_run or not rows:
        session.out.items(EDIT, rows, empty="nothing would change")
        return
    if on_terminal() and not yes:
        for row in rows:
            session.out.note(f"  {row['field']}: {row['before']} → {row['after']}")
        confirm(session, f"change job {number}", yes=yes)
    shown = _shown(changes)
    result = session.actions.edit([number], wanted, shown=shown, reason=reason)
    Bulk(session, "edit", results=RESULTS, operation=OPERATION, preview=PREVIEW, reason=reason).report(result)


def _timed(name: str, value: object) -> object:
    """The value of a field as the field has it: what was shown of a time is its text."""
    if name == "scheduled_at" and isinstance(value, str):
        return datetime.fromisoformat(value)
    return value


def _shown(changes: dict[str, tuple[object, object]]) -> JobEdit:
    """What was printed as the values before: a job that has other ones by then is left alone."""
    from jobkit.admin.results import JobEdit

    before: dict[str, Any] = {name: old for name, (old, _) in changes.items()}
    if "tags" in before:
        before["tags"] = tuple(before["tags"])
        if REDACTED in before["tags"]:
            del before["tags"]  # what is hidden cannot be compared
    known = {"queue", "priority", "max_attempts", "scheduled_at", "tags"}
    return JobEdit(**{name: value for name, value in before.items() if name in known})


def _when(session: Session, at: str | None, delay: timedelta | None) -> datetime | None:
    if at is not None and delay is not None:
        raise CommandError("--in and --at: give one of them", ExitCode.USAGE)
    if delay is not None:
        return session.now() + delay
    if at is None:
        return None
    try:
        return parse_time(at, session.now(), session.given.output.zone)
    except ValueError as error:
        raise CommandError(f"--at: {error}", ExitCode.USAGE) from None
