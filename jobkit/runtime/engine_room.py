"""The database threads of one node: who records, who claims, and who brings hints.

On SQLite one thread does both in one write transaction; elsewhere recording overlaps with claiming on two connections.
Invariant: a batch of results is recorded by one thread only, and a failing recorder is seen by the poller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from jobkit.runtime.claimer import Claimer
from jobkit.runtime.lanes import OUT_OF_REACH, Lane
from jobkit.runtime.listener import Hints, Listener, Watcher
from jobkit.runtime.logs import Outage
from jobkit.runtime.recorder import Recorder
from jobkit.runtime.settle import Settled
from jobkit.storage.engine import atomic, classify, node_connection
from jobkit.wakeup import channel_of

if TYPE_CHECKING:
    from jobkit.core import Core
    from jobkit.runtime.poller import Poller

__all__ = ["EngineRoom"]


class EngineRoom:
    """Lanes around one recorder and one claimer."""

    def __init__(self, core: Core, recorder: Recorder, claimer: Claimer, outage: Outage) -> None:
        self._core = core
        self._recorder = recorder
        self._claimer = claimer
        self._outage = outage
        if core.dialect == "sqlite":
            both = self._lane("jobkit-database", self._serve_both)
            self._record_lane = self._claim_lane = both
            self._lanes = [both]
        else:
            self._record_lane = self._lane("jobkit-recorder", self._serve_results)
            self._claim_lane = self._lane("jobkit-claimer", self._serve_claims)
            self._lanes = [self._record_lane, self._claim_lane]

    @property
    def can_record(self) -> bool:
        """False while recording fails."""
        return not self._record_lane.failing

    def connect(self) -> Connection:
        """A connection of its own for one database thread."""
        return node_connection(self._core.engine, autocommit=not self._core.storage.observed)

    def start(self) -> None:
        """Start the threads."""
        for lane in self._lanes:
            lane.start()

    def wake(self) -> None:
        """See to what waits."""
        if self._recorder.waiting:
            self._record_lane.wake()
        if self._claimer.waiting:
            self._claim_lane.wake()

    def stop(self, timeout: float) -> bool:
        """End the threads; False where one is stuck in a statement for longer than `timeout` seconds."""
        for lane in self._lanes:
            lane.stop()
        return all(lane.join(timeout) for lane in self._lanes)

    def _lane(self, name: str, serve: Callable[[Connection], float | None]) -> Lane:
        return Lane(name, self.connect, serve, outage=self._outage, clock=self._core.clock)

    def _serve_results(self, conn: Connection) -> float | None:
        while batch := self._recorder.take():
            self._recorder.store(conn, batch)
        return self._recorder.next_due()

    def _serve_claims(self, conn: Connection) -> float | None:
        self._claimer.serve(conn)
        if self._recorder.waiting:  # jobs of unknown workers go back
            self._record_lane.wake()
        return None

    def _serve_both(self, conn: Connection) -> float | None:
        """One round. A claim is asked for together with the results that made room for it, and with a signal: one that
        comes while others are recorded is left for the next round, which records and claims in one transaction.
        """
        batch = self._recorder.take()
        together = bool(batch) and self._claimer.claiming
        if together and self._exchanged(conn, batch):
            if not self._claimer.claiming:
                self._claimer.serve(conn)
            return self._recorder.next_due()
        if batch:
            self._recorder.store(conn, batch)
        if together or not (batch and self._claimer.claiming):
            self._claimer.serve(conn)
        return self._recorder.next_due()

    def _exchanged(self, conn: Connection, batch: Sequence[Settled]) -> bool:
        """Record and claim in one transaction; False where the batch must be recorded with more care."""
        try:
            self._claimer.exchange(conn, batch)
        except Exception as exc:
            if classify(exc) in OUT_OF_REACH:
                self._recorder.put_back()
                raise
            return False
        return True

    # -- hints

    def hints(
        self, poller: Poller, name: str, lost: Callable[[str], None], restored: Callable[[], None]
    ) -> Hints | None:
        """What tells of other processes' writes, where the database can."""
        if self._core.dialect == "sqlite":
            return Watcher(
                self._connect_alone, changed=poller.look, lively=poller.lively, clock=self._core.clock
            )
        if self._core.config.notify == "off":
            return None
        return Listener(
            self._connect_alone,
            channel_of(self._core.config),
            wake=poller.wake,
            ping=self._ping,
            name=name,
            clock=self._core.clock,
            lost=lost,
            restored=restored,
        )

    def _connect_alone(self) -> Connection:
        return node_connection(self._core.engine, autocommit=True)

    def _ping(self, payload: str) -> None:
        """Notify by another connection than the listener's, on the claiming thread."""
        channel = channel_of(self._core.config)

        def notify(conn: Connection) -> None:
            with atomic(conn):
                conn.execute(_NOTIFY, {"channel": channel, "payload": payload})

        self._claimer.run_soon(notify)
        self._claim_lane.wake()


_NOTIFY = text("SELECT pg_notify(:channel, :payload)")
