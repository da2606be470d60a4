"""Reads of queues and nodes.

Invariant: each number comes from an index and is capped; the age of a node's last beat is told by our clock
against the node's, and named stale only where both could agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Select, bindparam, func, literal_column, select, union_all

from jobkit.admin._ast import Exact, Query, Term
from jobkit.admin._compile import Compiler
from jobkit.admin._context import Context
from jobkit.admin._orders import state_condition
from jobkit.admin.errors import NotFound
from jobkit.admin.views import Count, NodeView, QueueNode, QueueStatus, QueueView
from jobkit.hookspecs import Resource
from jobkit.jobs import MAX_PRIORITY, JobState
from jobkit.storage.base import NodeRow

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Fleet", "FleetReads", "fleet_of", "is_stale"]

CAP: Final = 10_000
_TROUBLE: Final[Mapping[QueueStatus, int]] = {
    "no nodes": 0,
    "part paused": 1,
    "paused": 2,
    "stopping": 3,
    "running": 4,
}
_EXECUTING: Final = frozenset({JobState.EXECUTING})
_STAGED: Final = frozenset({JobState.SCHEDULED, JobState.RETRYABLE})


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One row of `job_queues`."""

    name: str
    paused: bool = False
    paused_until: datetime | None = None
    reason: str = ""
    paused_by: str | None = None
    limit_override: int | None = None
    node_limits: Mapping[str, int] = field(default_factory=dict)

    def paused_at(self, now: datetime) -> bool:
        """Whether the pause is in force."""
        return self.paused and (self.paused_until is None or self.paused_until > now)

    def limit_on(self, node: str, own: int) -> int:
        """The limit in force on a node whose configuration says `own`."""
        override = self.override_on(node)
        return own if override is None else override

    def override_on(self, node: str) -> int | None:
        """What the row says for that node."""
        return self.node_limits.get(node, self.limit_override)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The small tables, read once."""

    queues: Mapping[str, QueueRow]
    nodes: Sequence[NodeRow]
    executing: Mapping[tuple[str, str | None], int]
    """(queue, node) -> executing jobs."""
    now: datetime
    dead_after: timedelta

    def live(self, queue: str | None = None) -> list[NodeRow]:
        """Nodes that are not stale, of one queue or of all."""
        nodes = [node for node in self.nodes if not is_stale(node, self.now, self.dead_after)]
        return nodes if queue is None else [node for node in nodes if queue in node.queues]


def is_stale(node: NodeRow, now: datetime, dead_after: timedelta) -> bool:
    """Marked lost, or silent for twice `dead_after` by our clock: a doubt about the other's clock counts for
    the node.
    """
    return node.lost_at is not None or now - node.heartbeat_at > 2 * dead_after


def fleet_of(context: Context, conn: Connection) -> Fleet:
    """Reads queues, nodes, and who executes how many."""
    app = context.app
    return Fleet(
        queue_rows(context, conn),
        app.storage.nodes(conn),
        _executing(context, conn),
        context.now,
        app.config.dead_after,
    )


def queue_rows(context: Context, conn: Connection) -> dict[str, QueueRow]:
    """All queue rows, by name."""
    return {row["name"]: queue_row(row) for row in _mappings(conn, select(context.app.tables.queues))}


def queue_row(row: Mapping[str, Any]) -> QueueRow:
    """A row as read."""
    try:
        limits = json.loads(row["node_limits"])
    except ValueError:
        limits = {}
    return QueueRow(
        row["name"],
        bool(row["paused"]),
        row["paused_until"],
        row["reason"] or "",
        row["paused_by"],
        row["limit_override"],
        {str(node): int(limit) for node, limit in limits.items()} if isinstance(limits, dict) else {},
    )


def _mappings(conn: Connection, statement: Any) -> list[Mapping[str, Any]]:
    return [dict(row._mapping) for row in conn.execute(statement)]


def _executing(context: Context, conn: Connection) -> dict[tuple[str, str | None], int]:
    searcher = context.searcher(conn, Query((Term("state", (Exact("executing", "executing"),)),)))
    c = searcher.compiler.c
    running = state_condition(searcher.compiler, _EXECUTING)
    rows = conn.execute(
        select(c.queue, c.attempted_by, func.count())
        .where(running, searcher.condition)
        .group_by(c.queue, c.attempted_by)
    )
    return {(queue, node): count for queue, node, count in rows}


class FleetReads:
    """See `Reads`, whose methods these are."""

    def __init__(self, context: Context) -> None:
        self._context = context

    # -- queues

    def queues(self) -> tuple[QueueView, ...]:
        """All, those in trouble first."""
        self._context.require("view.queues", Resource("queue"))
        with self._context.reading() as conn:
            return self.views(conn)

    def views(self, conn: Connection) -> tuple[QueueView, ...]:
        """All, on a connection that is open already."""
        return tuple(sorted(self._views(conn, None), key=_trouble))

    def queue(self, name: str) -> QueueView:
        """One."""
        self._context.require("view.queues", Resource("queue", name))
        with self._context.reading() as conn:
            for view in self._views(conn, name):
                return view
        raise NotFound(f"there is no queue {name!r}")

    def _views(self, conn: Connection, only: str | None) -> list[QueueView]:
        fleet = fleet_of(self._context, conn)
        waiting = _Waiting(self._context, conn)
        names = waiting.names(fleet.queues, fleet.nodes, fleet.executing)
        return [self._view(name, fleet, waiting) for name in names if only is None or name == only]

    def _view(self, name: str, fleet: Fleet, waiting: _Waiting) -> QueueView:
        row = fleet.queues.get(name) or QueueRow(name)
        nodes = tuple(_queue_node(row, node, fleet) for node in fleet.live(name))
        oldest = waiting.oldest(name)
        available = waiting.available(name)
        return QueueView(
            name=name,
            status=_status(row, nodes, fleet, name),
            paused=row.paused_at(fleet.now),
            paused_until=row.paused_until,
            reason=self._context.app.redactor.text(row.reason, kind="audit"),
            paused_by=row.paused_by,
            limit_override=row.limit_override,
            limit=sum(node.limit for node in nodes if not node.paused),
            executing=sum(count for (queue, _), count in fleet.executing.items() if queue == name),
            available=available,
            scheduled=waiting.staged(name, JobState.SCHEDULED),
            retryable=waiting.staged(name, JobState.RETRYABLE),
            oldest_available_at=oldest,
            oldest_age=None if oldest is None else max(fleet.now - oldest, timedelta(0)),
            nodes=nodes,
            last_node=None if nodes else _last_node(fleet.nodes, name),
        )

    # -- nodes

    def nodes(self) -> tuple[NodeView, ...]:
        """All, live ones first."""
        self._context.require("view.nodes", Resource("node"))
        with self._context.reading() as conn:
            fleet = fleet_of(self._context, conn)
        views = [self._node_view(node, fleet) for node in fleet.nodes]
        return tuple(sorted(views, key=lambda view: (view.stale, view.node)))

    def node(self, name: str) -> NodeView:
        """One."""
        for view in self.nodes():
            if view.node == name:
                return view
        raise NotFound(f"there is no node {name!r}")

    def _node_view(self, node: NodeRow, fleet: Fleet) -> NodeView:
        info = self._context.app.redactor.value(dict(node.info), path="info", kind="log")
        executing = sum(count for (_, owner), count in fleet.executing.items() if owner == node.node)
        stale = is_stale(node, fleet.now, fleet.dead_after)
        limits = {
            queue: (fleet.queues.get(queue) or QueueRow(queue)).limit_on(node.node, limit)
            for queue, limit in node.queues.items()
        }
        return NodeView(
            node=node.node,
            queues=limits,
            executing=executing,
            capacity=sum(limits.values()),
            started_at=node.started_at,
            heartbeat_at=node.heartbeat_at,
            heartbeat_age=fleet.now - node.heartbeat_at,
            lost_at=node.lost_at,
            stale=stale,
            paused=bool(node.wanted.get("paused")),
            draining=bool(node.wanted.get("drain")),
            clock_skew=skew_of(node, fleet.now),
            info=info if isinstance(info, dict) else {},
            orphans=executing if node.lost_at is not None else 0,
        )


def skew_of(node: NodeRow, now: datetime) -> timedelta | None:
    """By how much at least the node's clock is ahead of ours; None where one look cannot tell."""
    ahead = node.heartbeat_at - now
    return ahead if node.lost_at is None and ahead > timedelta(0) else None


