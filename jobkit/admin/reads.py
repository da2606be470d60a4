"""Reads: everything that a page or a listing shows.

Each method is one short read-only transaction with a time limit. Invariants: nothing here can write or wait
for a writer; what an actor's row scope leaves out does not exist for them; all text is redacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobkit.admin.query import Parsed
from jobkit.admin.views import (
    AuditPage,
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
    WorkerView,
)
from jobkit.hookspecs import Actor

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["Reads"]


class Reads:
    """What `actor` may see of one app's database.

    Every method raises NotPermitted, QueryTimeout (after `timeout`), DatabaseUnreachable or NotMigrated.
    """

    def __init__(self, app: Core, actor: Actor, *, timeout: timedelta = timedelta(seconds=2)) -> None:
        self.app = app
        self.actor = actor
        self.timeout = timeout

    # -- jobs

    def parse(self, text: str) -> Parsed:
        """The query with this app's qualifiers, secret keys refused; never raises."""
        raise NotImplementedError

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
        raise NotImplementedError

    def sorts(self, query: str = "") -> tuple[SortChoice, ...]:
        """The orders of the list, and which of them the filter allows."""
        raise NotImplementedError

    def count(self, query: str = "", *, cap: int = 10_000) -> JobCount:
        """How many jobs match, counted up to `cap`."""
        raise NotImplementedError

    def states(self, query: str = "", *, cap: int = 10_000) -> StateCounts:
        """Jobs by state under the filter (its own state terms left out). Raises QueryRefused."""
        raise NotImplementedError

    def facets(self, query: str = "", *, sample: int = 10_000) -> Facets:
        """queue, worker, node, tag, priority, cron and error.class of the newest matches. Raises
        QueryRefused.
        """
        raise NotImplementedError

    def job(self, job_id: int) -> JobDetail:
        """One job. Raises NotFound, saying that it may have been pruned."""
        raise NotImplementedError

    def summaries(self, ids: Sequence[int]) -> dict[int, JobSummary]:
        """The jobs of these ids that exist and may be seen (at most 1,000)."""
        raise NotImplementedError

    def changes_since(self, query: str, *, since: datetime, limit: int = 500) -> tuple[JobSummary, ...]:
        """Jobs that were inserted, started or finished at or after that instant, oldest change first (`jobs
        tail`). Raises QueryRefused.
        """
        raise NotImplementedError

    def newer(self, query: str, after_id: int, *, cap: int = 100) -> int:
        """How many matching jobs have a higher id, counted up to `cap`. Raises QueryRefused."""
        raise NotImplementedError

    def suggest(self, text: str, position: int | None = None, *, limit: int = 10) -> tuple[Suggestion, ...]:
        """Completions at that place of a query (its end by default); empty rather than slow."""
        raise NotImplementedError

    # -- the rest

    def queues(self) -> tuple[QueueView, ...]:
        """All queues that have a row, a live node, or waiting jobs; those in trouble first."""
        raise NotImplementedError

    def queue(self, name: str) -> QueueView:
        """One queue. Raises NotFound."""
        raise NotImplementedError

    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes; live ones first."""
        raise NotImplementedError

    def node(self, node: str) -> NodeView:
        """One node. Raises NotFound."""
        raise NotImplementedError

    def cron(self, *, upcoming: int = 1, history: int = 30) -> tuple[CronView, ...]:
        """All recurring entries by key, each with so many next and past runs."""
        raise NotImplementedError

    def cron_entry(self, key: str, *, upcoming: int = 10, history: int = 50) -> CronView:
        """One recurring entry. Raises NotFound."""
        raise NotImplementedError

    def workers(self) -> tuple[WorkerView, ...]:
        """Workers that nodes have published, that this process registers, or that waiting jobs name."""
        raise NotImplementedError

    def worker(self, name: str) -> WorkerView:
        """One worker. Raises NotFound."""
        raise NotImplementedError

    def plugins(self) -> tuple[PluginView, ...]:
        """The plugins of this process with what live nodes say of them."""
        raise NotImplementedError

    def operations(self, *, limit: int = 50) -> tuple[OperationView, ...]:
        """Bulk operations, newest first."""
        raise NotImplementedError

    def operation(self, operation_id: int) -> OperationView:
        """One bulk operation. Raises NotFound."""
        raise NotImplementedError

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
        raise NotImplementedError
