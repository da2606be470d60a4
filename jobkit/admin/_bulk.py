"""Bulk operations: an action on many jobs, in chunks, with a row that says how far it is.

Invariants: the set is frozen by its highest id; each chunk and the row's progress commit together, under the
row's lease, so a crash loses nothing and counts nothing twice; what a job's state does not allow is skipped,
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from jobkit.admin._bulk_plan import Plan, edit_values
from jobkit.admin._bulk_runner import LEASE, Runner
from jobkit.admin._desk import Desk, Draft
from jobkit.admin._job_actions import checked_edit
from jobkit.admin._operation_rows import operation_rows
from jobkit.admin._rules import RULES
from jobkit.admin.errors import Conflict, Invalid, NotFound
from jobkit.admin.results import Ids, JobEdit, Matching, Selection
from jobkit.admin.views import OperationView
from jobkit.hookspecs import Resource

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core

__all__ = ["BulkActions", "abandoned"]

MAX_SELECTED: Final = 10_000
MAX_SPREAD: Final = timedelta(days=7)


@dataclass(slots=True)
class Request:
    """What `start` was asked."""

    action: str
    selection: Selection
    edit: JobEdit | None = None
    key: str | None = None
    spread: timedelta | None = None
    max_jobs: int | None = None
    reason: str = ""


def abandoned(app: Core, conn: Connection, now: datetime) -> list[int]:
    """Open operations whose lease has run out, or that nobody has begun for as long."""
    c = app.tables.operations.c
    left = or_(c.lease_until < now, c.lease_until.is_(None) & (c.updated_at < now - LEASE))
    return list(conn.scalars(select(c.id).where(c.state.in_(["pending", "running"]), left).order_by(c.id)))


class BulkActions:
    """See `Actions`, whose methods these are."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._app: Core = desk.app

    # -- starting

    def start(self, request: Request) -> OperationView:
        """Writes the row."""
        rule = RULES[request.action]
        draft = Draft(rule.permission, "operation", (), request.reason)
        query = self._checked(request)
        draft.query = query
        self._desk.require(rule.permission, Resource("job"), draft)
        if request.key is not None and (known := self._by_key(request)) is not None:
            return known
        try:
            return self._desk.write(draft, lambda conn: self._written(conn, request, query, draft))
        except IntegrityError:  # the same form, submitted twice at once
            found = self._by_key(request)
            if found is None:
                raise
            return found

    def _checked(self, request: Request) -> str | None:
        """The query printed, None for ids. Raises QueryRefused and Invalid."""
        if request.spread is not None and not timedelta(0) < request.spread <= MAX_SPREAD:
            raise Invalid("spread is more than 0 and at most 7 days")
        if request.spread is not None and request.action not in ("retry", "run_now"):
            raise Invalid("only retry and run-now can be spread")
        if (request.action == "edit") is (request.edit is None):
            raise Invalid("an edit needs what to change, and nothing else does")
        if isinstance(request.selection, Matching):
            return str(self._desk.context.query(request.selection.query).without("sort"))
        if not 1 <= len(request.selection.ids) <= MAX_SELECTED:
            raise Invalid(f"between 1 and {MAX_SELECTED:,} ids can be selected")
        return None

    def _by_key(self, request: Request) -> OperationView | None:
        """The operation that this one-time key made. Raises Conflict where it made another one."""
        table = self._app.tables.operations
        with self._desk.context.reading() as conn:
            row = conn.execute(
                select(table.c.id, table.c.action, table.c.actor).where(table.c.one_time_key == request.key)
            ).first()
            if row is None:
                return None
            if (row.action, row.actor) != (request.action, self._desk.actor.id):
                raise Conflict("this form was used for another action; load it again")
            return next(operation_rows(self._app, conn, operation_id=row.id))

    def _written(self, conn: Connection, request: Request, query: str | None, draft: Draft) -> OperationView:
        table, now = self._app.tables.operations, self._desk.context.now
        plan = self._plan(request, now)
        made = conn.execute(
            insert(table).values(
                one_time_key=request.key,
                actor=self._desk.actor.id,
                action=request.action,
                params=plan.dumped(),
                query=query,
                max_id=self._max_id(conn, request.selection),
                state="pending",
                total=None if plan.ids is None else len(plan.ids),
                results="{}",
                created_at=now,
                updated_at=now,
            )
        )
        operation_id = int(made.inserted_primary_key[0])  # type: ignore[index]
        draft.operation_id, draft.ids, draft.count = operation_id, (str(operation_id),), 1
        return next(operation_rows(self._app, conn, operation_id=operation_id))

    def _max_id(self, conn: Connection, selection: Selection) -> int:
        if isinstance(selection, Ids):
            return max(selection.ids)
        highest = conn.scalar(select(func.max(self._app.tables.jobs.c.id))) or 0
        return highest if selection.max_id is None else min(selection.max_id, highest)

    def _plan(self, request: Request, now: datetime) -> Plan:
        actor = self._desk.actor
        edit = None if request.edit is None else edit_values(checked_edit(request.edit, now))
        ids = sorted(set(request.selection.ids)) if isinstance(request.selection, Ids) else None
        return Plan(
            actor={
                "id": actor.id,
                "label": actor.label,
                "via": actor.via,
                "roles": sorted(actor.roles),
                "attributes": dict(actor.attributes),
            },
            scope=str(self._desk.context.scope),
            ids=ids,
            edit=edit,
            spread=None if request.spread is None else request.spread.total_seconds(),
            max_jobs=request.max_jobs,
            reason=request.reason,
            counted=ids is not None,
            begun_at=now.isoformat(),
        )

    # -- running

    def run(
        self,
        operation_id: int,
        progress: Callable[[OperationView], None] | None,
        stop: Callable[[], bool] | None,
    ) -> OperationView:
        """Works on it."""
        runner = Runner(self._app, operation_id)
        return runner.run(progress or (lambda _: None), stop or (lambda: False))

    def run_open(self, stop: Callable[[], bool] | None) -> int:
        """Works on all that no living process holds."""
        finished = 0
        with self._desk.context.reading() as conn:
            ids = abandoned(self._app, conn, self._desk.context.now)
        for operation_id in ids:
            if stop is not None and stop():
                break
            finished += not self.run(operation_id, None, stop).open
        return finished

    def cancel(self, operation_id: int, reason: str) -> OperationView:
        """Asks whoever works on it to stop; one that nobody works on stops at once."""
        table, now = self._app.tables.operations, self._desk.context.now
        draft = Draft("operations.cancel", "operation", [operation_id], reason)
        with self._desk.context.reading() as conn:
            found = list(operation_rows(self._app, conn, operation_id=operation_id))
        if not found:
            raise NotFound(f"there is no operation {operation_id}")
        mine = found[0].actor == self._desk.actor.id and self._desk.may(
            RULES[found[0].action].permission, Resource("job")
        )
        if not mine:
            self._desk.require("operations.cancel", Resource("operation", str(operation_id)), draft)

        def work(conn: Connection) -> OperationView:
            open_ = [table.c.id == operation_id, table.c.state.in_(["pending", "running"])]
            idle = or_(table.c.lease_until.is_(None), table.c.lease_until < now)
            conn.execute(update(table).where(*open_).values(cancel_requested=True, updated_at=now))
            conn.execute(update(table).where(*open_, idle).values(state="cancelled", finished_at=now))
            return next(operation_rows(self._app, conn, operation_id=operation_id))

        return self._desk.write(draft, work)