def _queue_node(row: QueueRow, node: NodeRow, fleet: Fleet) -> QueueNode:
    return QueueNode(
        node=node.node,
        limit=row.limit_on(node.node, node.queues[row.name]),
        override=row.override_on(node.node),
        executing=fleet.executing.get((row.name, node.node), 0),
        paused=bool(node.wanted.get("paused") or node.wanted.get("drain")),
        started_at=node.started_at,
        heartbeat_at=node.heartbeat_at,
    )


def _status(row: QueueRow, nodes: Sequence[QueueNode], fleet: Fleet, name: str) -> QueueStatus:
    if row.paused_at(fleet.now):
        return "paused"
    if not nodes:
        return "no nodes"
    paused = [node.paused for node in nodes]
    if all(paused):
        draining = [node.node for node in fleet.live(name) if node.wanted.get("drain")]
        return "stopping" if len(draining) == len(nodes) else "paused"
    return "part paused" if any(paused) else "running"


def _last_node(nodes: Iterable[NodeRow], queue: str) -> str | None:
    mine = [node for node in nodes if queue in node.queues]
    return max(mine, key=lambda node: node.heartbeat_at).node if mine else None


def _trouble(view: QueueView) -> tuple[int, float, str]:
    """Trouble first: no nodes for waiting jobs, pauses, then the longest wait."""
    rank = _TROUBLE[view.status]
    if view.status == "no nodes" and not (view.available.value or view.scheduled.value):
        rank = len(_TROUBLE)
    age = view.oldest_age.total_seconds() if view.oldest_age else 0.0
    return rank, -age, view.name


