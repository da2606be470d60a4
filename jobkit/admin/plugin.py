"""The operations plugin: finishes bulk operations that nobody works on any more.

Whoever starts an operation works on it; where that process died, a node takes over once the operation's
lease has run out. Invariant: a tick only looks; the work is done chunk by chunk on a thread of its own, which
ends with the node.
"""

from __future__ import annotations

import logging
import threading
import weakref
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobkit.admin._bulk import abandoned
from jobkit.admin.actions import Actions
from jobkit.errors import JobkitError
from jobkit.hookspecs import Actor, Node, PluginInfo, Service, hookimpl

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core

log = logging.getLogger("jobkit.admin")


@dataclass(frozen=True, slots=True)
class OperationsSettings:
    """`[plugins.operations]`: how often to look for abandoned operations."""

    interval: timedelta = timedelta(seconds=15)


jobkit_plugin = PluginInfo(api=1, settings=OperationsSettings)

_finishers: weakref.WeakKeyDictionary[Node, Finisher] = weakref.WeakKeyDictionary()


@hookimpl
def jobkit_services(app: Core, node: Node) -> list[Service]:
    """One look every quarter of a minute."""
    finisher = _finishers[node] = Finisher(app)
    settings = app.config.plugin("operations", OperationsSettings)
    return [Service("operations", settings.interval, finisher.tick)]


@hookimpl
def jobkit_node_stopping(node: Node) -> None:
    """End after the chunk that is under way; another node goes on."""
    if (finisher := _finishers.get(node)) is not None:
        finisher.stopping.set()


class Finisher:
    """One node's hand in abandoned operations."""

    def __init__(self, app: Core) -> None:
        self._app = app
        self._thread: threading.Thread | None = None
        self.stopping = threading.Event()

    def tick(self, conn: Connection, now: datetime) -> int:
        """Look; start to work where there is something. Returns how many operations were found."""
        if self._thread is not None and self._thread.is_alive():
            return 0
        with conn.begin():
            found = abandoned(self._app, conn, now)
        if found and not self.stopping.is_set():
            self._thread = threading.Thread(target=self._work, name="jobkit-operations", daemon=True)
            self._thread.start()
        return len(found)

    def wait(self, timeout: float) -> bool:
        """Until the work that was begun is done; False where that takes longer."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    def _work(self) -> None:
        try:
            Actions(self._app, Actor("system")).run_open_operations(stop=self.stopping.is_set)
        except JobkitError as error:
            log.warning("abandoned bulk operations could not be finished, and are tried again: %s", error)
