"""`jobkit queues`: utilisation and trouble, and pausing, resuming, scaling."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.completing import complete
from jobkit.cli.confirm import confirm
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Group
from jobkit.cli.output import Output
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.times import DurationParam, parse_time
from jobkit.cli.watch import watch
from jobkit.cli.words import many

if TYPE_CHECKING:
    from jobkit.admin.results import QueueChange
    from jobkit.admin.views import QueueView

__all__ = ["SHAPES", "queues"]

_STYLES: Final = {
    "running": "green",
    "paused": "yellow",
    "part paused": "yellow",
    "no nodes": "bold red",
    "stopping": "dim",
}
_BAR: Final = 10


def _bar(queue: QueueView) -> str:
    """Utilisation as a bar with its figures."""
    share = queue.utilisation
    if share is None:
        return f"{queue.executing}/{queue.limit}"
    full = min(_BAR, round(share * _BAR))
    return f"{'▓' * full}{'░' * (_BAR - full)} {queue.executing}/{queue.limit}"


_FIELDS: Final = (
    Field("name", help="the queue", column="queue"),
    Field(
        "status",
        help="running, paused, part paused, no nodes or stopping",
        column="status",
        style=lambda q: _STYLES.get(q.status, ""),
    ),
    Field("executing", "integer", help="jobs that run", column="running", show=_bar),
    Field("limit", "integer", help="how many may run on all live nodes together"),
    Field("utilisation", "number", help="executing / limit", nullable=True),
    Field("available", "count", help="jobs that wait", column="available"),
    Field("scheduled", "count", help="jobs for later", column="scheduled"),
    Field("retryable", "count", help="jobs that will be tried again", column="retryable"),
    Field(
        "oldest_age",
        "seconds",
        help="for how long the first available job has waited",
        column="oldest",
        nullable=True,
    ),
    Field("oldest_available_at", "time", help="since when", nullable=True),
    Field("paused", "boolean", help="whether its row says so"),
    Field("paused_until", "time", help="until then", nullable=True),
    Field("reason", help="why it is paused", column="reason"),
    Field("paused_by", help="who paused it", nullable=True),
    Field("limit_override", "integer", help="the limit that an operator set", nullable=True),
    Field("nodes", "list", help="who works on it"),
    Field("last_node", help="the last node that did, where there is none", nullable=True),
)
LIST: Final = Shape("queues.list", _FIELDS, title="Queues")
SHOW: Final = Shape("queues.show", _FIELDS, listing=False, title="One queue")
CHANGE: Final = Shape(
    "queues.change",
    (
        Field("name", help="the queue", column="queue"),
        Field("text", help="what was done", column="what"),
        Field("before", "object", help="the row before"),
        Field("after", "object", help="the row afterwards"),
        Field("capacity_before", "integer", help="jobs that could run at once"),
        Field("capacity_after", "integer", help="jobs that can run at once", column="capacity"),
    ),
    title="What was done to queues",
)
SHAPES: Final = (LIST, SHOW, CHANGE)


@click.group(cls=Group)
def queues() -> None:
    """List, show, pause, resume and scale queues. Nodes obey at their next heartbeat, within a second or two."""


@queues.command(
    "list",
    cls=Command,
    examples=[
        ("jobkit queues", "All queues, those in trouble first."),
        ("jobkit queues list --watch 2s", "The same, again and again."),
    ],
)
@click.option("--sort", type=click.Choice(["trouble", "name"]), default="trouble", help="What comes first.")
@click.option("--watch", "interval", type=DurationParam(), metavar="DURATION", help="Again and again.")
@click.pass_context
def list_(ctx: click.Context, sort: str, interval: timedelta | None) -> None:
    """List queues with what waits in them and who works on them."""
    session = session_of(ctx)

    def draw() -> None:
        found = list(session.reads.queues())
        if sort == "name":
            found.sort(key=lambda queue: queue.name)
        session.out.items(LIST, found, empty="no queues; nodes make them when they start")

    watch(session, interval, draw)


@queues.command("show", cls=Command, examples=[("jobkit queues show mail", "One queue and its nodes.")])
@click.argument("name", shell_complete=complete("queues"))
@click.pass_context
def show(ctx: click.Context, name: str) -> None:
    """Show one queue with the nodes that work on it."""
    session = session_of(ctx)
    view = session.reads.queue(name)
    session.out.item(SHOW, view, lambda out: _draw(out, view))


def _draw(out: Output, view: QueueView) -> None:
    pairs: dict[str, object] = {
        "queue": view.name,
        "status": view.status,
        "running": _bar(view),
        "available": view.available.text,
        "scheduled": view.scheduled.text,
        "retryable": view.retryable.text,
        "oldest": view.oldest_age,
        "paused by": view.paused_by,
        "paused until": view.paused_until,
        "reason": view.reason,
        "limit override": view.limit_override,
        "last node": view.last_node,
    }
    pairs |= {
        f"node {node.node}": f"{node.executing}/{node.limit}" + (" paused" if node.paused else "")
        for node in view.nodes
    }
    out.pairs({name: value for name, value in pairs.items() if value not in (None, "")})


_reason = click.option("--reason", default="", help="Why; it is shown wherever the queue is.")
_dry = click.option("--dry-run", is_flag=True, help="Print what would be done.")
_yes = click.option("--yes", is_flag=True, help="Do not ask.")
_all = click.option("--all", "all_", is_flag=True, help="All queues.")


@queues.command(
    "pause",
    cls=Command,
    examples=[
        ("jobkit queues pause mail --until 'tomorrow 08:00' --reason 'provider is down'", "Until a time."),
        ("jobkit queues pause --all --yes", "Everything; running jobs finish."),
    ],
)
@click.argument("names", nargs=-1, shell_complete=complete("queues"))
@_all
@click.option("--until", metavar="TIME", help="Resumed by itself at that time.")
@_reason
@_yes
@_dry
@click.pass_context
def pause(
    ctx: click.Context,
    names: tuple[str, ...],
    all_: bool,
    until: str | None,
    reason: str,
    yes: bool,
    dry_run: bool,
) -> None:
    """Let nothing more be claimed from queues; what runs, goes on."""
    session = session_of(ctx)
    end = _until(session, until)
    found = _named(session, names, all_)
    if dry_run:
        _would(session, found, "is paused already", "would be paused", paused=True)
        return
    if len(found) > 1:
        confirm(session, f"pause {many(len(found), 'queue')}", yes=yes)
    _print(session, [session.actions.pause_queue(view.name, until=end, reason=reason) for view in found])


@queues.command("resume", cls=Command, examples=[("jobkit queues resume mail", "Claim again.")])
@click.argument("names", nargs=-1, shell_complete=complete("queues"))
@_all
@_reason
@_yes
@_dry
@click.pass_context
def resume(
    ctx: click.Context, names: tuple[str, ...], all_: bool, reason: str, yes: bool, dry_run: bool
) -> None:
    """Undo a pause."""
    session = session_of(ctx)
    found = _named(session, names, all_)
    if dry_run:
        _would(session, found, "is not paused", "would be resumed", paused=False)
        return
    if len(found) > 1:
        confirm(session, f"resume {many(len(found), 'queue')}", yes=yes)
    _print(session, [session.actions.resume_queue(view.name, reason=reason) for view in found])


@queues.command(
    "scale",
    cls=Command,
    examples=[
        ("jobkit queues scale mail 20", "20 jobs at once on each node."),
        ("jobkit queues scale mail 5 --node web-1:123:abcd", "On one node."),
        ("jobkit queues scale mail --reset", "Back to what the nodes were configured with."),
    ],
)
@click.argument("name", shell_complete=complete("queues"))
@click.argument("limit", type=click.IntRange(0), required=False)
@click.option("--node", help="Only on this node.")
@click.option("--reset", is_flag=True, help="Take the override back.")
@_reason
@_dry
@click.pass_context
def scale(
    ctx: click.Context,
    name: str,
    limit: int | None,
    node: str | None,
    reset: bool,
    reason: str,
    dry_run: bool,
) -> None:
    """Set how many jobs of a queue run at once on each node, until it is taken back."""
    session = session_of(ctx)
    if (limit is None) != reset:
        raise CommandError("give a LIMIT or --reset", ExitCode.USAGE)
    if dry_run:
        _print(session, [session.actions.preview_scale(name, limit, node=node)])
        return
    _print(session, [session.actions.scale_queue(name, limit, node=node, reason=reason)])


# -- helpers


def _named(session: Session, names: tuple[str, ...], all_: bool) -> list[QueueView]:
    if bool(names) == all_:
        raise CommandError("name queues, or give --all", ExitCode.USAGE)
    if all_:
        return list(session.reads.queues())
    return [session.reads.queue(name) for name in names]


def _until(session: Session, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = parse_time(text, session.now(), session.given.output.zone)
    except ValueError as error:
        raise CommandError(f"--until: {error}", ExitCode.USAGE) from None
    if found <= session.now():
        raise CommandError(f"--until: {text!r} is past", ExitCode.USAGE)
    return found


def _would(session: Session, found: list[QueueView], same: str, change: str, *, paused: bool) -> None:
    rows = [
        {
            "name": view.name,
            "text": f"{view.name} {same if view.paused is paused else change}",
            "before": {"paused": view.paused},
            "after": {"paused": paused},
            "capacity_before": view.limit,
            "capacity_after": 0 if paused else view.limit,
        }
        for view in found
    ]
    session.out.items(CHANGE, rows)


def _print(session: Session, changes: list[QueueChange]) -> None:
    if session.out.human:
        for change in changes:
            session.out.write(change.text)
        return
    session.out.items(CHANGE, changes)
