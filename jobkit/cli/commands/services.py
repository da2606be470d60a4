"""`jobkit prune|rescue|stage`: one round of a plugin's service by hand.

The services are those of the plugins, replacements included. Invariant: nothing is done that a node would not do by
itself; so nothing is asked.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.manualnode import ManualNode, service_of
from jobkit.cli.progress import progress
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.times import DurationParam
from jobkit.cli.words import many

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["SHAPES", "prune", "rescue", "stage"]

ROUND: Final = Shape(
    "service.round",
    (
        Field("service", help="pruner, lifeline or stager"),
        Field("changed", "integer", help="rows that were changed; that match, with --dry-run"),
        Field("dry_run", "boolean", help="whether nothing was done"),
        Field("seconds", "number", help="how long it took"),
    ),
    listing=False,
    title="One round of a service",
)
SHAPES: Final = (ROUND,)
_dry = click.option("--dry-run", is_flag=True, help="Only count.")


@click.command(
    cls=Command,
    examples=[
        ("jobkit prune", "Delete what is older than prune_after."),
        ("jobkit prune --older-than 1d --dry-run", "How many would it be?"),
        ("jobkit prune --state completed --older-than 1h", "Keep the failures longer."),
    ],
)
@click.option("--older-than", type=DurationParam(), metavar="DURATION", help="Instead of prune_after.")
@click.option("--batch", type=click.IntRange(1, 100_000), metavar="N", help="Rows a statement.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(["completed", "cancelled", "discarded"]),
    help="Only jobs in this state; may be repeated.",
)
@_dry
@click.pass_context
def prune(
    ctx: click.Context,
    older_than: timedelta | None,
    batch: int | None,
    states: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Delete jobs that became final longer ago than prune_after."""
    session = session_of(ctx)
    if older_than is not None:
        if older_than <= timedelta(0):
            raise CommandError("--older-than: expected more than 0s", ExitCode.USAGE)
        session.given.settings["prune_after"] = f"{older_than.total_seconds():f}s"
    if batch is not None:
        session.given.settings["plugins.pruner.batch"] = batch
    after = session.app.config.prune_after
    if after is None:
        raise CommandError("prune_after is never", ExitCode.USAGE, hint="say how old: --older-than 7d")
    which = f"state:{','.join(states)}" if states else "is:final"
    query = f"{which} finished:>{int(after.total_seconds())}s"
    if dry_run:
        count = session.reads.count(query)
        _print(session, "pruner", count.count.value, dry_run=True)
    elif states:
        _delete(session, query)
    else:
        _run(session, "pruner")


def _delete(session: Session, query: str) -> None:
    """The pruner knows no states, so these jobs are deleted as an operator would do it: audited, chunk by chunk."""
    from jobkit.admin.results import Matching

    started = time.monotonic()
    operation = session.actions.start("delete", Matching(query), reason="prune")
    with progress(session, "pruning") as meter:
        ended = session.actions.run_operation(operation.id, progress=lambda view: meter.update(view.handled))
    _print(session, "pruner", ended.done, dry_run=False, seconds=time.monotonic() - started)
    if ended.failed or ended.error:
        raise CommandError(
            f"{many(ended.failed, 'job')} could not be deleted: {ended.error}", ExitCode.PARTLY
        )


@click.command(cls=Command, examples=[("jobkit stage", "Make due jobs available now.")])
@_dry
@click.pass_context
def stage(ctx: click.Context, dry_run: bool) -> None:
    """Make scheduled and retryable jobs that are due available."""
    session = session_of(ctx)
    if dry_run:
        count = session.reads.count("state:scheduled,retryable scheduled:>0s")
        _print(session, "stager", count.count.value, dry_run=True)
        return
    _run(session, "stager")


@click.command(
    cls=Command,
    examples=[
        ("jobkit rescue", "Watch all nodes for dead_after, then give back the jobs of those that are dead."),
        ("jobkit rescue --now", "Only jobs of nodes that are known to be gone."),
    ],
)
@click.option("--now", is_flag=True, help="Watch nobody: only jobs whose node has no live row.")
@_dry
@click.pass_context
def rescue(ctx: click.Context, now: bool, dry_run: bool) -> None:
    """Give back the jobs of dead nodes. A node is dead when its row does not change for dead_after while we look."""
    session = session_of(ctx)
    if dry_run:
        count = session.reads.count("is:orphaned")
        _print(session, "lifeline", count.count.value, dry_run=True)
        return
    _run(session, "lifeline", watching=timedelta(0) if now else session.app.config.dead_after)


def _run(session: Session, plugin: str, watching: timedelta = timedelta(0)) -> None:
    core: Core = session.app
    core.ready()
    node = ManualNode(core)
    service = service_of(core, node, plugin)
    if service is None:
        raise CommandError(f"the plugin {plugin} is disabled or offers no service", ExitCode.CONFIG)
    started = time.monotonic()
    end = started + watching.total_seconds()
    changed = 0
    with (
        core.engine.connect() as conn,
        progress(session, "watching nodes", int(watching.total_seconds())) as meter,
    ):
        while True:
            changed += service.tick(conn, core.clock.now())
            conn.rollback()
            left = end + service.seconds / 5 - time.monotonic()
            if not watching or left <= 0:
                break
            meter.update(int(time.monotonic() - started), int(watching.total_seconds()))
            time.sleep(min(left, service.seconds / 5))
    from jobkit.wakeup import waker_of

    waker_of(core).flush(1.0)
    _print(session, plugin, changed, dry_run=False, seconds=time.monotonic() - started)


def _print(session: Session, service: str, changed: int, *, dry_run: bool, seconds: float = 0.0) -> None:
    found = {"service": service, "changed": changed, "dry_run": dry_run, "seconds": round(seconds, 3)}
    word = {"pruner": "deleted", "lifeline": "rescued or discarded", "stager": "made available"}[service]
    text = f"{many(changed, 'job')} {'would be ' if dry_run else ''}{word}"
    session.out.item(ROUND, found, lambda out: out.write(text))
