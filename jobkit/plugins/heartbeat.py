"""Heartbeat: says that this node lives, and learns what the database wants of it.

Each beat reconciles both ways: a lease without its row was lost, so its run is aborted (that is how a cancel
crosses nodes); a row without a lease, at two beats in a row, belongs to a claim whose reply never arrived,
and is given back. Invariant: what this node holds is noted before its rows are read, so a row can be newer
than the note, never older.
"""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from jobkit.core import Core
from jobkit.events import JobGivenBack, LoopBlocked
from jobkit.hookspecs import Node, PluginInfo, Service, hookimpl
from jobkit.jobs import Lease
from jobkit.registry import WorkerEntry
from jobkit.storage.base import Beat

log = logging.getLogger("jobkit.plugins.heartbeat")

PUBLISH_EVERY = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """`[plugins.heartbeat]`: the pause between beats, and after how long a blocked event loop is named."""

    interval: timedelta = timedelta(seconds=1)
    blocked_after: timedelta = timedelta(seconds=2)

    def __post_init__(self) -> None:
        if not timedelta(0) < self.interval <= timedelta(seconds=5):
            raise ValueError(f"interval must be more than 0 and at most 5s, not {self.interval}")


jobkit_plugin = PluginInfo(api=1, settings=HeartbeatSettings)


@hookimpl
def jobkit_services(app: Core, node: Node) -> list[Service]:
    """The beat, on a thread and connection of its own: blocked jobs and slow services do not delay it."""
    settings = app.config.plugin("heartbeat", HeartbeatSettings)
    heart = Heart(app, node, settings)
    return [Service("heartbeat", settings.interval, heart.tick, thread="own", phase="outer")]


class Heart:
    """What one node's heartbeat remembers from beat to beat."""

    def __init__(self, app: Core, node: Node, settings: HeartbeatSettings) -> None:
        self._app = app
        self._node = node
        self._settings = settings
        self._limits = dict(node.queues)
        self._stray: frozenset[Lease] = frozenset()
        self._published_at = -math.inf
        self._named_block = False

    def tick(self, conn: Connection, now: datetime) -> int:
        """One beat. Returns how many rows were given back. A node whose loop has ended does not beat."""
        lag = self._node.loop_lag()
        if math.isinf(lag):
            return 0
        self._watch(lag, now)
        node = self._node.id
        held, flying = self._node.leases(), self._node.in_flight()
        try:
            beat = self._app.storage.beat(
                conn, node, now=now, queues=dict(self._node.queues), info=dict(self._node.info())
            )
        except BaseException:
            self._node.beat(False)
            raise
        if beat is None:
            log.warning("node %s was declared dead and starts anew", node, extra={"node": node})
            self._stray = frozenset()
            self._node.renew()
            return 0
        self._node.beat(True)
        self._apply(beat)
        self._publish(conn, now)
        return self._reconcile(conn, node, held, flying, frozenset(beat.executing), now)

    def _apply(self, beat: Beat) -> None:
        for name, limit in self._limits.items():
            settings = beat.queues.get(name)
            if settings is not None:
                self._node.set_queue(
                    name, settings.paused, limit if settings.limit is None else settings.limit
                )
        wanted = beat.wanted
        self._node.command(bool(wanted.get("paused", False)), bool(wanted.get("drain", False)))

    def _reconcile(
        self,
        conn: Connection,
        node: str,
        held: frozenset[Lease],
        flying: frozenset[datetime],
        rows: frozenset[Lease],
        now: datetime,
    ) -> int:
        for lease in held - rows:
            self._node.abort(lease)
        stray = frozenset(lease for lease in rows - held if lease.at not in flying)
        twice, self._stray = stray & self._stray, stray
        if not twice:
            return 0
        back = self._app.storage.give_back(conn, sorted(twice, key=lambda lease: lease.id), now=now)
        if back:
            some = ", ".join(str(lease.id) for lease in back[:5]) + (", ..." if len(back) > 5 else "")
            log.warning(
                "%d jobs (%s) were claimed by a statement whose reply was lost; given back", len(back), some
            )
        for lease in back:
            self._app.registry.observe(
                "jobkit_event",
                event=JobGivenBack(
                    at=now, id=lease.id, worker="", queue="", attempt=0, node=node, why="stray"
                ),
            )
        return len(back)

    def _publish(self, conn: Connection, now: datetime) -> None:
        """Say which workers this node knows, often enough for `unknown_worker_grace` to see it."""
        moment = self._app.clock.monotonic()
        grace = self._app.config.unknown_worker_grace
        every = PUBLISH_EVERY if not grace else min(PUBLISH_EVERY, grace / 3)
        if moment - self._published_at >= every.total_seconds():
            self._app.storage.publish_workers(conn, _published(self._app), now=now)
            self._published_at = moment

    def _watch(self, lag: float, now: datetime) -> None:
        """Name the job that blocks the event loop, once for each time it is blocked."""
        if lag < self._settings.blocked_after.total_seconds():
            self._named_block = False
            return
        if self._named_block:
            return
        self._named_block = True
        job = self._node.blocked_by()
        log.warning(
            "the event loop has been blocked for %.1f s%s; work that blocks belongs in `def perform` or in "
            "runner='process'",
            lag,
            f" by {job}" if job else "",
            extra={"node": self._node.id, "blocked_by": job},
        )
        event = LoopBlocked(at=now, node=self._node.id, seconds=lag, job=job)
        self._app.registry.observe("jobkit_event", event=event)


def _published(app: Core) -> dict[str, str]:
    """The names that this node can run, with what is known of each; one that failed to import is not among
    them.
    """
    return {name: _config_of(entry) for name, entry in app.registry.workers.items() if not entry.error}


def _config_of(entry: WorkerEntry) -> str:
    about: dict[str, object] = {
        "place": entry.place,
        "distribution": entry.distribution,
        "version": entry.version,
    }
    if entry.cls is not None:
        config = entry.cls.__jobkit__
        about |= {
            "queue": config.queue,
            "max_attempts": config.max_attempts,
            "priority": config.priority,
            "timeout": config.timeout.total_seconds() if config.timeout is not None else None,
            "unique": config.unique is not None,
            "secret": list(config.secret),
        }
    return json.dumps(about)
