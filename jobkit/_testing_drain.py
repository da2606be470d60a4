"""Draining: run what is due, here and now, one job after the other.

A drain is a small node: it registers, claims, runs and records with the parts that a node is made of, so that
every row ends as it would in production. Invariant: whatever a drain has claimed and not recorded goes back
to `available` when it ends, however it ends.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy import Connection

from jobkit._testing_failed import failure_of
from jobkit._testing_reach import Reach
from jobkit.core import Core
from jobkit.errors import JobkitError
from jobkit.jobs import JobState
from jobkit.runtime.claimer import Claims
from jobkit.runtime.executor import Ended, run_claimed
from jobkit.runtime.facts import node_id
from jobkit.runtime.failures import headline
from jobkit.runtime.lifespans import Lifespans
from jobkit.runtime.logs import Outage
from jobkit.runtime.recorder import Recorder
from jobkit.runtime.reports import Reporter
from jobkit.runtime.settle import Settled
from jobkit.storage.base import Change, ClaimedJob, ErrorEntry
from jobkit.storage.engine import reading
from jobkit.workers import Worker

__all__ = ["ENDLESS", "Drain", "DrainOptions"]

ENDLESS: Final = 10_000
"""Jobs after which a drain without a limit is taken to be one that never ends."""
BATCH: Final = 1_000
SKEW: Final = timedelta(seconds=1)
"""How far ahead of its time a row may be claimed; the storage's own tolerance."""
LATER: Final = frozenset({JobState.SCHEDULED, JobState.RETRYABLE})


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """See `jobkit.testing.drain_jobs`."""

    queue: str | None = None
    with_scheduled: bool = False
    with_recursion: bool = True
    with_safety: bool = True
    limit: int | None = None


