"""Lifeline: runs the jobs of dead nodes again, and ends those that nobody knows.

A node is dead when its row has not changed for `dead_after` of this node's own unbroken observation on its
monotonic clock, so no two clocks are ever compared. Invariant: whatever makes this node's own view doubtful
(its beat failed or came late, its rounds did not come in time, its reads failed) starts all observations
anew; an outage or a suspended machine rescues nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from jobkit.core import Core
from jobkit.events import JobsRescued, NodeLost
from jobkit.hookspecs import Node, PluginInfo, Service, hookimpl
from jobkit.plugins._batches import Batches
from jobkit.storage.base import NodeRow, Rescued
from jobkit.wakeup import waker_of

log = logging.getLogger("jobkit.plugins.lifeline")

ORPHANED = "Orphaned: the node that ran it ended without recording a result, and all attempts are used up"
LOOK_FOR_UNKNOWN_EVERY = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class LifelineSettings:
    """`[plugins.lifeline]`: the pause between rounds, and how many rows one statement rescues."""

    interval: timedelta = timedelta(seconds=5)
    batch: int = 1_000


jobkit_plugin = PluginInfo(api=1, settings=LifelineSettings)


@hookimpl
def jobkit_services(app: Core, node: Node) -> list[Service]:
    """A round at start, then every five seconds."""
    settings = app.config.plugin("lifeline", LifelineSettings)
    return [Service("lifeline", settings.interval, Lifeline(app, node, settings).tick)]


@dataclass(slots=True)
class _Observation:
    beat: int
    since: float


class Lifeline:
    """What one node has seen of the others."""

    def __init__(self, app: Core, node: Node, settings: LifelineSettings) -> None:
        self._app = app
        self._node = node
        self._settings = settings
        self._batches = Batches(settings.batch)
        self._seen: dict[str, _Observation] = {}
        self._last_round: float | None = None
        self._started_at = app.clock.monotonic()
        self._looked_for_unknown_at = self._started_at

    def tick(self, conn: Connection, now: datetime) -> int:
        """One round. Returns how many jobs were rescued or discarded."""
        try:
            rows, orphans = self._app.storage.survey(conn)
            dead = self._dead(rows)
            rescued = self._rescue(conn, dead, now) if dead or orphans else 0
            return rescued + self._discard_unknown(conn, now)
        except BaseException:
            self._seen.clear()
            raise

    # -- who is dead

    def _dead(self, rows: list[NodeRow]) -> dict[str, int]:
        """The nodes whose row has stood still for too long, each with the beat at which it did."""
        moment = self._app.clock.monotonic()
        if not self._trustworthy(moment):
            self._seen.clear()
        self._last_round = moment
        self._observe(rows, moment)
        limit = self._app.config.dead_after.total_seconds()
        return {node: seen.beat for node, seen in self._seen.items() if moment - seen.since >= limit}

    def _trustworthy(self, moment: float) -> bool:
        """True while this node itself was awake and reached the database all along."""
        allowed = max(self._app.config.dead_after.total_seconds() / 2, self._interval * 1.5)
        beat = self._node.last_beat
        return (
            beat is not None
            and moment - beat <= allowed
            and self._last_round is not None
            and moment - self._last_round <= allowed
        )

    @property
    def _interval(self) -> float:
        return self._settings.interval.total_seconds()

    def _observe(self, rows: list[NodeRow], moment: float) -> None:
        others = {row.node: row.beat for row in rows if row.node != self._node.id}
        for gone in self._seen.keys() - others.keys():
            del self._seen[gone]
        for node, beat in others.items():
            seen = self._seen.get(node)
            if seen is None or seen.beat != beat:
                self._seen[node] = _Observation(beat, moment)

    # -- what happens to their jobs

    def _rescue(self, conn: Connection, dead: Mapping[str, int], now: datetime) -> int:
        total = 0
        while True:
            rescued, size = self._batches.run(partial(self._rescue_some, conn, dead, now))
            count = rescued.available + rescued.discarded
            total += count
            self._report(rescued, dead, now)
            if rescued.queues:
                waker_of(self._app).wake(rescued.queues)
            dead = {}
            if count < size:
                return total

    def _rescue_some(self, conn: Connection, dead: Mapping[str, int], now: datetime, limit: int) -> Rescued:
        return self._app.storage.rescue(conn, dead, now=now, limit=limit, error_text=ORPHANED)

    def _report(self, rescued: Rescued, dead: Mapping[str, int], now: datetime) -> None:
        observe, moment = self._app.registry.observe, self._app.clock.monotonic()
        for node in dead:
            silent = moment - self._seen.pop(node).since
            log.warning(
                "node %s is dead: its row has not changed for %.0f s", node, silent, extra={"node": node}
            )
            observe("jobkit_event", event=NodeLost(at=now, node=node, silent_for=silent))
        if rescued.available or rescued.discarded:
            log.warning(
                "rescued %d jobs of dead nodes, discarded %d that had no attempts left",
                rescued.available,
                rescued.discarded,
                extra={"plugin": "lifeline", "rescued": rescued.available, "discarded": rescued.discarded},
            )
            observe(
                "jobkit_event",
                event=JobsRescued(
                    at=now,
                    available=rescued.available,
                    discarded=rescued.discarded,
                    nodes=tuple(sorted(rescued.nodes)),
                ),
            )

    # -- jobs that nobody knows

    def _discard_unknown(self, conn: Connection, now: datetime) -> int:
        """End available jobs whose worker no node has known for the grace, counted from this node's start
        too.
        """
        grace = self._app.config.unknown_worker_grace
        moment = self._app.clock.monotonic()
        if grace is None or moment - self._started_at < grace.total_seconds():
            return 0
        every = min(LOOK_FOR_UNKNOWN_EVERY, grace / 3).total_seconds()
        if moment - self._looked_for_unknown_at < every:
            return 0
        self._looked_for_unknown_at = moment
        known = [name for name, entry in self._app.registry.workers.items() if not entry.error]
        count = self._app.storage.discard_unknown(
            conn, names_not_seen_since=now - grace, now=now, limit=self._settings.batch, known=known
        )
        if count:
            log.error("discarded %d jobs whose worker no node has known for %s", count, grace)
        return count
