"""What services ask of every arm: stage, rescue, discard the unknown, give back.

Invariant: each row is changed under the state or lease it was read with, so any number of nodes may do this
at once; a row that cannot be changed is left where it is and stops no other.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sqlalchemy import ColumnElement, Select, and_, exists, not_, select, update
from sqlalchemy import Row as SqlRow
from sqlalchemy.exc import DBAPIError

from jobkit.jobs import JobState, Lease, Transition
from jobkit.storage.arm import StorageArm, batches
from jobkit.storage.base import Change, ErrorEntry, NodeRow, Rescued, Staged
from jobkit.storage.engine import in_transaction, reading
from jobkit.storage.faults import Fault, classify
from jobkit.storage.fleet import node_row
from jobkit.storage.statement import Row

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Upkeep"]

log = logging.getLogger("jobkit.storage")
T = TypeVar("T")
R = TypeVar("R")
AnyRow: TypeAlias = "SqlRow[*tuple[Any, ...]]"
_WAITING: Final = (JobState.SCHEDULED.value, JobState.RETRYABLE.value)


class Upkeep(StorageArm):
    """The services' methods; written once, in terms of `transition`."""

    @abstractmethod
    def transition(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        """See `Storage.transition`."""

    def give_back(self, conn: Connection, leases: Sequence[Lease], *, now: datetime) -> list[Lease]:
        """See `Storage.give_back`."""
        changes = [Change(JobState.AVAILABLE, now, lease, attempt_delta=-1) for lease in leases]
        return [change.lease for change in self.transition(conn, changes) if change.lease is not None]

    def made(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        """See `Storage.made`."""
        c = self.tables.jobs.c
        seen: set[tuple[object, ...]] = set()
        for some in batches([change.lease.id for change in changes if change.lease is not None], 500):
            query = select(c.id, c.attempted_by, c.attempted_at, c.state).where(c.id.in_(some))
            with reading(conn):
                seen.update(tuple(row) for row in conn.execute(query))
        return [
            change
            for change in changes
            if (lease := change.lease) is not None and (lease.id, lease.node, lease.at, change.to) in seen
        ]

    # --- staging

    def stage(self, conn: Connection, *, now: datetime, limit: int) -> Staged:
        """See `Storage.stage`."""
        try:
            return self._stage(conn, now, limit)
        except DBAPIError as error:
            if classify(error) is not Fault.OTHER or in_transaction(conn):
                raise
            return self._stage_around(conn, now, limit)

    def _stage(self, conn: Connection, now: datetime, limit: int) -> Staged:
        def work() -> Staged:
            rows = conn.execute(self._due(now, limit).with_for_update(skip_locked=True)).all()
            return self._stage_rows(conn, [tuple(row) for row in rows], now)

        return self._whole(conn, work)

    def _stage_around(self, conn: Connection, now: datetime, limit: int) -> Staged:
        """Some row makes the statement fail: find it by halves, leave it, and look behind it."""
        passed = 0
        while True:
            with reading(conn):
                rows = [tuple(row) for row in conn.execute(self._due(now, limit).offset(passed))]
            staged = self._stage_what_can(conn, rows, now)
            if staged.count or len(rows) < limit:
                return staged
            passed += len(rows)

    def _stage_what_can(self, conn: Connection, rows: Sequence[Row], now: datetime) -> Staged:
        done = self._in_halves(
            rows, lambda some: self._whole(conn, lambda: self._stage_rows(conn, some, now)), "stage"
        )
        queues = frozenset[str]().union(*(part.queues for part in done))
        return Staged(sum(part.count for part in done), queues)

    def _due(self, now: datetime, limit: int) -> Select[*tuple[Any, ...]]:
        c = self.tables.jobs.c
        query = select(c.id, c.worker, c.queue, c.attempt, c.state)
        query = query.where(c.state.in_(_WAITING), c.scheduled_at <= now)
        return query.order_by(c.scheduled_at, c.id).limit(limit)

    def _stage_rows(self, conn: Connection, rows: Sequence[Row], now: datetime) -> Staged:
        if not rows:
            return Staged(0)
        c = self.tables.jobs.c
        count = 0
        for some in batches(rows, 1_000):
            fence = and_(c.id.in_([row[0] for row in some]), c.state.in_(_WAITING), c.scheduled_at <= now)
            count += conn.execute(update(self.tables.jobs).where(fence).values(state="available")).rowcount
        self._report_staged(conn, rows, now)
        return Staged(count, frozenset(row[2] for row in rows))

    def _report_staged(self, conn: Connection, rows: Sequence[Row], now: datetime) -> None:
        self._report(
            conn,
            (
                Transition(id_, worker, queue, attempt, JobState(old), JobState.AVAILABLE, now)
                for id_, worker, queue, attempt, old in rows
            ),
        )

    # --- rescuing

    def rescue(
        self, conn: Connection, nodes: Mapping[str, int], *, now: datetime, limit: int, error_text: str
    ) -> Rescued:
        """See `Storage.rescue`."""

        def work() -> Rescued:
            self._mark_lost(conn, nodes, now)
            orphans, landed = self._rescued(conn, now, limit, error_text)
            ids = {change.job_id for change in landed}
            states = Counter(change.to for change in landed)
            return Rescued(
                states[JobState.AVAILABLE],
                states[JobState.DISCARDED],
                frozenset(row.queue for row in orphans if row.id in ids),
                frozenset(row.attempted_by for row in orphans if row.id in ids and row.attempted_by),
            )

        return self._whole(conn, work)

    def _rescued(
        self, conn: Connection, now: datetime, limit: int, error_text: str
    ) -> tuple[Sequence[AnyRow], list[Change]]:
        """The first batch of orphans of which any could be changed, and what was."""
        behind = 0
        while True:
            orphans = self._orphans(conn, limit, behind)
            landed = self._change_what_can(conn, [_rescue_of(row, now, error_text) for row in orphans])
            if landed or len(orphans) < limit:
                return orphans, landed
            behind = orphans[-1].id

    def survey(self, conn: Connection) -> tuple[list[NodeRow], bool]:
        """See `Storage.survey`."""
        nodes = self.tables.nodes.alias("n")
        orphans = exists().where(self.tables.jobs.c.state == "executing", not_(self._owned()))
        query = select(nodes, orphans.label("orphans")).where(nodes.c.lost_at.is_(None))
        with reading(conn):
            rows = conn.execute(query.order_by(nodes.c.node)).all()
        return [node_row(row) for row in rows], not rows or bool(rows[0].orphans)

    def _mark_lost(self, conn: Connection, nodes: Mapping[str, int], now: datetime) -> None:
        c = self.tables.nodes.c
        for node in sorted(nodes):
            unchanged = and_(c.node == node, c.beat == nodes[node], c.lost_at.is_(None))
            conn.execute(update(self.tables.nodes).where(unchanged).values(lost_at=now))

    def _owned(self) -> ColumnElement[bool]:
        nodes, jobs = self.tables.nodes.c, self.tables.jobs.c
        return exists().where(nodes.node == jobs.attempted_by, nodes.lost_at.is_(None))

    def _orphans(self, conn: Connection, limit: int, behind: int) -> Sequence[AnyRow]:
        c = self.tables.jobs.c
        query = select(c.id, c.queue, c.attempted_by, c.attempted_at, c.attempt, c.max_attempts)
        query = query.where(c.state == "executing", not_(self._owned()), c.id > behind)
        query = query.order_by(c.id).limit(limit)
        return conn.execute(query.with_for_update(skip_locked=True, of=self.tables.jobs)).all()

    # --- unknown workers

    def discard_unknown(
        self,
        conn: Connection,
        *,
        names_not_seen_since: datetime,
        now: datetime,
        limit: int,
        known: Collection[str] = (),
    ) -> int:
        """See `Storage.discard_unknown`."""
        with reading(conn):
            names = self._unknown_names(conn, names_not_seen_since, known)
        if not names:
            return 0

        def work() -> int:
            jobs = self._jobs_of(conn, names, names_not_seen_since, limit)
            return len(self._change_what_can(conn, [_unknown(row, now) for row in jobs]))

        return self._whole(conn, work)

    def _unknown_names(self, conn: Connection, cutoff: datetime, known: Collection[str]) -> list[str]:
        jobs, workers = self.tables.jobs.c, self.tables.workers.c
        seen = exists().where(workers.name == jobs.worker, workers.last_seen_at >= cutoff)
        query = select(jobs.worker).where(jobs.state == "available", jobs.scheduled_at < cutoff, not_(seen))
        return sorted({row[0] for row in conn.execute(query.distinct())} - set(known))

    def _jobs_of(
        self, conn: Connection, names: Sequence[str], cutoff: datetime, limit: int
    ) -> Sequence[AnyRow]:
        c = self.tables.jobs.c
        query = select(c.id, c.worker, c.attempt)
        query = query.where(c.state == "available", c.scheduled_at < cutoff, c.worker.in_(names))
        return conn.execute(query.limit(limit).with_for_update(skip_locked=True)).all()

    # --- working around a row that cannot be changed

    def _change_what_can(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        def part(some: Sequence[Change]) -> list[Change]:
            with conn.begin_nested():
                return self.transition(conn, some)

        return [change for landed in self._in_halves(changes, part, "change") for change in landed]

    def _in_halves(self, items: Sequence[T], work: Callable[[Sequence[T]], R], what: str) -> list[R]:
        if not items:
            return []
        try:
            return [work(items)]
        except DBAPIError as error:
            if classify(error) is not Fault.OTHER:
                raise
            if len(items) == 1:
                log.warning("cannot %s %r: %s", what, items[0], error.orig)
                return []
        half = len(items) // 2
        return [*self._in_halves(items[:half], work, what), *self._in_halves(items[half:], work, what)]


def _rescue_of(row: AnyRow, now: datetime, error_text: str) -> Change:
    lease = None
    if row.attempted_by is not None and row.attempted_at is not None:
        lease = Lease(row.id, row.attempted_by, row.attempted_at)
    spent = row.attempt >= row.max_attempts
    return Change(
        JobState.DISCARDED if spent else JobState.AVAILABLE,
        now,
        lease,
        None if lease else row.id,
        frozenset() if lease else frozenset({JobState.EXECUTING}),
        error=ErrorEntry(row.attempt, now, error_text) if spent else None,
    )


def _unknown(row: AnyRow, now: datetime) -> Change:
    return Change(
        JobState.DISCARDED,
        now,
        id=row.id,
        expect=frozenset({JobState.AVAILABLE}),
        error=ErrorEntry(row.attempt, now, f"unknown worker: {row.worker}"),
    )
