"""Bulk operations: an action on many jobs, in chunks, with a row that says how far it is.

Invariants: the set is frozen by its highest id; each chunk and the row's progress commit together, under the
row's lease, so a crash loses nothing and counts nothing twice; what a job's state does not allow is skipped,
with the reason.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from jobkit.admin._ast import Query
from jobkit.admin._desk import Desk, Draft
from jobkit.admin._job_actions import Chunk, JobActions, Order, checked_edit
from jobkit.admin._operation_rows import operation_rows
from jobkit.admin._orders import walk_of
from jobkit.admin._rules import RULES
from jobkit.admin.access import vocabulary
from jobkit.admin.errors import AdminError, Conflict, Invalid, NotFound
from jobkit.admin.query import parse
from jobkit.admin.results import Ids, JobEdit, Matching, Selection
from jobkit.admin.views import OperationView
from jobkit.hookspecs import Actor, Resource

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core

__all__ = ["BulkActions"]

CHUNK: Final = {"sqlite": 500, "postgresql": 1_000}
PAUSE: Final = {"sqlite": 3.0, "postgresql": 0.5}
"""How long to leave the database to others after a chunk, in multiples of the chunk's own time."""
LEASE: Final = timedelta(seconds=60)
KEPT_RESULTS: Final = 100
MAX_SELECTED: Final = 10_000
COUNTED: Final = 100_000
MAX_SPREAD: Final = timedelta(days=7)


class _LeaseLost(Exception):
    """Another process has taken the operation over."""


@dataclass(slots=True)
class _Plan:
    """What `params` keeps: all that is needed to go on in another process."""

    actor: dict[str, Any]
    scope: str = ""
    ids: list[int] | None = None
    edit: dict[str, Any] | None = None
    spread: float | None = None
    max_jobs: int | None = None
    reason: str = ""
    position: int | None = None
    """The id after which to go on; an index into `ids` where they are given."""
    counted: bool = False
    begun_at: str = ""

    @classmethod
    def loaded(cls, text: str) -> _Plan:
        """From the row."""
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in json.loads(text).items() if name in known})

    def dumped(self) -> str:
        """For the row."""
        return json.dumps(asdict(self))

    def order(self, action: str, total: int) -> Order:
        """What to do to each job."""
        due: Callable[[int], datetime] | None = None
        if self.spread is not None:
            due = partial(_spread_due, datetime.fromisoformat(self.begun_at), self.spread, max(total, 1))
        return Order(RULES[action], _edit_from(self.edit), None, due)


def _spread_due(begin: datetime, seconds: float, total: int, place: int) -> datetime:
    """Evenly over the span, in the order of the ids."""
    return begin + timedelta(seconds=seconds * min(place / total, 1.0))


def _edit_from(values: dict[str, Any] | None) -> JobEdit | None:
    if values is None:
        return None
    at = values.get("scheduled_at")
    tags = values.get("tags")
    return JobEdit(
        **{
            **values,
            "scheduled_at": datetime.fromisoformat(at) if at else None,
            "tags": None if tags is None else tuple(tags),
            "add_tags": tuple(values.get("add_tags", ())),
            "remove_tags": tuple(values.get("remove_tags", ())),
        }
    )