class _Waiting:
    """What waits, by queue: one index look-up for each number."""

    def __init__(self, context: Context, conn: Connection) -> None:
        self._conn = conn
        searcher = context.searcher(conn, Query())
        self._compiler: Compiler = searcher.compiler
        self._scope = searcher.condition
        self._available = state_condition(self._compiler, frozenset({JobState.AVAILABLE}))
        self._staged, self._staged_capped = self._count_staged()

    def names(
        self,
        rows: Iterable[str],
        nodes: Iterable[NodeRow],
        executing: Iterable[tuple[str, str | None]],
    ) -> list[str]:
        """Every queue that anything speaks of."""
        names = set(rows) | {queue for node in nodes if node.lost_at is None for queue in node.queues}
        names |= {queue for queue, _ in executing} | {queue for queue, _ in self._staged}
        return sorted(names | set(self._with_available()))

    def _with_available(self) -> list[str]:
        """The distinct queues in the claim index, each found by skipping to the next."""
        c, found = self._compiler.c, list[str]()
        while True:
            behind = c.queue > found[-1] if found else literal_column("1") == literal_column("1")
            name = self._conn.scalar(select(func.min(c.queue)).where(self._available, behind))
            if name is None or len(found) >= 1_000:
                return found
            found.append(name)

    def available(self, queue: str) -> Count:
        """Available jobs, up to the cap."""
        count = self._conn.scalar(self._count_available, {"queue": queue}) or 0
        return Count(CAP, "at_least") if count > CAP else Count(count)

    def oldest(self, queue: str) -> datetime | None:
        """When the longest waiting available job was due."""
        oldest: datetime | None = self._conn.scalar(self._oldest, {"queue": queue})
        return oldest

    @cached_property
    def _count_available(self) -> Select[int]:
        """Made once: making a statement costs more than running it."""
        rows = (
            select(literal_column("1"))
            .select_from(self._compiler.jobs)
            .where(self._available, self._compiler.c.queue == bindparam("queue"), self._scope)
            .limit(CAP + 1)
            .subquery()
        )
        return select(func.count()).select_from(rows)

    @cached_property
    def _oldest(self) -> Select[Any]:
        """The first of each priority in the claim index."""
        c = self._compiler.c
        firsts = [
            select(
                select(c.scheduled_at)
                .where(self._available, c.queue == bindparam("queue"), c.priority == priority, self._scope)
                .order_by(c.scheduled_at)
                .limit(1)
                .scalar_subquery()
                .label("due")
            )
            for priority in range(MAX_PRIORITY + 1)
        ]
        due = union_all(*firsts).subquery()
        return select(func.min(due.c.due, type_=c.scheduled_at.type))

    def staged(self, queue: str, state: JobState) -> Count:
        """Scheduled or retryable jobs among the first of the staging index."""
        count = self._staged.get((queue, state), 0)
        return Count(count, "at_least" if self._staged_capped else "exact")

    def _count_staged(self) -> tuple[Mapping[tuple[str, JobState], int], bool]:
        c = self._compiler.c
        first = (
            select(c.queue, c.state)
            .where(state_condition(self._compiler, _STAGED), self._scope)
            .order_by(c.scheduled_at, c.id)
            .limit(CAP + 1)
            .subquery()
        )
        rows = self._conn.execute(
            select(first.c.queue, first.c.state, func.count()).group_by(first.c.queue, first.c.state)
        )
        counted = {(queue, JobState(state)): int(count) for queue, state, count in rows}
        return counted, sum(counted.values()) > CAP
