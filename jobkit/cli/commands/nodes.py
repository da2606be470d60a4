"""`jobkit nodes`: who runs jobs, and telling them to pause, drain or be forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

import click

from jobkit.cli.completing import complete
from jobkit.cli.confirm import confirm
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Group
from jobkit.cli.output import Output
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.times import DurationParam
from jobkit.cli.watch import watch
from jobkit.cli.words import many

if TYPE_CHECKING:
    from jobkit.admin.views import NodeView

__all__ = ["SHAPES", "nodes"]

NodeCommand = Literal["pause", "resume", "drain", "forget"]


def _status(node: NodeView) -> str:
    if node.stale:
        return "lost" if node.lost_at else "stale"
    return "draining" if node.draining else "paused" if node.paused else "running"


_STYLES: Final = {"running": "green", "paused": "yellow", "draining": "yellow", "stale": "red", "lost": "red"}
_FIELDS: Final = (
    Field("node", help="its id", column="node"),
    Field(
        "status",
        get=_status,
        help="running, paused, draining, stale or lost",
        column="status",
        style=lambda n: _STYLES.get(_status(n), ""),
    ),
    Field(
        "queues",
        "object",
        help="its queues with their limits",
        column="queues",
        show=lambda n: ", ".join(f"{name}:{limit}" for name, limit in n.queues.items()),
    ),
    Field(
        "executing",
        "integer",
        help="jobs that run on it",
        column="running",
        show=lambda n: f"{n.executing}/{n.capacity}",
    ),
    Field("capacity", "integer", help="how many may run"),
    Field("started_at", "time", help="since when", column="started"),
    Field("heartbeat_at", "time", help="its last sign of life, by its own clock", column="heartbeat"),
    Field("heartbeat_age", "seconds", help="how long that is ago, by ours"),
    Field("lost_at", "time", help="when it was declared dead", nullable=True),
    Field("stale", "boolean", help="whether it is lost or silent for too long"),
    Field("paused", "boolean", help="whether it was told to pause"),
    Field("draining", "boolean", help="whether it was told to drain"),
    Field("clock_skew", "seconds", help="its clock minus ours", nullable=True),
    Field("orphans", "integer", help="executing jobs that it left"),
    Field("info", "object", help="versions, process, memory, its services' last ticks"),
)
LIST: Final = Shape("nodes.list", _FIELDS, title="Nodes")
SHOW: Final = Shape("nodes.show", _FIELDS, listing=False, title="One node")
CHANGE: Final = Shape(
    "nodes.change",
    (
        Field("node", help="the node", column="node"),
        Field("text", help="what was asked of it", column="what"),
    ),
    title="What was asked of nodes",
)
SHAPES: Final = (LIST, SHOW, CHANGE)


@click.group(cls=Group)
def nodes() -> None:
    """List and show nodes; tell them to pause, drain, resume; forget stale ones."""


@nodes.command(
    "list",
    cls=Command,
    examples=[
        ("jobkit nodes", "All nodes, live ones first."),
        ("jobkit nodes list --stale", "Only silent ones."),
    ],
)
@click.option("--stale", is_flag=True, help="Only those that are lost or silent for too long.")
@click.option("--watch", "interval", type=DurationParam(), metavar="DURATION", help="Again and again.")
@click.pass_context
def list_(ctx: click.Context, stale: bool, interval: timedelta | None) -> None:
    """List nodes."""
    session = session_of(ctx)

    def draw() -> None:
        found = [node for node in session.reads.nodes() if node.stale or not stale]
        session.out.items(LIST, found, empty="no stale nodes" if stale else "no nodes; start one: jobkit run")

    watch(session, interval, draw)


@nodes.command(
    "show", cls=Command, examples=[("jobkit nodes show web-1:123:abcd", "Everything it says of itself.")]
)
@click.argument("node", shell_complete=complete("nodes"))
@click.pass_context
def show(ctx: click.Context, node: str) -> None:
    """Show one node with its versions, process and services."""
    session = session_of(ctx)
    view = session.reads.node(_whole(session, node))
    session.out.item(SHOW, view, lambda out: _draw(out, view))


def _draw(out: Output, view: NodeView) -> None:
    pairs: dict[str, object] = {
        "node": view.node,
        "status": _status(view),
        "queues": view.queues,
        "running": f"{view.executing}/{view.capacity}",
        "started": view.started_at,
        "heartbeat": view.heartbeat_at,
        "lost": view.lost_at,
        "clock skew": view.clock_skew,
        "orphans": view.orphans or None,
        **view.info,
    }
    services = pairs.pop("services", None)
    if isinstance(services, dict):
        pairs |= {f"service {name}": facts for name, facts in services.items()}
    out.pairs({name: value for name, value in pairs.items() if value is not None})


def _register(command: NodeCommand, text: str, example: str) -> None:
    @nodes.command(
        command, cls=Command, help=text, examples=[(example, text.split(".", maxsplit=1)[0] + ".")]
    )
    @click.argument("names", nargs=-1, shell_complete=complete("nodes"))
    @click.option("--all", "all_", is_flag=True, help="All nodes; with forget: all stale ones.")
    @click.option("--reason", default="", help="Why; it is kept in the audit.")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @click.option("--dry-run", is_flag=True, help="Print what would be done.")
    @click.pass_context
    def run(
        ctx: click.Context, names: tuple[str, ...], all_: bool, reason: str, yes: bool, dry_run: bool
    ) -> None:
        _tell(session_of(ctx), command, names, all_, reason, yes, dry_run)


def _tell(
    session: Session,
    command: NodeCommand,
    names: tuple[str, ...],
    all_: bool,
    reason: str,
    yes: bool,
    dry_run: bool,
) -> None:
    if bool(names) == all_:
        raise CommandError("name nodes, or give --all", ExitCode.USAGE)
    if all_:
        wanted = [node.node for node in session.reads.nodes() if node.stale is (command == "forget")]
    else:
        wanted = [_whole(session, name) for name in names]
    if dry_run:
        rows = [{"node": name, "text": f"would {command} {name}"} for name in wanted]
        session.out.items(CHANGE, rows, empty="no nodes")
        return
    if len(wanted) > 1 or command == "forget":
        confirm(
            session,
            f"{command} {many(len(wanted), 'node')}" if len(wanted) != 1 else f"{command} {wanted[0]}",
            yes=yes,
        )
    changes = [session.actions.command_node(name, command, reason=reason) for name in wanted]
    if session.out.human:
        for change in changes:
            session.out.write(change.text)
        return
    session.out.items(CHANGE, changes, empty="no nodes")


def _whole(session: Session, name: str) -> str:
    """The id of the node that is named, or that is the only one to begin so."""
    known = [node.node for node in session.reads.nodes()]
    if name in known:
        return name
    near = [node for node in known if node.startswith(name)]
    if len(near) == 1:
        return near[0]
    if near:
        raise CommandError(f"{name!r} could be {' or '.join(near[:5])}", ExitCode.USAGE)
    raise CommandError(f"there is no node {name!r}", ExitCode.NOT_FOUND, hint="list them: jobkit nodes")


_register(
    "pause", "Let a node claim nothing more; what runs on it, goes on.", "jobkit nodes pause web-1:123:abcd"
)
_register("resume", "Undo a pause or a drain that has not ended yet.", "jobkit nodes resume web-1:123:abcd")
_register(
    "drain", "Let a node finish its jobs, then stop.", "jobkit nodes drain web-1:123:abcd --reason deploy"
)
_register(
    "forget",
    "Remove the row of a node that is stale. Its jobs are rescued.",
    "jobkit nodes forget --all --yes",
)
