"""Stager: makes scheduled and retryable jobs available once they are due.

Runs on every node; two nodes that stage the same row are one conditional UPDATE winning. Invariant: a batch
is one short statement, so that whatever else writes gets in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from jobkit.core import Core
from jobkit.hookspecs import Node, PluginInfo, Service, hookimpl
from jobkit.plugins._batches import Batches
from jobkit.wakeup import waker_of

BATCHES = 100


@dataclass(frozen=True, slots=True)
class StagerSettings:
    """`[plugins.stager]`: the pause between rounds, and how many rows one statement stages."""

    interval: timedelta = timedelta(seconds=1)
    batch: int = 1_000

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 100_000:
            raise ValueError(f"batch must lie between 1 and 100000, not {self.batch}")


jobkit_plugin = PluginInfo(api=1, settings=StagerSettings)


@hookimpl
def jobkit_services(app: Core, node: Node) -> list[Service]:
    """One round a second."""
    settings = app.config.plugin("stager", StagerSettings)
    batches = Batches(settings.batch)

    def tick(conn: Connection, now: datetime) -> int:
        total = 0
        for _ in range(BATCHES):
            staged, size = batches.run(lambda limit: app.storage.stage(conn, now=now, limit=limit))
            total += staged.count
            if staged.queues:
                waker_of(app).wake(staged.queues)
            if staged.count < size:
                break
        return total

    return [Service("stager", settings.interval, tick)]
