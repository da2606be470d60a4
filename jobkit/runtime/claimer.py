"""The claimer: runs the poller's rounds on a database thread and hands over what was won.

Invariant: the instant that names a claim is known to the node from before the statement is sent until its
jobs are known by their leases, so that no reconciliation takes them for strays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from sqlalchemy import Connection

from jobkit.clock import Clock
from jobkit.events import WorkerUnknown
from jobkit.runtime.failures import brief, headline
from jobkit.runtime.lanes import OUT_OF_REACH
from jobkit.runtime.logs import Outage, Throttle, log
from jobkit.runtime.recorder import Recorder
from jobkit.runtime.settle import Settled, given_back
from jobkit.storage.base import ClaimedJob, ClaimWish, Storage
from jobkit.storage.engine import classify

if TYPE_CHECKING:
    from jobkit.events import Event
    from jobkit.workers import Worker

__all__ = ["Claimer", "Claims", "Known", "Round"]

TICK: Final = timedelta(microseconds=1)


@dataclass(slots=True)
class Round:
    """One round: how many jobs to claim from which queues, then which queues to look into."""

    wishes: list[tuple[str, int]] = field(default_factory=list)
    look: list[str] = field(default_factory=list)


class Claims:
    """The names of this node's claims: strictly ascending instants, and which of them are still in flight."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: datetime | None = None
        self._in_flight: set[datetime] = set()

    def next(self) -> datetime:
        """A new claim's `attempted_at`: now, or 1 us after the last one. It is in flight until `landed`."""
        with self._lock:
            now = self._clock.now()
            if self._last is not None and now <= self._last:
                now = self._last + TICK
            self._last = now
            self._in_flight.add(now)
            return now

    def landed(self, at: datetime) -> None:
        """The claim's jobs are known by their leases, or it has failed."""
        with self._lock:
            self._in_flight.discard(at)

    def in_flight(self) -> frozenset[datetime]:
        """The claims whose replies have not arrived."""
        with self._lock:
            return frozenset(self._in_flight)


class Resolver(Protocol):
    """The part of the registry that finds workers."""

    def resolve(self, name: str) -> type[Worker] | None:
        """The class, or None; raises where it cannot be imported."""
        ...


class Known:
    """Worker classes by name, and the names that this node skips.

    Classes are looked up on a database thread, since that may import modules, which must not block the loop.
    """

    def __init__(self, registry: Resolver, emit: Callable[[str, str], None]) -> None:
        self._registry = registry
        self._emit = emit
        self.classes: dict[str, type[Worker]] = {}
        self.skip: frozenset[str] = frozenset()

    def knows(self, name: str) -> bool:
        """Look the name up; an unknown or broken one joins the skip list and is told once."""
        if name in self.classes:
            return True
        error = ""
        try:
            found = self._registry.resolve(name)
        except Exception as exc:  # noqa: BLE001 - an import may raise anything
            found, error = None, headline(exc)
        if found is not None:
            self.classes[name] = found
            return True
        if name not in self.skip:
            self.skip |= {name}
            self._emit(name, error)
        return False

    def reconsider(self, names: Callable[[str], bool]) -> bool:
        """Drop names from the skip list that have become known since; True where there were some."""
        before = self.skip
        if before:
            self.skip = frozenset(name for name in before if not names(name))
        return len(self.skip) < len(before)


class Desk(Protocol):
    """Who receives what a round brings; its methods hand over to the event loop and never block.

    `over`, and `looked`, say that the round has ended with it: one hand-over for all, since each costs a switch.
    """

    def claimed(
        self, queue: str, asked: int, full: bool, at: datetime, jobs: list[ClaimedJob], *, over: bool
    ) -> None: ...
    def claim_failed(self, queue: str, asked: int, at: datetime) -> None: ...
    def looked(self, due: Sequence[str]) -> None: ...
    def round_over(self) -> None: ...


