"""Actions: everything that an operator can do.

Invariants: each is permitted or raises NotPermitted, here and not only in the layer above; each write is
conditional on the state at that moment and may be repeated without harm; each leaves one audit row in the
transaction of its change (denied ones too), and tells `jobkit_audit` after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from jobkit.admin._bulk import BulkActions, Request
from jobkit.admin._desk import Desk
from jobkit.admin._fleet_actions import FleetActions
from jobkit.admin._insert import Inserting
from jobkit.admin._job_actions import JobActions, Order, checked_edit
from jobkit.admin._preview import Previewer
from jobkit.admin._rules import RULES
from jobkit.admin.results import (
    ActionResult,
    CronChange,
    InsertPreview,
    InsertRequest,
    InsertResult,
    JobAction,
    JobEdit,
    NodeChange,
    Preview,
    QueueChange,
    Selection,
)
from jobkit.admin.views import OperationView
from jobkit.hookspecs import Actor, Resource

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["Actions"]

_KINDS: Final = {"queues": "queue", "nodes": "node", "cron": "cron", "operations": "operation"}


class Actions:
    """What `actor` does to one app's database.

    `reason` is the operator's own words, `request_id` ties audit rows to a log. Every method raises
    NotPermitted and DatabaseUnreachable.
    """

    def __init__(self, app: Core, actor: Actor, *, request_id: str | None = None) -> None:
        self.app: Final = app
        self.actor: Final = actor
        self.request_id: Final = request_id
        self._desk = Desk(app, actor, request_id)
        self._jobs = JobActions(self._desk)
        self._inserting = Inserting(self._desk)
        self._bulk = BulkActions(self._desk)
        self._fleet = FleetActions(self._desk)

    def may(self, permission: str) -> bool:
        """Whether the actor has a permission such as `jobs.retry` (on no thing in particular); not
        audited.
        """
        return self._desk.may(permission, Resource(_KINDS.get(permission.partition(".")[0], "job")))

    # -- jobs by id (at most 500)

    def retry(self, ids: Sequence[int], *, reason: str = "") -> ActionResult:
        """discarded, cancelled, completed, retryable -> available now; max_attempts + 1 where used up."""
        return self._act("retry", ids, reason)

    def run_now(self, ids: Sequence[int], *, reason: str = "") -> ActionResult:
        """scheduled, retryable -> available now; nothing else changes."""
        return self._act("run_now", ids, reason)

    def cancel(self, ids: Sequence[int], *, reason: str = "") -> ActionResult:
        """available, scheduled, retryable, executing -> cancelled; a running one is stopped at the next
        beat.
        """
        return self._act("cancel", ids, reason)

    def delete(self, ids: Sequence[int], *, reason: str = "") -> ActionResult:
        """Removes the rows of all that are not executing; the audit keeps id, worker, queue and state."""
        return self._act("delete", ids, reason)

    def edit(
        self, ids: Sequence[int], edit: JobEdit, *, shown: JobEdit | None = None, reason: str = ""
    ) -> ActionResult:
        """Changes incomplete jobs that are not executing. `shown`: the values that the operator saw; a job
        that differs from them is a conflict. Raises Invalid.
        """
        order = Order(RULES["edit"], checked_edit(edit, self._desk.context.now), shown)
        return self._jobs.act(order, ids, reason)

    def _act(self, action: str, ids: Sequence[int], reason: str) -> ActionResult:
        return self._jobs.act(Order(RULES[action]), ids, reason)

    def preview_edit(self, job_id: int, edit: JobEdit) -> dict[str, tuple[object, object]]:
        """What an edit would change: field -> (before, after). Raises NotFound, Invalid."""
        return self._jobs.preview_edit(job_id, checked_edit(edit, self._desk.context.now))

    def insert(self, request: InsertRequest, *, reason: str = "") -> InsertResult:
        """Inserts a job; a worker that nobody knows needs `jobs.insert_any`. Raises Invalid."""
        return self._inserting.insert(request, reason)

    def insert_many(
        self,
        requests: Sequence[InsertRequest],
        *,
        reason: str = "",
        done: Callable[[Sequence[InsertResult]], None] | None = None,
    ) -> tuple[InsertResult, ...]:
        """Inserts jobs, in order: every one is checked before the first is written.

        5,000 at a time, each of these chunks in a transaction with one audit row; `done` gets the results of each that
        has committed. Raises InvalidRequests (of a single one: Invalid).
        """
        return self._inserting.insert_many(requests, reason, done)

    def preview_inserts(self, requests: Sequence[InsertRequest]) -> tuple[InsertPreview, ...]:
        """The rows that `insert_many` would write; nothing is written. Raises as it does."""
        return self._inserting.preview_many(requests)

    def preview_insert(self, request: InsertRequest) -> InsertPreview:
        """The row that `insert` would write; nothing is written. Raises Invalid."""
        return self._inserting.preview(request)

    # -- many jobs: bulk operations

    def preview(self, action: JobAction, selection: Selection) -> Preview:
        """What the action would do. Raises QueryRefused."""
        return Previewer(self._desk).preview(action, selection)

    def start(
        self,
        action: JobAction,
        selection: Selection,
        *,
        edit: JobEdit | None = None,
        key: str | None = None,
        spread: timedelta | None = None,
        max_jobs: int | None = None,
        reason: str = "",
    ) -> OperationView:
        """Writes the operation's row; `run_operation` does the work. The same one-time `key` gives the same
        operation again. `spread` (retry, run_now): start them evenly over that time. Raises QueryRefused,
        Conflict (the key belongs to another action).
        """
        return self._bulk.start(Request(action, selection, edit, key, spread, max_jobs, reason))

    def run_operation(
        self,
        operation_id: int,
        *,
        progress: Callable[[OperationView], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> OperationView:
        """Works on an operation until it is done, cancelled, or `stop()`; `progress` after each chunk.

        Resumes where a crashed process left off. Returns at once, unchanged, where another process holds its
        lease. Raises NotFound.
        """
        return self._bulk.run(operation_id, progress, stop)

    def run_open_operations(self, *, stop: Callable[[], bool] | None = None) -> int:
        """Works on every open operation that nobody has worked on for a minute; returns how many were
        finished.
        """
        return self._bulk.run_open(stop)

    def cancel_operation(self, operation_id: int, *, reason: str = "") -> OperationView:
        """Stops an operation after the chunk that is under way; what is done stays done. Raises NotFound."""
        return self._bulk.cancel(operation_id, reason)

    # -- queues, cron, nodes

    def pause_queue(self, name: str, *, until: datetime | None = None, reason: str = "") -> QueueChange:
        """No node claims from it any more (from its next beat on) until resumed, or until that time. Raises
        NotFound.
        """
        return self._fleet.pause_queue(name, until, reason)

    def resume_queue(self, name: str, *, reason: str = "") -> QueueChange:
        """Undoes a pause. Raises NotFound."""
        return self._fleet.resume_queue(name, reason)

    def scale_queue(
        self, name: str, limit: int | None, *, node: str | None = None, reason: str = ""
    ) -> QueueChange:
        """Overrides the limit (0 and above) on one node or on all; None takes the override back. Raises
        NotFound, Invalid.
        """
        return self._fleet.scale_queue(name, limit, node, reason)

    def preview_scale(self, name: str, limit: int | None, *, node: str | None = None) -> QueueChange:
        """What `scale_queue` would do; nothing is written."""
        return self._fleet.preview_scale(name, limit, node)

    def run_cron(self, key: str, *, reason: str = "") -> CronChange:
        """Enqueues the entry's job now, tagged `manual`; it does not count as a scheduled run.

        Needs an app that knows the entry. Raises NotFound, Invalid.
        """
        return self._fleet.run_cron(key, reason)

    def pause_cron(self, key: str, *, reason: str = "") -> CronChange:
        """No runs until resumed. Raises NotFound."""
        return self._fleet.pause_cron(key, reason)

    def resume_cron(self, key: str, *, reason: str = "") -> CronChange:
        """Runs again from now on; what was due meanwhile is not made up for. Raises NotFound."""
        return self._fleet.resume_cron(key, reason)

    def command_node(
        self, node: str, command: Literal["pause", "resume", "drain", "forget"], *, reason: str = ""
    ) -> NodeChange:
        """pause: claims nothing; drain: finishes its jobs and stops; resume undoes both (a node that has
        stopped stays so); forget: removes the row of a stale node. Raises NotFound, Conflict (forget a live
        node).
        """
        return self._fleet.command_node(node, command, reason)