def _edit_values(edit: JobEdit) -> dict[str, Any]:
    return {
        **asdict(edit),
        "scheduled_at": edit.scheduled_at.isoformat() if edit.scheduled_at else None,
        "tags": None if edit.tags is None else list(edit.tags),
        "add_tags": list(edit.add_tags),
        "remove_tags": list(edit.remove_tags),
    }


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

    def _plan(self, request: Request, now: datetime) -> _Plan:
        actor = self._desk.actor
        edit = None if request.edit is None else _edit_values(checked_edit(request.edit, now))
        ids = sorted(set(request.selection.ids)) if isinstance(request.selection, Ids) else None
        return _Plan(
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
        runner = _Runner(self._app, operation_id)
        return runner.run(progress or (lambda _: None), stop or (lambda: False))

    def run_open(self, stop: Callable[[], bool] | None) -> int:
        """Works on all that no living process holds."""
        table, finished = self._app.tables.operations, 0
        with self._desk.context.reading() as conn:
            now = self._desk.context.now
            ids = list(
                conn.scalars(
                    select(table.c.id)
                    .where(
                        table.c.state.in_(["pending", "running"]),
                        or_(table.c.lease_until.is_(None), table.c.lease_until < now),
                    )
                    .order_by(table.c.id)
                )
            )
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


@dataclass(slots=True)
class _Told:
    """What `results` keeps."""

    jobs: list[list[Any]] = field(default_factory=list)
    skips: Counter[str] = field(default_factory=Counter)

    @classmethod
    def loaded(cls, text: str) -> _Told:
        found = json.loads(text)
        if not isinstance(found, dict):
            return cls()
        return cls(list(found.get("jobs", [])), Counter(found.get("skips", {})))

    def add(self, chunk: Chunk) -> None:
        for result in chunk.results:
            if result.result == "done":
                continue
            reason = result.text.replace(f"job {result.id} ", "", 1)
            shown = reason if len(self.skips) < KEPT_RESULTS or reason in self.skips else "other reasons"
            self.skips[shown if result.result != "conflict" else "conflict"] += 1
            if len(self.jobs) < KEPT_RESULTS:
                self.jobs.append([result.id, result.result, result.text])

    def dumped(self) -> str:
        return json.dumps({"jobs": self.jobs, "skips": dict(self.skips)})


class _Runner:
    """One process working on one operation."""

    def __init__(self, app: Core, operation_id: int) -> None:
        self.app = app
        self.id = operation_id
        self.table = app.tables.operations
        self.me = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.plan = _Plan({})
        self.told = _Told()
        self.row: Mapping[str, Any] = {}
        self.queues: set[str] = set()

    def run(self, progress: Callable[[OperationView], None], stop: Callable[[], bool]) -> OperationView:
        """Chunk after chunk."""
        desk = Desk(self.app, Actor("system"), None)
        if not self._take(desk):
            return self._view(desk)
        try:
            desk = self._acting()
            self._count(desk)
            while not stop():
                more = self._step(desk)
                progress(self._view(desk))
                if not more:
                    break
            else:
                self._release(desk)
        except _LeaseLost:
            pass
        except AdminError as error:
            self._end(desk, "failed", str(error))
        return self._view(desk)

    def _acting(self) -> Desk:
        """A desk for whoever started it: their policies and their scope count, not those of this process."""
        actor = self.plan.actor
        desk = Desk(
            self.app,
            Actor(
                actor["id"],
                actor.get("label", ""),
                actor.get("via", "system"),
                frozenset(actor.get("roles", ())),
                actor.get("attributes", {}),
            ),
            None,
        )
        parsed = parse(self.plan.scope, vocabulary(self.app))
        if parsed.problems:
            raise AdminError("the row scope of this operation can no longer be read; nothing was done")
        desk.context.scope = parsed.query
        return desk

    def _view(self, desk: Desk) -> OperationView:
        with desk.context.reading() as conn:
            for view in operation_rows(self.app, conn, operation_id=self.id):
                return view
        raise NotFound(f"there is no operation {self.id}")

    # -- the lease

    def _take(self, desk: Desk) -> bool:
        c, now = self.table.c, desk.context.now

        def work(conn: Connection) -> bool:
            free = or_(c.lease_until.is_(None), c.lease_until < now, c.lease_by == self.me)
            mine = [c.id == self.id, c.state.in_(["pending", "running"]), free]
            values = {"state": "running", "lease_by": self.me, "lease_until": now + LEASE}
            if not conn.execute(update(self.table).where(*mine).values(**values)).rowcount:
                return False
            self.row = dict(conn.execute(select(self.table).where(c.id == self.id)).one()._mapping)
            return True

        taken = desk.transaction(work)
        if taken:
            self.plan = _Plan.loaded(self.row["params"])
            self.told = _Told.loaded(self.row["results"])
        return taken

    def _save(self, conn: Connection, desk: Desk, **values: object) -> None:
        """Writes progress under the lease. Raises _LeaseLost."""
        now = desk.context.now
        held = [self.table.c.id == self.id, self.table.c.lease_by == self.me]
        written = {"lease_until": now + LEASE, "updated_at": now, **values}
        if not conn.execute(update(self.table).where(*held).values(**written)).rowcount:
            raise _LeaseLost

    def _release(self, desk: Desk) -> None:
        desk.transaction(lambda conn: self._save(conn, desk, lease_until=None, lease_by=None))

    def _end(self, desk: Desk, state: str, error: str | None = None) -> None:
        now = desk.context.now
        values = {"state": state, "error": error, "finished_at": now, "lease_until": None}
        desk.transaction(lambda conn: self._save(conn, desk, **values))

    # -- the work

    @property
    def _query(self) -> Query:
        return parse(self.row["query"] or "", vocabulary(self.app)).query

    def _count(self, desk: Desk) -> None:
        """How many there are, once; a spread needs to know."""
        if self.row["total"] is not None:
            return
        frozen = self._frozen()
        with desk.context.reading() as conn:
            tally = desk.context.searcher(conn, frozen, timedelta(seconds=5)).tally(COUNTED)
        total = sum(tally.counts.values())
        if self.plan.max_jobs is not None:
            total = min(total, self.plan.max_jobs)
        self.plan.counted = tally.edge is None or total == self.plan.max_jobs
        params = self.plan.dumped()
        desk.transaction(lambda conn: self._save(conn, desk, total=total, params=params))
        self.row = {**self.row, "total": total}

    def _frozen(self) -> Query:
        return self._query & parse(f"id:..{self.row['max_id']}").query

    def _step(self, desk: Desk) -> bool:
        """One chunk; False when there is nothing left to do."""
        began = time.monotonic()
        ids, position, last = self._next(desk)
        self.queues = set()
        finished = desk.transaction(partial(self._chunk, desk, ids, position, last))
        desk.wake(self.queues)
        if finished:
            return False
        time.sleep(min((time.monotonic() - began) * PAUSE[self.app.dialect], 2.0))
        return True

    def _next(self, desk: Desk) -> tuple[list[int], int | None, bool]:
        """The next ids, the position after them, and whether they are the last."""
        size = CHUNK[self.app.dialect]
        if self.plan.max_jobs is not None:
            size = max(min(size, self.plan.max_jobs - self._handled), 0)
        if self.plan.ids is not None:
            at = self.plan.position or 0
            ids = self.plan.ids[at : at + size]
            return ids, at + len(ids), at + len(ids) >= len(self.plan.ids) or not size
        if not size:
            return [], self.plan.position, True
        after = None if self.plan.position is None else (self.plan.position,)
        with desk.context.reading() as conn:
            searcher = desk.context.searcher(conn, self._frozen())
            walk = walk_of(searcher.compiler, searcher.base, searcher.query, "id", False)
            assert walk is not None
            found = searcher.walk(walk, size, after=after)
        ids = [job.id for job in found.jobs]
        if len(ids) == size:
            return ids, ids[-1], False
        edge = found.edge[0] if found.edge else None
        return ids, edge if isinstance(edge, int) else None, found.edge is None

    @property
    def _handled(self) -> int:
        return int(self.row["done"] + self.row["skipped"] + self.row["failed"])

    def _chunk(
        self, desk: Desk, ids: Sequence[int], position: int | None, last: bool, conn: Connection
    ) -> bool:
        """Acts and notes in one transaction; True when the operation has ended."""
        c = self.table.c
        row = conn.execute(
            select(c.cancel_requested, c.lease_by, c.done, c.skipped, c.failed, c.results)
            .where(c.id == self.id)
            .with_for_update()
        ).one()
        if row.lease_by != self.me:
            raise _LeaseLost
        now = desk.context.now
        if row.cancel_requested:
            self._save(conn, desk, state="cancelled", finished_at=now, lease_until=None)
            return True
        self.told = _Told.loaded(row.results)
        counts = self._acted(desk, conn, ids, row)
        plan = _Plan.loaded(self.plan.dumped())
        plan.position = position
        values: dict[str, object] = {"params": plan.dumped(), "results": self.told.dumped(), **counts}
        if last:
            values |= {"state": "done", "finished_at": now, "lease_until": None}
        self._save(conn, desk, **values)
        self.plan, self.row = plan, {**self.row, **counts}
        return last

    def _acted(self, desk: Desk, conn: Connection, ids: Sequence[int], row: Any) -> dict[str, int]:
        counts = {"done": row.done, "skipped": row.skipped, "failed": row.failed}
        if not ids:
            return counts
        order = self.plan.order(self.row["action"], self.row["total"] or len(ids))
        query = Query() if self.plan.ids is not None else self._query
        chunk = JobActions(desk).chunk(conn, order, ids, query, place=sum(counts.values()))
        self.told.add(chunk)
        self.queues |= chunk.queues
        for result in chunk.results:
            kind = {"done": "done", "failed": "failed", "denied": "failed"}.get(result.result, "skipped")
            counts[kind] += 1
        return counts
