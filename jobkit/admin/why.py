"""Why a job is not running: every cause that can be told from the database, and what helps.

Invariant: causes come from the same rules that nodes follow, in the order in which a job meets them; the
first one that is no mere remark is what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from sqlalchemy import func, or_, select

from jobkit.admin._ast import Query
from jobkit.admin._context import Context
from jobkit.admin._facts import Facts
from jobkit.admin._fleet_reads import Fleet, QueueRow, fleet_of, skew_of
from jobkit.admin._match import condition
from jobkit.admin._orders import state_condition
from jobkit.admin._search import Searcher
from jobkit.admin._system_reads import LIVE_FOR
from jobkit.admin.errors import NotFound
from jobkit.hookspecs import Resource
from jobkit.jobs import FINAL, JobState

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.storage.base import NodeRow

__all__ = ["Cause", "Explanation", "explain", "span"]

CauseKind: TypeAlias = Literal[
    "final",
    "executing",
    "orphaned",
    "stuck",
    "not_due",
    "not_staged",
    "paused",
    "no_nodes",
    "nodes_paused",
    "limit_zero",
    "worker_unknown",
    "queue_full",
    "behind",
    "clock_skew",
    "soon",
]
_STAGING: Final = timedelta(seconds=5)
_SKEW: Final = timedelta(seconds=2)
AHEAD: Final = 1_000


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason. `remark`: worth knowing, and not what the job waits for. `fix` is a command, if any
    helps.
    """

    kind: CauseKind
    text: str
    fix: str = ""
    remark: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that was found, the decisive cause first."""

    job_id: int
    state: JobState
    causes: tuple[Cause, ...]
    at: datetime

    @property
    def summary(self) -> str:
        """The decisive cause in a sentence."""
        return self.causes[0].text


def explain(context: Context, job_id: int) -> Explanation:
    """Looks at the job and at what it needs. Raises NotFound."""
    context.require("view.jobs", Resource("job", str(job_id)))
    with context.reading() as conn:
        searcher = context.searcher(conn, Query())
        found = searcher.by_ids([job_id])
        if not found:
            raise NotFound(f"job {job_id} is not here; it may have been pruned")
        causes = list(_Inquiry(context, conn, searcher, found[0]).causes())
    ordered = [cause for cause in causes if not cause.remark] + [cause for cause in causes if cause.remark]
    return Explanation(job_id, found[0].state, tuple(ordered), context.now)


class _Inquiry:
    def __init__(self, context: Context, conn: Connection, searcher: Searcher, job: Facts) -> None:
        self.context = context
        self.conn = conn
        self.searcher = searcher
        self.job = job
        self.fleet: Fleet = fleet_of(context, conn)
        self.queue = self.fleet.queues.get(job.queue) or QueueRow(job.queue)
        self.nodes = self.fleet.live(job.queue)

    def causes(self) -> Iterator[Cause]:
        job = self.job
        if job.state in FINAL:
            at = f" since {_at(job.finished_at)}" if job.finished_at else ""
            yield Cause("final", f"job {job.id} is {job.state.value}{at}", f"jobkit jobs retry {job.id}")
            return
        if job.state is JobState.EXECUTING:
            yield from self._running()
            return
        waiting = list(self._waiting())
        yield from waiting
        if all(cause.remark for cause in waiting):
            yield Cause("soon", "nothing stands in its way: it should be claimed within a few seconds")

    # -- executing

    def _running(self) -> Iterator[Cause]:
        job, around = self.job, self.searcher.around
        took = "" if job.duration is None else f" for {span(job.duration)}"
        if condition("orphaned", job, around):
            text = f"its node {job.node} is gone; the job is rescued by any other node within 30 s"
            yield Cause("orphaned", text, "" if self.fleet.live() else "jobkit run")
        elif condition("stuck", job, around):
            limit = around.timeout(job.worker)
            text = f"it has been executing{took} on {job.node}, longer than its timeout of {span(limit)}"
            yield Cause("stuck", text, f"jobkit jobs cancel {job.id}")
        else:
            yield Cause("executing", f"it is running{took} on {job.node}")

    # -- waiting

    def _waiting(self) -> Iterator[Cause]:
        yield from self._due()
        yield from self._paused()
        yield from self._without_nodes()
        yield from self._unknown_worker()
        yield from self._full()
        yield from self._skew()

    def _due(self) -> Iterator[Cause]:
        job, now = self.job, self.fleet.now
        if job.scheduled_at > now:
            what = f"attempt {job.attempt + 1} is" if job.state is JobState.RETRYABLE else "it is"
            text = f"{what} due at {_at(job.scheduled_at)}, in {span(job.scheduled_at - now)}"
            run_now = f"jobkit jobs run-now {job.id}"
            yield Cause("not_due", text, run_now if job.state is not JobState.AVAILABLE else "")
        elif job.state is not JobState.AVAILABLE and now - job.scheduled_at > _STAGING:
            text = f"it has been due for {span(now - job.scheduled_at)}, but no node makes due jobs available"
            fix = "jobkit stage" if self.fleet.live() else "jobkit run"
            yield Cause("not_staged", text, fix)

    def _paused(self) -> Iterator[Cause]:
        row = self.queue
        if not row.paused_at(self.fleet.now):
            return
        by = f" by {row.paused_by}" if row.paused_by else ""
        why = f" ({self.context.app.redactor.text(row.reason, kind='audit')})" if row.reason else ""
        until = f", until {_at(row.paused_until)}" if row.paused_until else ""
        text = f"its queue {row.name} is paused{by}{why}{until}"
        yield Cause("paused", text, f"jobkit queues resume {row.name}")

    def _without_nodes(self) -> Iterator[Cause]:
        name = self.job.queue
        if not self.nodes:
            others = "; other queues have nodes" if self.fleet.live() else "; there is no live node at all"
            yield Cause(
                "no_nodes",
                f"no live node works on its queue {name}{others}",
                f"jobkit run --queues {name}:10",
            )
            return
        resting = [node.node for node in self.nodes if node.wanted.get("paused") or node.wanted.get("drain")]
        if len(resting) == len(self.nodes):
            text = f"every node of its queue is paused or draining: {', '.join(resting[:5])}"
            yield Cause("nodes_paused", text, f"jobkit nodes resume {resting[0]}")
        elif all(self._limit(node) == 0 for node in self.nodes):
            text = f"the limit of its queue {name} is 0 on every node"
            yield Cause("limit_zero", text, f"jobkit queues scale {name} 10")

    def _unknown_worker(self) -> Iterator[Cause]:
        workers = self.context.app.tables.workers.c
        seen = self.conn.scalar(select(workers.last_seen_at).where(workers.name == self.job.worker))
        if seen is not None and seen >= self.fleet.now - LIVE_FOR:
            return
        if not self.fleet.live():
            return  # no node publishes anything: that is cause enough
        last = "no node has ever published it" if seen is None else f"a node last published it at {_at(seen)}"
        grace = self.context.app.config.unknown_worker_grace
        end = "" if grace is None else f"; jobs of unknown workers are discarded after {span(grace)}"
        text = f"its worker {self.job.worker} is known to no live node ({last}){end}"
        yield Cause("worker_unknown", text, "jobkit workers list --missing")

    def _limit(self, node: NodeRow) -> int:
        return self.queue.limit_on(node.node, node.queues[self.job.queue])

    def _full(self) -> Iterator[Cause]:
        active = [n for n in self.nodes if not (n.wanted.get("paused") or n.wanted.get("drain"))]
        limit = sum(map(self._limit, active))
        running = sum(
            count
            for (queue, node), count in self.fleet.executing.items()
            if queue == self.job.queue and node in {n.node for n in active}
        )
        if limit and running >= limit:
            text = f"its queue {self.job.queue} is full: {running} of {limit} slots run {self._by_what()}"
            yield Cause("queue_full", text, f"jobkit queues scale {self.job.queue} {limit * 2}")
        if self.job.state is JobState.AVAILABLE and (ahead := self._ahead()):
            many = f"{AHEAD:,} or more jobs" if ahead > AHEAD else f"{ahead:,} job{'s' * (ahead > 1)}"
            text = f"{many} of its queue come before it (by priority, then due time)"
            first = f"jobkit jobs edit {self.job.id} --priority 0" if self.job.priority > 0 else ""
            yield Cause("behind", text, first, remark=not limit)

    def _by_what(self) -> str:
        """The workers that fill the queue, most first."""
        c = self.searcher.compiler.c
        running = state_condition(self.searcher.compiler, frozenset({JobState.EXECUTING}))
        rows = self.conn.execute(
            select(c.worker, func.count())
            .where(running, c.queue == self.job.queue, self.searcher.condition)
            .group_by(c.worker)
            .order_by(func.count().desc())
            .limit(3)
        )
        return ", ".join(f"{worker} ({count})" for worker, count in rows) or "jobs that you may not see"

    def _ahead(self) -> int:
        """How many available jobs the claim takes first, counted up to a bound."""
        c, job = self.searcher.compiler.c, self.job
        same = c.priority == job.priority
        before = or_(
            c.priority < job.priority,
            same & (c.scheduled_at < job.scheduled_at),
            same & (c.scheduled_at == job.scheduled_at) & (c.id < job.id),
        )
        available = state_condition(self.searcher.compiler, frozenset({JobState.AVAILABLE}))
        rows = select(c.id).where(available, c.queue == job.queue, before).limit(AHEAD + 1).subquery()
        return self.conn.scalar(select(func.count()).select_from(rows)) or 0

    def _skew(self) -> Iterator[Cause]:
        """A node whose clock runs ahead writes due times that others must wait for."""
        for node in self.nodes:
            skew = skew_of(node, self.fleet.now)
            if skew is not None and skew > _SKEW:
                text = f"the clock of node {node.node} is {span(skew)} ahead of this machine's"
                yield Cause("clock_skew", text, "set the clocks of all machines by NTP", remark=True)


def _at(at: datetime | None) -> str:
    return "never" if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")


def span(length: timedelta | None) -> str:
    """`412 ms`, `3 s`, `4 m 10 s`, `2 h 5 m`, `3 d 4 h`."""
    if length is None:
        return "no limit"
    seconds = max(length.total_seconds(), 0)
    if seconds < 1:
        return f"{int(seconds * 1000)} ms"
    whole = int(seconds)
    for size, unit, smaller, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"
