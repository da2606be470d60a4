"""Runs the services of plugins: intervals with jitter, one thread for the shared ones, one each for the others.

Invariant: a tick that raises, or that leaves a transaction open, harms neither its next tick nor another service; ticks
of one service never overlap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from jobkit._hooktypes import Service
from jobkit.events import PluginTicked
from jobkit.runtime.daemon import Daemon
from jobkit.runtime.failures import brief
from jobkit.runtime.lanes import OUT_OF_REACH, pause_after
from jobkit.runtime.logs import Outage, log
from jobkit.storage.engine import Fault, classify, node_connection
from jobkit.storage.kept import KeptConnection

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["Entry", "ServiceThread", "threads_for"]

JITTER: Final = 0.1


@dataclass(slots=True, eq=False)
class Entry:
    """One service of one plugin on this node. `due` is monotonic; `ticked_at` the wall clock's last good tick."""

    plugin: str
    service: Service
    due: float = 0.0
    failures: int = 0
    ticked_at: datetime | None = None
    last_error: str = ""
    first: threading.Event = field(default_factory=threading.Event)

    @property
    def label(self) -> str:
        """The plugin's name, and the service's where it has another."""
        name = self.service.name
        return self.plugin if name == self.plugin else f"{self.plugin}.{name}"


class ServiceThread(Daemon):
    """Ticks its services one after the other, at once first, on one connection that is made anew after trouble."""

    def __init__(self, core: Core, entries: Sequence[Entry], outage: Outage, name: str) -> None:
        super().__init__(name)
        self._core = core
        self._entries = list(entries)
        self._outage = outage
        self._line = KeptConnection(lambda: node_connection(core.engine, autocommit=False))

    @property
    def entries(self) -> Sequence[Entry]:
        """The services that it ticks."""
        return self._entries

    def wait_first(self, timeout: float) -> bool:
        """Wait until each service has done one good round."""
        deadline = self._core.clock.monotonic() + timeout
        return all(
            entry.first.wait(max(0.0, deadline - self._core.clock.monotonic())) for entry in self._entries
        )

    def _run(self) -> None:
        try:
            while not self._halt.is_set():
                entry = min(self._entries, key=lambda e: e.due)
                if not self._halt.wait(max(0.0, entry.due - self._core.clock.monotonic())):
                    self._tick(entry)
        finally:
            self._line.drop()

    def _tick(self, entry: Entry) -> None:
        started = self._core.clock.monotonic()
        now = self._core.clock.now()
        try:
            count = entry.service.tick(self._line.get(), now)
        except BaseException as exc:  # noqa: BLE001 - plugin code: not even SystemExit may end the thread
            pause = self._failed(entry, exc)
        else:
            pause = self._ticked(entry, count, now, started)
        self._tidy(entry)
        entry.due = self._core.clock.monotonic() + pause

    def _ticked(self, entry: Entry, count: int, now: datetime, started: float) -> float:
        entry.failures = 0
        entry.ticked_at = now
        entry.last_error = ""
        entry.first.set()
        if count:
            log.debug("plugin.tick plugin=%s count=%d", entry.label, count)
            ms = (self._core.clock.monotonic() - started) * 1000
            self._core.emit(
                PluginTicked(
                    at=now, plugin=entry.plugin, service=entry.service.name, count=count, duration_ms=ms
                )
            )
        return self._jittered(entry.service.seconds)

    def _failed(self, entry: Entry, exc: BaseException) -> float:
        """Report; come again after a growing pause, or the interval where that is shorter."""
        entry.failures += 1
        entry.last_error = brief(exc)[:500]
        fault = classify(exc)
        if fault in OUT_OF_REACH:
            self._outage.failed(entry.label, brief(exc), fault)
        else:
            self._core.registry.failed(entry.plugin, f"service {entry.service.name}", exc)
        if fault in (Fault.LOST, Fault.READONLY):
            self._line.drop()
        backoff = pause_after(entry.failures, self._core.clock.random())
        return max(backoff, self._jittered(min(entry.service.seconds, 1.0)) if entry.failures > 3 else 0.0)

    def _tidy(self, entry: Entry) -> None:
        """A tick must leave no transaction behind: it would hold locks, and old rows, for a whole interval."""
        conn = self._line.current
        if conn is None:
            return
        try:
            if conn.in_transaction():
                conn.rollback()
                if not entry.failures:
                    log.warning("service %s left a transaction open; it was rolled back", entry.label)
        except Exception:  # noqa: BLE001 - the next tick gets a new connection
            self._line.drop()

    def _jittered(self, seconds: float) -> float:
        """Never sooner than was asked for: what a node at rest costs is counted in statements a second."""
        return seconds * (1 + JITTER * self._core.clock.random())


def threads_for(
    core: Core, services: Sequence[tuple[str, Service]], outage: Outage, keep: Callable[[str, Service], bool]
) -> tuple[list[ServiceThread], list[ServiceThread]]:
    """The threads of the outer and of the normal phase, for the services that `keep` accepts."""
    entries = [Entry(plugin, service) for plugin, service in services if keep(plugin, service)]
    threads: dict[str, list[ServiceThread]] = {"outer": [], "normal": []}
    for phase, found in threads.items():
        mine = [entry for entry in entries if entry.service.phase == phase]
        shared = [entry for entry in mine if entry.service.thread == "shared"]
        if shared:
            found.append(ServiceThread(core, shared, outage, f"jobkit-services-{phase}"))
        for entry in mine:
            if entry.service.thread == "own":
                found.append(ServiceThread(core, [entry], outage, f"jobkit-{entry.label}"))
    return threads["outer"], threads["normal"]
