"""The recorder: holds the results of runs until they stand in the database.

Whatever piled up while the last statement ran is recorded by the next; no timer adds latency. Invariant: a
result leaves only when its state change has landed or was found to be fenced off. Faults that pass are tried
again as they are; any other error halves the batch, and a single row that still fails is recorded without
its details.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection

from jobkit.clock import Clock
from jobkit.jobs import Lease
from jobkit.runtime.failures import brief
from jobkit.runtime.lanes import OUT_OF_REACH
from jobkit.runtime.logs import Outage, log
from jobkit.runtime.settle import Settled
from jobkit.storage.base import Change, Storage
from jobkit.storage.engine import Fault, classify

__all__ = ["Recorder"]

BATCH: Final = 1_000
"""Results in one statement at most."""
STUCK_FIRST: Final = 0.5
STUCK_LONGEST: Final = 60.0

Recorded = Callable[[Sequence[Settled], Sequence[Change]], None]
"""Told, on the recording thread, which results were written and which of their changes landed."""


@dataclasses.dataclass(slots=True)
class _Stuck:
    """A result that the database refuses even without its details: a hook of a plugin, or a broken row."""

    settled: Settled
    due: float


class Recorder:
    """The results that are not in the database yet. `add` from any thread, the rest on the recording
    thread.
    """

    def __init__(self, storage: Storage, *, clock: Clock, outage: Outage, recorded: Recorded) -> None:
        self._storage = storage
        self._clock = clock
        self._outage = outage
        self._recorded = recorded
        self._changed = threading.Condition()
        self._pending: list[Settled] = []
        self._current: list[Settled] = []
        self._stuck: list[_Stuck] = []
        self._tries: dict[Lease, int] = {}
        self._doubtful: set[Lease] = set()

    # -- any thread

    def add(self, settled: Settled) -> None:
        """Hold a result. The recording thread must be woken by the caller."""
        self._pending.append(settled)  # atomic: whoever takes from this list leaves it the same list

    @property
    def unrecorded(self) -> int:
        """How many results are held."""
        return len(self._pending) + len(self._current) + len(self._stuck)

    @property
    def waiting(self) -> bool:
        """True where a round of the recording thread would find something."""
        return bool(self._pending)

    def leases(self) -> list[Lease]:
        """The leases of all results held."""
        with self._changed:
            held = [*self._pending, *self._current, *(stuck.settled for stuck in self._stuck)]
        return [settled.lease for settled in held]

    def wait_empty(self, timeout: float) -> bool:
        """Wait until nothing is held (what is stuck aside); False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending and not self._current, max(timeout, 0.0))

    # -- the recording thread

    def take(self) -> list[Settled]:
        """The next batch; it is held until `done`, `put_back` or `store` has dealt with it."""
        with self._changed:
            self._take_stuck()
            self._current = self._pending[:BATCH]
            del self._pending[: len(self._current)]
            return self._current

    def put_back(self) -> None:
        """The batch was not recorded: it comes first again."""
        with self._changed:
            self._pending[:0] = self._current
            self._current = []

    def done(self, batch: Sequence[Settled], landed: Sequence[Change]) -> None:
        """`batch`, the one taken or a part of it, stands in the database."""
        with self._changed:
            if len(batch) == len(self._current):
                self._current = []
            else:
                gone = {id(settled) for settled in batch}
                self._current = [settled for settled in self._current if id(settled) not in gone]
            if not self._current and not self._pending:
                self._changed.notify_all()
        if self._tries or self._doubtful:
            for settled in batch:
                self._tries.pop(settled.lease, None)
                self._doubtful.discard(settled.lease)
        self._outage.succeeded()
        self._recorded(batch, landed)

    def store(self, conn: Connection, batch: Sequence[Settled]) -> None:
        """Record the batch that was taken. Raises on faults that pass; what is left comes first again."""
        parts = [list(batch)]
        try:
            while parts:
                part = parts.pop()
                parts.extend(self._store_part(conn, part))
        except Exception as exc:
            if classify(exc) is Fault.LOST:
                self._doubtful.update(settled.lease for settled in self._current)
            self.put_back()
            raise

    def next_due(self) -> float | None:
        """Seconds until a stuck result is tried again, or None."""
        if not self._stuck:
            return None
        return max(0.0, min(stuck.due for stuck in self._stuck) - self._clock.monotonic())

    def _store_part(self, conn: Connection, part: list[Settled]) -> list[list[Settled]]:
        """Record one part, or say into which smaller ones it must be cut."""
        changes = [settled.change for settled in part if settled.change is not None]
        try:
            landed = self._storage.transition(conn, changes) if changes else []
            if self._doubtful and len(landed) < len(changes):
                landed = [*landed, *self._landed_before(conn, changes, landed)]
        except Exception as exc:
            fault = classify(exc)
            if fault in OUT_OF_REACH:
                raise
            if len(part) > 1:
                middle = len(part) // 2
                return [part[middle:], part[:middle]]
            if fault is Fault.TIMEOUT:
                raise
            self._store_bare(conn, part[0], exc)
            return []
        self.done(part, landed)
        return []

    def _landed_before(
        self, conn: Connection, changes: Sequence[Change], landed: Sequence[Change]
    ) -> list[Change]:
        """What an earlier try has written whose reply was lost with the connection: it is no lost lease."""
        there = {change.lease for change in landed}
        doubtful = [c for c in changes if c.lease in self._doubtful and c.lease not in there]
        return self._storage.made(conn, doubtful) if doubtful else []

    def _store_bare(self, conn: Connection, settled: Settled, why: Exception) -> None:
        """The state change without its details, so that it lands; where even that fails, later once more."""
        log.error("job %d: its result is recorded without details: %s", settled.lease.id, brief(why))
        change = settled.change
        assert change is not None
        bare = dataclasses.replace(change, error=None)
        if change.error is not None:
            text = f"{type(why).__name__}: the error could not be stored"
            bare = dataclasses.replace(change, error=dataclasses.replace(change.error, error=text))
        try:
            landed = self._storage.transition(conn, [bare])
        except Exception as exc:
            if classify(exc) in OUT_OF_REACH:
                raise
            self._set_aside(settled, exc)
            return
        self.done([settled], landed)

    def _set_aside(self, settled: Settled, exc: Exception) -> None:
        """Neither lose the result nor let it hold up others: try it again at growing intervals."""
        tries = self._tries.get(settled.lease, 0) + 1
        self._tries[settled.lease] = tries
        pause = min(STUCK_FIRST * 2 ** min(tries, 10), STUCK_LONGEST) * (1 - self._clock.random() / 2)
        log.error("job %d: its result cannot be recorded, trying again: %s", settled.lease.id, brief(exc))
        with self._changed:
            self._current = [other for other in self._current if other is not settled]
            self._stuck.append(_Stuck(settled, self._clock.monotonic() + pause))
            if not self._current and not self._pending:
                self._changed.notify_all()

    def _take_stuck(self) -> None:
        """Move what is due from the stuck ones to the end of the line."""
        if not self._stuck:
            return
        now = self._clock.monotonic()
        self._pending += [stuck.settled for stuck in self._stuck if stuck.due <= now]
        self._stuck = [stuck for stuck in self._stuck if stuck.due > now]
