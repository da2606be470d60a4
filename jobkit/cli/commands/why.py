"""`jobkit why ID`: why a job is not running, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.completing import complete
from jobkit.cli.framework import Command
from jobkit.cli.jobtext import parse_id
from jobkit.cli.output import Output
from jobkit.cli.session import session_of
from jobkit.cli.shapes import Field, Shape, plain
from jobkit.cli.terminal import clean

if TYPE_CHECKING:
    from jobkit.admin.why import Explanation

__all__ = ["SHAPES", "why"]

WHY: Final = Shape(
    "why",
    (
        Field("job_id", "integer", help="the job"),
        Field("state", help="its state"),
        Field("summary", help="the decisive cause in a sentence"),
        Field("causes", "list", get=lambda e: plain(e.causes), help="all causes: kind, text, fix, remark"),
        Field("at", "time", help="as of then"),
    ),
    listing=False,
    title="Why a job is not running",
)
SHAPES: Final = (WHY,)


@click.command(
    cls=Command,
    examples=[
        ("jobkit why 42", "Not due, queue paused, no node, worker unknown, queue full, ..."),
        ("jobkit why 42 --json=summary", "The decisive cause, for machines."),
    ],
)
@click.argument("job_id", metavar="ID", shell_complete=complete("ids"))
@click.pass_context
def why(ctx: click.Context, job_id: str) -> None:
    """Explain why a job is not running, with the command that helps."""
    session = session_of(ctx)
    found = session.reads.why(parse_id(job_id))
    session.out.item(WHY, found, lambda out: _draw(out, found))


def _draw(out: Output, found: Explanation) -> None:
    out.write(f"job {found.job_id} is {found.state}")
    for cause in found.causes:
        out.write(f"  {'·' if cause.remark else '→'} {clean(cause.text)}")
        if cause.fix:
            out.write(f"      {clean(cause.fix)}")
