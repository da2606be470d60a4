"""`jobkit audit`: what operators did."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Group
from jobkit.cli.jobtext import past
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.times import parse_time

if TYPE_CHECKING:
    from jobkit.admin.views import AuditEntry

__all__ = ["SHAPES", "audit"]

_STYLES: Final = {"denied": "red", "failed": "red", "conflict": "yellow"}


def _target(entry: AuditEntry) -> str:
    if len(entry.ids) == 1:
        return f"{entry.target_kind} {entry.ids[0]}"
    return f"{entry.count:,} {entry.target_kind}s"


LIST: Final = Shape(
    "audit.list",
    (
        Field("id", "integer", help="the row"),
        Field("at", "time", help="when", column="at"),
        Field("actor", help="who: user@host on the command line", column="actor"),
        Field("via", help="cli, web, api or system", column="via"),
        Field("action", help="what", column="action"),
        Field("target", get=_target, help="on what, in words", column="target"),
        Field("target_kind", help="job, queue, node, cron, ..."),
        Field("ids", "list", help="which ones"),
        Field("count", "integer", help="how many"),
        Field("query", help="the query of a bulk action", nullable=True),
        Field("before", "object", help="changed fields before, redacted"),
        Field("after", "object", help="changed fields afterwards, redacted"),
        Field(
            "result",
            help="ok, denied, conflict or failed",
            column="result",
            style=lambda e: _STYLES.get(e.result, ""),
        ),
        Field("reason", help="the operator's own words", column="reason"),
        Field("operation_id", "integer", help="the bulk operation", nullable=True),
        Field("request_id", help="ties rows to a log", nullable=True),
    ),
    title="Operator actions",
    extra=(Field("next", "integer", help="give it to --before; null at the end", nullable=True),),
)
SHAPES: Final = (LIST,)


@click.group(cls=Group)
def audit() -> None:
    """What operators did, by command line, dashboard and API; denied actions too."""


@audit.command(
    "list",
    cls=Command,
    examples=[
        ("jobkit audit list --since 1d --action 'jobs.*'", "What was done to jobs since yesterday."),
        ("jobkit audit --actor 'eve@*' --result denied --json", "What somebody was not allowed to do."),
    ],
)
@click.option("--actor", help="Only this actor; * at the end.")
@click.option("--action", help="Only this action; * at the end.")
@click.option(
    "--result", type=click.Choice(["ok", "denied", "conflict", "failed"]), help="Only with this result."
)
@click.option("--job", "job_id", type=int, help="Only on this job.")
@click.option("--since", metavar="TIME", help="Only since then.")
@click.option("--until", metavar="TIME", help="Only before then.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, help="How many.")
@click.option("--before", "before_id", type=int, metavar="ID", help="Where the last page ended.")
@click.pass_context
def list_(
    ctx: click.Context,
    actor: str | None,
    action: str | None,
    result: str | None,
    job_id: int | None,
    since: str | None,
    until: str | None,
    limit: int,
    before_id: int | None,
) -> None:
    """List operator actions, newest first."""
    session = session_of(ctx)
    page = session.reads.audit(
        actor=actor,
        action=action,
        result=result,
        target=None if job_id is None else ("job", str(job_id)),
        since=_time(session, "--since", since),
        until=_time(session, "--until", until),
        before_id=before_id,
        limit=limit,
    )
    footer = f"more: --before {page.next}" if page.next is not None else ""
    session.out.items(LIST, page.entries, extra={"next": page.next}, empty="no actions", footer=footer)


def _time(session: Session, option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_time(past(text), session.now(), session.given.output.zone)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", ExitCode.USAGE) from None