class Drain:
    """One drain; `run` may be awaited once."""

    def __init__(self, core: Core, reach: Reach, options: DrainOptions) -> None:
        self._core = core
        self._reach = reach
        self._options = options
        self._storage = reach.storage
        self._jobs = reach.storage.tables.jobs
        self._node = node_id("drain")
        self._claims = Claims(core.clock)
        self._reporter = Reporter(core)
        self._recorder = Recorder(
            self._storage,
            clock=core.clock,
            outage=Outage(core.clock.monotonic),
            recorded=self._recorded,
        )
        self._held: list[ClaimedJob] = []
        self._counts: Counter[str] = Counter()
        self._lost: list[int] = []
        self._left = ENDLESS if options.limit is None else options.limit

    async def run(self) -> Counter[str]:
        """Run jobs until none is due, or the limit is reached; returns how many ended in which state."""
        core, lifespans = self._core, Lifespans(self._core)
        await self._reach.do(
            lambda conn: self._storage.register_node(
                conn, self._node, now=core.clock.now(), queues={}, info={}
            )
        )
        try:
            await lifespans.open()
            await self._rounds(lifespans.resources)
        finally:
            await lifespans.close()
            await self._reach.do(self._leave)
        return self._counts

    async def _rounds(self, resources: Mapping[str, object]) -> None:
        while True:
            size = 1 if self._options.with_recursion else self._left
            if self._left <= 0:
                return await self._limit_reached()
            self._held = await self._reach.do(lambda conn, size=size: self._claim(conn, size))  # type: ignore[misc]
            if not self._held:
                return None
            while self._held:
                await self._one(self._held[0], resources)
            if not self._options.with_recursion:
                return None

    async def _limit_reached(self) -> None:
        """A limit that was asked for is no error; a drain that does not end is one."""
        if self._options.limit is None and await self._reach.do(self._more_is_due):
            raise JobkitError(
                f"{ENDLESS} jobs were run and more are due: a job enqueues or snoozes itself for ever; "
                "give limit= to run only so many"
            )

    async def _one(self, claimed: ClaimedJob, resources: Mapping[str, object]) -> None:
        self._left -= 1
        cls, error = self._resolved(claimed.worker)
        if cls is None:
            ended = Ended(self._unknown(claimed, error), None, None)
        else:
            ended = await run_claimed(self._core, claimed, worker=cls, resources=resources)
        await self._record(ended.settled)
        self._held.remove(claimed)
        if not self._options.with_safety and (failure := failure_of(ended)) is not None:
            raise failure

    # -- claiming

    def _claim(self, conn: Connection, size: int) -> list[ClaimedJob]:
        """The next jobs, in the order in which a node would take them from all queues."""
        self._stage(conn)
        claimed: list[ClaimedJob] = []
        empty: set[str] = set()
        while len(claimed) < size:
            queue = self._next_queue(conn, empty)
            if queue is None:
                if self._bring_forward(conn):
                    continue
                break
            at = self._claims.next()
            won = self._storage.claim(conn, queue, 1, node=self._node, at=at)
            self._claims.landed(at)
            claimed += won
            if not won:  # another drain took it, or holds its row
                empty.add(queue)
        return claimed

    def _stage(self, conn: Connection) -> None:
        while self._storage.stage(conn, now=self._core.clock.now(), limit=BATCH).count >= BATCH:
            pass

    def _next_queue(self, conn: Connection, without: Collection[str] = ()) -> str | None:
        """The queue of the job that comes first by priority, time and id."""
        jobs = self._jobs.c
        query = (
            sa.select(jobs.queue)
            .where(jobs.state == JobState.AVAILABLE, jobs.scheduled_at <= self._core.clock.now() + SKEW)
            .where(*self._only(jobs), jobs.queue.not_in(without) if without else sa.true())
            .order_by(jobs.priority, jobs.scheduled_at, jobs.id)
            .limit(1)
        )
        return cast("str | None", _first(conn, query))

    def _more_is_due(self, conn: Connection) -> bool:
        self._stage(conn)
        later = self._options.with_scheduled and self._first_later(conn) is not None
        return later or self._next_queue(conn) is not None

    def _only(self, jobs: sa.ColumnCollection[str, sa.Column[object]]) -> list[sa.ColumnElement[bool]]:
        queue = self._options.queue
        return [] if queue is None else [jobs.queue == queue]

    def _bring_forward(self, conn: Connection) -> bool:
        """`with_scheduled`: the earliest of the later jobs is due now. False where there is none."""
        first = self._first_later(conn) if self._options.with_scheduled else None
        if first is None:
            return False
        now = self._core.clock.now()
        due = Change(id=first, expect=LATER, to=JobState.AVAILABLE, at=now, scheduled_at=now)
        self._storage.transition(conn, [due])
        return True

    def _first_later(self, conn: Connection) -> int | None:
        jobs = self._jobs.c
        query = sa.select(jobs.id).where(jobs.state.in_(LATER), *self._only(jobs))
        return cast("int | None", _first(conn, query.order_by(jobs.scheduled_at, jobs.id).limit(1)))

    # -- recording

    async def _record(self, settled: Settled) -> None:
        self._recorder.add(settled)
        batch = self._recorder.take()
        await self._reach.do(lambda conn: self._recorder.store(conn, batch))
        if self._recorder.unrecorded:
            raise JobkitError(f"the result of job {settled.lease.id} cannot be recorded; the log says why")
        while self._lost:
            await self._reach.do(lambda conn: self._count_lost(conn, self._lost.pop()))

    def _recorded(self, batch: Sequence[Settled], landed: Sequence[Change]) -> None:
        self._reporter.recorded(batch, landed)
        there = {change.lease for change in landed}
        for settled in batch:
            if settled.change is not None and settled.change.to is not None and settled.lease in there:
                self._counts[settled.change.to.value] += 1
            else:
                self._lost.append(settled.lease.id)

    def _count_lost(self, conn: Connection, job_id: int) -> None:
        """Somebody changed the job while it ran: it counts as what they made of it."""
        state = _first(conn, sa.select(self._jobs.c.state).where(self._jobs.c.id == job_id))
        if state is not None:
            self._counts[str(state)] += 1

    def _leave(self, conn: Connection) -> None:
        leases = [claimed.lease for claimed in self._held]
        if leases:
            self._storage.give_back(conn, leases, now=self._core.clock.now())
        self._storage.remove_node(conn, self._node)

    # -- unknown workers

    def _resolved(self, name: str) -> tuple[type[Worker] | None, str]:
        try:
            return self._core.registry.resolve(name), ""
        except JobkitError as error:
            return None, headline(error)

    def _unknown(self, claimed: ClaimedJob, error: str) -> Settled:
        """Discarded at once, as Lifeline does it after a grace of 0: the claim does not count as an attempt."""
        now = self._core.clock.now()
        text = f"unknown worker: {claimed.worker}"
        if error:
            text = f"{text} ({self._core.redact_error(error, claimed.worker)})"
        change = Change(
            lease=claimed.lease,
            to=JobState.DISCARDED,
            at=now,
            attempt_delta=-1,
            error=ErrorEntry(claimed.attempt - 1, now, text),
        )
        return Settled(claimed, claimed.lease, change, "discarded", now, 0.0, error=text, level=logging.ERROR)


def _first(conn: Connection, query: sa.Select[tuple[Any]]) -> object:
    """One value, read in a transaction of its own: left open, it would swallow what the storage writes next."""
    with reading(conn):
        found: object = conn.execute(query).scalar()
    return found
