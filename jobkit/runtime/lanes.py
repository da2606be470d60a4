"""Database threads: one thread, one long-lived connection, whatever its owner wants done on it.

Invariant: a lane never ends by an error. Trouble closes the connection, is told to the node's `Outage`, and
is followed by a jittered pause; the next round opens a new connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from jobkit.clock import Clock
from jobkit.runtime.daemon import Daemon
from jobkit.runtime.failures import brief
from jobkit.runtime.logs import Outage, Throttle, log
from jobkit.storage.engine import Fault, classify
from jobkit.storage.kept import KeptConnection

__all__ = ["OUT_OF_REACH", "Lane", "pause_after"]

OUT_OF_REACH: Final = frozenset(
    {Fault.LOST, Fault.CONFLICT, Fault.LOCKED, Fault.READONLY, Fault.FULL, Fault.MISSING}
)
"""Faults that pass by themselves: the same statement is tried again, unchanged."""

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0

Serve = Callable[[Connection], float | None]
"""Do all that there is to do; return after how many seconds to be called again at the latest, or None."""


def pause_after(failures: int, random: float) -> float:
    """Seconds to wait after the n-th failure in a row: doubling up to 5 s, jittered downwards by up to a
    half.
    """
    return float(min(FIRST_PAUSE * 2 ** min(failures - 1, 16), LONGEST_PAUSE) * (1 - random / 2))


class Lane(Daemon):
    """One database thread. `wake` and `stop` may be called from any thread."""

    def __init__(
        self, name: str, connect: Callable[[], Connection], serve: Serve, *, outage: Outage, clock: Clock
    ) -> None:
        super().__init__(name)
        self.name = name
        self._serve = serve
        self._outage = outage
        self._clock = clock
        self._throttle = Throttle(clock.monotonic)
        self._signal = threading.Event()
        self._line = KeptConnection(connect)
        self._failures = 0

    @property
    def failing(self) -> bool:
        """True while its rounds fail."""
        return self._failures > 0

    def wake(self) -> None:
        """There is something to do."""
        self._signal.set()

    def stop(self) -> None:
        """End after the round that is running. Does not wait."""
        super().stop()
        self._signal.set()

    def _run(self) -> None:
        try:
            delay: float | None = 0.0
            while not self._halt.is_set():
                self._signal.wait(delay)
                self._signal.clear()
                delay = None if self._halt.is_set() else self._round()
        finally:
            self._line.drop()

    def _round(self) -> float | None:
        try:
            delay = self._serve(self._line.get())
        except Exception as exc:  # noqa: BLE001 - a lane outlives whatever happens on it
            return self._trouble(exc)
        self._failures = 0
        return delay

    def _trouble(self, exc: Exception) -> float:
        """Report, let go of the connection, and wait, woken or not."""
        self._failures += 1
        fault = classify(exc)
        if fault in OUT_OF_REACH:
            self._outage.failed(self.name, brief(exc), fault)
        elif (held := self._throttle.passes(type(exc).__name__)) is not None:
            log.error("%s failed (%d more times): %s", self.name, held, brief(exc))
        if fault is not Fault.CONFLICT:
            self._line.drop()
        self._halt.wait(pause_after(self._failures, self._clock.random()))
        return 0.0