class Claimer:
    """Carries out one round at a time. `request` comes from the loop, the rest runs on a database thread."""

    def __init__(
        self,
        storage: Storage,
        desk: Desk,
        *,
        claims: Claims,
        known: Known,
        recorder: Recorder,
        outage: Outage,
        clock: Clock,
        node_id: Callable[[], str],
    ) -> None:
        self._storage = storage
        self._desk = desk
        self._claims = claims
        self._known = known
        self._recorder = recorder
        self._outage = outage
        self._clock = clock
        self._node_id = node_id
        self._throttle = Throttle(clock.monotonic)
        self._request: Round | None = None
        self._errands: list[Callable[[Connection], None]] = []

    def request(self, round_: Round) -> None:
        """Ask for a round; only after the one before is over. The lane must be woken by the caller."""
        self._request = round_

    def run_soon(self, errand: Callable[[Connection], None]) -> None:
        """Do something small on the claiming thread's connection; its lane must be woken by the caller."""
        self._errands.append(errand)

    @property
    def waiting(self) -> bool:
        """True where a round was asked for."""
        return self._request is not None

    @property
    def claiming(self) -> bool:
        """True where the round that was asked for has something to claim."""
        return self._request is not None and bool(self._request.wishes)

    def serve(self, conn: Connection) -> None:
        """Carry out the round that was asked for, if any, each claim by itself. Raises on faults that
        pass.
        """
        while self._errands:
            self._errands.pop()(conn)
        round_, self._request = self._request, None
        if round_ is None:
            return
        wishes = list(round_.wishes)
        told = False
        try:
            while wishes:
                queue, asked = wishes.pop(0)
                told = self._claim(conn, queue, asked, last=not wishes and not round_.look)
            if round_.look:
                told = self._look(conn, round_.look)
        except Exception:
            for queue, asked in wishes:
                self._desk.claim_failed(queue, asked, self._claims.next())
            raise
        finally:
            if not told:
                self._desk.round_over()

    def exchange(self, conn: Connection, batch: Sequence[Settled]) -> None:
        """Record a batch and carry out the round's claims in one transaction; its look is left to `serve`."""
        round_ = self._request
        assert round_ is not None
        changes = [settled.change for settled in batch if settled.change is not None]
        wishes = [ClaimWish(queue, asked, self._known.skip) for queue, asked in round_.wishes]
        at = self._claims.next()
        try:
            exchanged = self._storage.exchange(conn, changes, wishes, node=self._node_id(), at=at)
        except Exception:
            self._claims.landed(at)
            raise
        round_.wishes, wishes_done = [], round_.wishes
        if not round_.look:
            self._request = None
        self._hand_out(wishes_done, at, exchanged.claimed, over=not round_.look)
        self._recorder.done(batch, exchanged.landed)

    def _hand_out(
        self, wishes: Sequence[tuple[str, int]], at: datetime, claimed: list[ClaimedJob], *, over: bool
    ) -> None:
        """Sort what one exchange has won by queue. One instant names all of it: it has landed with the last
        part.
        """
        won: dict[str, list[ClaimedJob]] = {queue: [] for queue, _ in wishes}
        for job in claimed:
            won[job.queue].append(job)
        last = wishes[-1][0]
        for queue, asked in wishes:
            jobs = won[queue]
            self._desk.claimed(
                queue, asked, len(jobs) >= asked, at, self._sifted(jobs), over=over and queue == last
            )

    def _claim(self, conn: Connection, queue: str, asked: int, *, last: bool) -> bool:
        """One claim; True where the poller was told that the round is over with it."""
        at = self._claims.next()
        try:
            jobs = self._storage.claim(conn, queue, asked, node=self._node_id(), at=at, skip=self._known.skip)
        except Exception as exc:
            self._desk.claim_failed(queue, asked, at)
            if classify(exc) in OUT_OF_REACH:
                raise
            if (held := self._throttle.passes(queue)) is not None:
                log.error("claiming from %s failed (%d more times): %s", queue, held, brief(exc))
            return False
        self._outage.succeeded()
        self._desk.claimed(queue, asked, len(jobs) >= asked, at, self._sifted(jobs), over=last)
        return last

    def _look(self, conn: Connection, queues: list[str]) -> bool:
        due = self._storage.due_queues(conn, queues, now=self._clock.now(), skip=self._known.skip)
        self._desk.looked(due)
        return True

    def _sifted(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        """The jobs whose workers are known; the others go back at once."""
        known = self._known
        if all(job.worker in known.classes for job in jobs):
            return jobs
        kept = []
        for job in jobs:
            if known.knows(job.worker):
                kept.append(job)
            else:
                self._recorder.add(given_back(job, job.lease, self._clock.now(), "unknown_worker"))
        return kept


def unknown_worker(node: str, name: str, error: str, at: datetime) -> Event:
    """Say once that a name is skipped here; returns the event for observers."""
    reason = f"its import failed: {error}" if error else "no such worker here"
    log.log(logging.WARNING, "worker %s is left to other nodes: %s", name, reason)
    return WorkerUnknown(at=at, worker=name, node=node, error=error)
