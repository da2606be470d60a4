"""`jobkit jobs`: the group, and looking at jobs. What changes jobs is in `jobchanges`, the rest in `jobstreams`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.completing import complete, complete_query
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Entry, LazyGroup
from jobkit.cli.jobdetail import draw_job
from jobkit.cli.jobtext import JOB_FIELDS, parse_ids, problem_text, query_of
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape, plain
from jobkit.cli.times import DurationParam
from jobkit.cli.waiting import wait_for
from jobkit.cli.watch import watch
from jobkit.cli.weblinks import open_job, open_list, web_options
from jobkit.cli.words import many

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobkit.admin.views import JobDetail, JobPage, JobSummary

__all__ = ["SHAPES", "filters", "jobs"]


def _below_job(field: Field) -> Field:
    """The same field of a job in full, which holds the summary under `job`."""
    return replace(field, get=lambda detail: field.value(detail.job))


LIST: Final = Shape(
    "jobs.list",
    JOB_FIELDS,
    title="Jobs",
    extra=(
        Field("next", help="give it to --cursor; null at the end", nullable=True),
        Field("query", help="the query as it was understood"),
        Field("searched", "object", help="how far a search in slices has come", nullable=True),
    ),
)
COUNT: Final = Shape(
    "jobs.count",
    (
        Field("count", "count", help="how many jobs match"),
        Field("searched", "object", help="set where only so many rows were looked at", nullable=True),
    ),
    listing=False,
    title="How many jobs match",
)
SHOW: Final = Shape(
    "jobs.show",
    (
        *(_below_job(field) for field in JOB_FIELDS if field.name != "args"),
        Field("args", "any", help="its args, redacted"),
        Field("meta", "any", help="its meta, redacted"),
        Field("args_size", "integer", help="bytes as stored"),
        Field(
            "errors",
            "list",
            get=lambda d: [_error(e) for e in d.errors],
            help="stored failures, newest first",
        ),
        Field("attempts", "list", help="its runs"),
        Field("timeline", "list", help="its story, in order of time"),
        Field("activity", "list", help="what operators did to it"),
        Field("unique_key", help="the key that it holds", nullable=True),
        Field("timeout", "seconds", help="of its worker, as nodes published it", nullable=True),
    ),
    title="Jobs in full",
)
WAITED: Final = Shape("jobs.wait", JOB_FIELDS, title="Jobs that were waited for")
SHAPES: Final = (LIST, COUNT, SHOW, WAITED)

_CHANGES: Final = "jobkit.cli.commands.jobchanges"
_STREAMS: Final = "jobkit.cli.commands.jobstreams"


@click.group(
    cls=LazyGroup,
    entries={
        "list": Entry("jobkit.cli.commands.jobs:list_", "List jobs that match a query.", "Look"),
        "show": Entry("jobkit.cli.commands.jobs:show", "Show jobs in full.", "Look"),
        "tail": Entry(f"{_STREAMS}:tail", "Print changes as they happen.", "Look"),
        "export": Entry(f"{_STREAMS}:export", "Write jobs to a file.", "Look"),
        "wait": Entry("jobkit.cli.commands.jobs:wait", "Wait until jobs have ended.", "Look"),
        "retry": Entry(f"{_CHANGES}:retry", "Run finished or failed jobs again.", "Change"),
        "run-now": Entry(f"{_CHANGES}:run_now", "Run scheduled or retryable jobs now.", "Change"),
        "cancel": Entry(f"{_CHANGES}:cancel", "Cancel jobs, running ones too.", "Change"),
        "delete": Entry(f"{_CHANGES}:delete", "Delete jobs.", "Change"),
        "edit": Entry(f"{_CHANGES}:edit", "Change queue, priority, time, attempts, tags.", "Change"),
    },
)
def jobs() -> None:
    """List, show and change jobs; wait for them, follow them, export them. Queries: jobkit help query."""


def filters(function: Callable[..., None]) -> Callable[..., None]:
    """The options that are sugar for qualifiers of the query."""
    for option in reversed(
        (
            click.option(
                "--state", multiple=True, shell_complete=complete("states"), help="Only in these states."
            ),
            click.option(
                "--queue",
                multiple=True,
                shell_complete=complete("queues"),
                help="Only of these queues; * at an end.",
            ),
            click.option(
                "--worker",
                multiple=True,
                shell_complete=complete("workers"),
                help="Only of these workers; * at an end.",
            ),
            click.option("--tag", multiple=True, shell_complete=complete("tags"), help="Only with this tag."),
            click.option(
                "--node",
                multiple=True,
                shell_complete=complete("nodes"),
                help="Only run by these nodes; * at an end.",
            ),
            click.option("--error", help="Only with this text in the last error."),
            click.option(
                "--since", metavar="TIME", help="Only inserted since then: 2h, yesterday, an ISO time."
            ),
            click.option("--until", metavar="TIME", help="Only inserted before then."),
        )
    ):
        function = option(function)
    return function


@click.command(
    "list",
    cls=Command,
    examples=[
        ("jobkit jobs list state:discarded --since 2h", "What failed for good in the last two hours."),
        ("jobkit jobs list --worker 'Mail*' --count", "How many there are."),
        ("jobkit jobs list is:failing --json=id,worker,error", "Three fields, for machines."),
        ("jobkit jobs list --all --jsonl", "All pages, one job a line."),
    ],
)
@click.argument("query", nargs=-1, shell_complete=complete_query)
@filters
@click.option(
    "--sort", help="id, time, inserted, scheduled, priority, attempt, duration; -desc or -asc after it."
)
@click.option("--limit", type=click.IntRange(1), default=50, help="How many.")
@click.option("--cursor", help="Where the last page ended.")
@click.option("--all", "all_", is_flag=True, help="All pages.")
@click.option("--count", is_flag=True, help="Only how many match.")
@click.option("--watch", "interval", type=DurationParam(), metavar="DURATION", help="Again and again.")
@web_options
@click.pass_context
def list_(
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
    sort: str | None,
    limit: int,
    cursor: str | None,
    all_: bool,
    count: bool,
    interval: timedelta | None,
    web: bool,
    web_at: str,
) -> None:
    """List jobs that match QUERY, newest first unless their state has a better order."""
    session = session_of(ctx)
    terms = {"state": state, "queue": queue, "worker": worker, "tag": tag, "node": node, "error": error}
    text = query_of(session, query, since=since, until=until, **terms)
    if web:
        open_list(session, web_at, text)
    elif count:
        watch(session, interval, lambda: _count(session, text))
    else:
        most = None if all_ else limit
        watch(session, interval, lambda: _list(session, text, sort, cursor, most))


def _count(session: Session, text: str) -> None:
    found = session.reads.count(text)
    if found.problems:
        raise CommandError(problem_text(text, found.problems), ExitCode.USAGE, hint="jobkit help query")
    if session.out.format in ("json", "jsonl", "csv"):
        session.out.item(COUNT, found)
        return
    session.out.write(found.count.text if session.out.human else str(found.count.value))
    if found.searched is not None and not found.searched.complete:
        session.out.note(f"of the newest {many(found.searched.rows, 'row')} that were searched")


def _list(session: Session, text: str, sort: str | None, cursor: str | None, most: int | None) -> None:
    name, descending = _sort(sort)
    items: list[JobSummary] = []
    page: JobPage | None = None
    if most is None and session.out.format in ("jsonl", "tsv", "csv"):
        _stream(session, text, name, descending, cursor)
        return
    while most is None or len(items) < most:
        page = _page(session, text, name, descending, cursor, min(200, most - len(items) if most else 200))
        items += page.jobs
        if page.next is None or (
            page.searched is not None and not page.searched.complete and most is not None
        ):
            break
        cursor = page.next
    extra = {
        "next": page.next if page else None,
        "query": page.query if page else text,
        "searched": page.searched if page else None,
    }
    session.out.items(LIST, items, extra=extra, empty=_empty(page), footer=_footer(page, len(items)))


def _stream(
    session: Session, text: str, sort: str | None, descending: bool | None, cursor: str | None
) -> None:
    """All pages as they come, so that any number takes no memory."""
    while True:
        page = _page(session, text, sort, descending, cursor, 200)
        session.out.items(LIST, page.jobs, empty="")
        session.out.options.header = False
        if page.next is None:
            return
        cursor = page.next


def _page(
    session: Session, text: str, sort: str | None, descending: bool | None, cursor: str | None, limit: int
) -> JobPage:
    page = session.reads.jobs(text, sort=sort, descending=descending, cursor=cursor, limit=limit)
    if page.problems:
        raise CommandError(problem_text(text, page.problems), ExitCode.USAGE, hint="jobkit help query")
    if page.note:
        session.out.warn(page.note)
    return page


def _sort(sort: str | None) -> tuple[str | None, bool | None]:
    if sort is None:
        return None, None
    name, dash, order = sort.rpartition("-")
    if dash and order in ("asc", "desc"):
        return name, order == "desc"
    return sort, None


def _empty(page: JobPage | None) -> str:
    if page is not None and page.searched is not None and not page.searched.complete:
        return f"nothing found in the newest {many(page.searched.rows, 'row')}; search on with --cursor {page.next}"
    return "no jobs match"


def _footer(page: JobPage | None, count: int) -> str:
    if page is None or page.next is None or not count:
        return ""
    searched = page.searched
    where = (
        f" in the newest {many(searched.rows, 'row')}"
        if searched is not None and not searched.complete
        else ""
    )
    return f"{count} shown{where}, more: --cursor {page.next}"


@click.command(
    "show",
    cls=Command,
    examples=[
        ("jobkit jobs show 42", "One job: summary, story, data, last error."),
        ("jobkit jobs show 42 --errors all --traceback full", "All errors with whole tracebacks."),
    ],
)
@click.argument("ids", nargs=-1, required=True, shell_complete=complete("ids"))
@click.option("--errors", type=click.Choice(["all", "last", "none"]), default="last", help="Which errors.")
@click.option(
    "--traceback",
    type=click.Choice(["full", "app"]),
    default="app",
    help="All frames, or those outside of libraries.",
)
@click.option("--args", "only_args", is_flag=True, help="Only the args, as JSON.")
@web_options
@click.pass_context
def show(
    ctx: click.Context,
    ids: tuple[str, ...],
    errors: str,
    traceback: str,
    only_args: bool,
    web: bool,
    web_at: str,
) -> None:
    """Show jobs in full. Secrets are redacted."""
    import json

    session = session_of(ctx)
    if web:
        for job_id in parse_ids(ids):
            open_job(session, web_at, job_id)
        return
    found, missing = _details(session, parse_ids(ids))
    if only_args:
        for detail in found:
            session.out.jsonl(detail.args) if isinstance(detail.args, dict) else session.out.write(
                json.dumps(plain(detail.args))
            )
    elif session.out.human:
        for detail in found:
            draw_job(session.out, detail, errors=errors, whole=traceback == "full")
    elif found or session.out.json:
        session.out.items(SHOW, found)
    if missing:
        raise CommandError(missing[0], ExitCode.NOT_FOUND)


def _details(session: Session, ids: tuple[int, ...]) -> tuple[list[JobDetail], list[str]]:
    from jobkit.admin.errors import NotFound

    found, missing = [], []
    for job_id in ids:
        try:
            found.append(session.reads.job(job_id))
        except NotFound as error:
            missing.append(str(error))
    return found, missing


def _error(view: object) -> dict[str, object]:
    keys = ("attempt", "at", "cls", "message", "text")
    return {("class" if key == "cls" else key): plain(getattr(view, key)) for key in keys}


@click.command(
    "wait",
    cls=Command,
    examples=[
        (
            "jobkit jobs wait 42 --timeout 5m",
            "Exit 0 once it has completed, 1 if it failed, 124 if the time is up.",
        ),
        ("jobkit jobs wait 1..20 --for final", "Until all have ended, however."),
    ],
)
@click.argument("ids", nargs=-1, required=True, shell_complete=complete("ids"))
@click.option(
    "--for", "goal", type=click.Choice(["completed", "final"]), default="completed", help="What is a success."
)
@click.option("--timeout", type=DurationParam(), metavar="DURATION", help="Exit 124 after that time.")
@click.option("--fail-on", multiple=True, metavar="STATE", help="Exit 1 as soon as one is in this state.")
@click.pass_context
def wait(
    ctx: click.Context, ids: tuple[str, ...], goal: str, timeout: timedelta | None, fail_on: tuple[str, ...]
) -> None:
    """Wait until jobs have ended; the exit code tells how."""
    session = session_of(ctx)
    wanted = parse_ids(ids)
    found = wait_for(
        session, wanted, goal="final" if goal == "final" else "completed", timeout=timeout, fail_on=fail_on
    )
    session.out.items(WAITED, [found[job_id] for job_id in wanted])
