"""Pruner: deletes jobs that became final longer than `prune_after` ago.

Runs on every node; two that prune the same rows delete them once. Invariant: a batch is one short statement,
followed by a pause for whoever else writes, and a round ends at the latest a batch after the node began to
stop.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from jobkit.core import Core
from jobkit.hookspecs import Node, PluginInfo, Service, hookimpl
from jobkit.plugins._batches import Batches


@dataclass(frozen=True, slots=True)
class PrunerSettings:
    """`[plugins.pruner]`: the pause between rounds, rows a statement, the pause after each, statements a
    round.
    """

    interval: timedelta = timedelta(seconds=60)
    batch: int = 1_000
    pause: timedelta = timedelta(milliseconds=20)
    batches: int = 2_000

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 100_000:
            raise ValueError(f"batch must lie between 1 and 100000, not {self.batch}")
        if self.batches < 1:
            raise ValueError(f"batches must be at least 1, not {self.batches}")
        if self.pause < timedelta(0):
            raise ValueError(f"pause must not be negative, not {self.pause}")


jobkit_plugin = PluginInfo(api=1, settings=PrunerSettings)

_stopping: weakref.WeakKeyDictionary[Node, threading.Event] = weakref.WeakKeyDictionary()


@hookimpl
def jobkit_services(app: Core, node: Node) -> list[Service]:
    """A round a minute, on a thread of its own, so that a long one delays nothing else."""
    settings = app.config.plugin("pruner", PrunerSettings)
    prune_after = app.config.prune_after
    if prune_after is None:
        return []
    stopping = _stopping.setdefault(node, threading.Event())
    batches = Batches(settings.batch)

    def tick(conn: Connection, now: datetime) -> int:
        total = 0
        for _ in range(settings.batches):
            count, size = batches.run(
                lambda limit: app.storage.prune(conn, before=now - prune_after, limit=limit)
            )
            total += count
            if count < size or stopping.wait(settings.pause.total_seconds()):
                break
        return total

    return [Service("pruner", settings.interval, tick, thread="own")]


@hookimpl
def jobkit_node_stopping(node: Node) -> None:
    """End the round that is under way."""
    if (stopping := _stopping.get(node)) is not None:
        stopping.set()
