"""One process working on one bulk operation, chunk after chunk.

Invariant: each chunk and the row's progress commit together, under the row's lease, so a crash loses nothing
and counts nothing twice; what a job's state does not allow is skipped, with the reason.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import or_, select, update

from jobkit.admin._ast import Query
from jobkit.admin._bulk_plan import Plan
from jobkit.admin._desk import Desk
from jobkit.admin._job_actions import Chunk, JobActions
from jobkit.admin._operation_rows import operation_rows
from jobkit.admin._orders import walk_of
from jobkit.admin.access import vocabulary
from jobkit.admin.errors import AdminError, NotFound
from jobkit.admin.query import parse
from jobkit.admin.views import OperationView
from jobkit.hookspecs import Actor

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core

__all__ = ["Runner"]

CHUNK: Final = {"sqlite": 500, "postgresql": 1_000}
PAUSE: Final = {"sqlite": 6.0, "postgresql": 2.0}
"""How long to leave the database to others after a chunk, in multiples of the chunk's own time."""
LEASE: Final = timedelta(seconds=60)
KEPT_RESULTS: Final = 100
COUNTED: Final = 100_000


class _LeaseLost(Exception):
    """Another process has taken the operation over."""


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


class Runner:
    """One process working on one operation."""

    def __init__(self, app: Core, operation_id: int) -> None:
        self.app = app
        self.id = operation_id
        self.table = app.tables.operations
        self.me = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.plan = Plan({})
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
            self.plan = Plan.loaded(self.row["params"])
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
            ids, edge = searcher.ids(walk, size, after=after)
        if len(ids) == size:
            return ids, ids[-1], False
        place = edge[0] if edge else None
        return ids, place if isinstance(place, int) else None, edge is None

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
        plan = Plan.loaded(self.plan.dumped())
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
