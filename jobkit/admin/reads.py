"""Reads: everything that a page or a listing shows.

Each method is one short read-only transaction with a time limit. Invariants: nothing here can write or wait
for a writer; what an actor's row scope leaves out does not exist for them; all text is redacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from jobkit.admin._audit_rows import AuditFilter, audit_page
from jobkit.admin._context import Context
from jobkit.admin._cron_reads import CronReads
from jobkit.admin._fleet_reads import FleetReads
from jobkit.admin._job_reads import JobReads, PageRequest
from jobkit.admin._suggest import Suggester
from jobkit.admin._system_reads import SystemReads
from jobkit.admin.query import Parsed
from jobkit.admin.views import (
    AuditPage,
    ChangeCursor,
    ChangePage,
    CronView,
    Facets,
    JobCount,
    JobDetail,
    JobPage,
    JobSummary,
    NodeView,
    OperationView,
    PluginView,
    QueueView,
    SortChoice,
    StateCounts,
    Suggestion,
    WorkerFigures,
    WorkerView,
)
from jobkit.admin.why import Explanation, explain
from jobkit.hookspecs import Actor, Resource

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["Reads"]


class Reads:
    """What `actor` may see of one app's database.

    Every method raises NotPermitted, QueryTimeout (after `timeout`), DatabaseUnreachable or NotMigrated.
    """

    def __init__(self, app: Core, actor: Actor, *, timeout: timedelta = timedelta(seconds=2)) -> None:
        self.app: Final = app
        self.actor: Final = actor
        self.timeout: Final = timeout
        self._context = Context(app, actor, timeout)
        self._jobs = JobReads(self._context)
        self._fleet = FleetReads(self._context)
        self._cron = CronReads(self._context)
        self._system = SystemReads(self._context)

    # -- jobs

    def parse(self, text: str) -> Parsed:
        """The query with this app's qualifiers, secret keys refused; never raises."""
        return self._context.parse(text)

    def jobs(
        self,
        query: str = "",
        *,
        sort: str | None = None,
        descending: bool | None = None,
        cursor: str | None = None,
        at: datetime | None = None,
        end: bool = False,
        limit: int = 50,
        budget: timedelta = timedelta(seconds=1.5),
    ) -> JobPage:
        """One page of jobs. `at` starts it at that time, `end` gives the last page; `limit` is 1 to 200.

        Where no index serves the filter it searches in slices for at most `budget` and says how far it came.
        """
        return self._jobs.page(PageRequest(query, sort, descending, cursor, at, end, limit, budget))

    def sorts(self, query: str = "") -> tuple[SortChoice, ...]:
        """The orders of the list, and which of them the filter allows. Raises QueryRefused."""
        return self._jobs.sorts(query)

    def count(self, query: str = "", *, cap: int = 10_000) -> JobCount:
        """How many jobs match, counted up to `cap`."""
        return self._jobs.count(query, cap)

    def states(self, query: str = "", *, cap: int = 10_000) -> StateCounts:
        """Jobs by state under the filter (its own state terms left out). Raises QueryRefused."""
        return self._jobs.states(query, cap)

    def facets(self, query: str = "", *, sample: int = 10_000) -> Facets:
        """queue, worker, node, tag, priority, cron and error.class of the newest matches. Raises
        QueryRefused.
        """
        return self._jobs.facets(query, sample)

    def job(self, job_id: int) -> JobDetail:
        """One job. Raises NotFound, saying that it may have been pruned."""
        return self._jobs.job(job_id)

    def summaries(self, ids: Sequence[int]) -> dict[int, JobSummary]:
        """The jobs of these ids that exist and may be seen (at most 1,000)."""
        return self._jobs.summaries(ids)

    def changes_since(
        self, query: str, *, since: datetime, limit: int = 500, cursor: ChangeCursor | None = None
    ) -> ChangePage:
        """Jobs that were inserted, started, failed or finished at or after that instant, the oldest change
        first (`jobs tail`), up to `limit` of each kind. `cursor`: the `next` of the page before, with the same
        query and instant. Raises QueryRefused.
        """
        return self._jobs.changes_since(query, since, limit, cursor)

    def newer(self, query: str, after_id: int, *, cap: int = 100) -> int:
        """How many matching jobs have a higher id, counted up to `cap`. Raises QueryRefused."""
        return self._jobs.newer(query, after_id, cap)

    def suggest(self, text: str, position: int | None = None, *, limit: int = 10) -> tuple[Suggestion, ...]:
        """Completions at that place of a query (its end by default); empty rather than slow."""
        return Suggester(self._context).suggest(text, position, limit)

    # -- the rest

    def queues(self) -> tuple[QueueView, ...]:
        """All queues that have a row, a live node, or waiting jobs; those in trouble first."""
        return self._fleet.queues()

    def queue(self, name: str) -> QueueView:
        """One queue. Raises NotFound."""
        return self._fleet.queue(name)

    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes; live ones first."""
        return self._fleet.nodes()

    def node(self, node: str) -> NodeView:
        """One node. Raises NotFound."""
        return self._fleet.node(node)

    def cron(self, *, upcoming: int = 1, history: int = 30) -> tuple[CronView, ...]:
        """All recurring entries by key, each with so many next and past runs."""
        return self._cron.entries(upcoming, history)

    def cron_entry(self, key: str, *, upcoming: int = 10, history: int = 50) -> CronView:
        """One recurring entry. Raises NotFound."""
        return self._cron.entry(key, upcoming, history)

    def workers(self) -> tuple[WorkerView, ...]:
        """Workers that nodes have published, that this process registers, or that waiting jobs name."""
        return self._system.workers()

    def worker(self, name: str) -> WorkerView:
        """One worker. Raises NotFound."""
        return self._system.worker(name)

    def worker_figures(self, since: timedelta = timedelta(hours=24)) -> dict[str, WorkerFigures]:
        """How many jobs of each worker became final within that time; from the newest 20,000 of each final
        state, and said to be so where there are more.
        """
        return self._system.worker_figures(since)

    def plugins(self) -> tuple[PluginView, ...]:
        """The plugins of this process with what live nodes say of them."""
        return self._system.plugins()

    def operations(self, *, limit: int = 50) -> tuple[OperationView, ...]:
        """Bulk operations, newest first."""
        return self._system.operations(limit)

    def operation(self, operation_id: int) -> OperationView:
        """One bulk operation. Raises NotFound."""
        return self._system.operation(operation_id)

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        result: str | None = None,
        target: tuple[str, str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before_id: int | None = None,
        limit: int = 50,
    ) -> AuditPage:
        """Operator actions, newest first; `actor` and `action` may end in `*`; `target` is (kind, id)."""
        self._context.require("view.audit", Resource("audit"))
        with self._context.reading() as conn:
            chosen = AuditFilter(self.app, conn.dialect.name)
            for column, value in (("actor", actor), ("action", action), ("result", result)):
                chosen.name(column, value)
            chosen.between(since, until, before_id)
            if target is not None:
                chosen.target(*target)
            return audit_page(self.app, conn, chosen, min(max(limit, 1), 1_000))

    # -- explanations

    def why(self, job_id: int) -> Explanation:
        """Why a job is not running. Raises NotFound."""
        return explain(self._context, job_id)
