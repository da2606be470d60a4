"""Time and randomness, from outside.

Invariant: whatever is decided about a job takes its time and its chance from a Clock, so that tests move time
instead of sleeping. Only waits for real things (a lock, a socket, a thread) go by the machine's own.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

__all__ = ["Clock", "SystemClock"]


@runtime_checkable
class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """The wall clock: an aware UTC instant, to the microsecond."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes backwards; only differences mean anything."""
        ...

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
        ...


class SystemClock:
    """The machine's own clocks and Python's default generator."""

    __slots__ = ()

    def now(self) -> datetime:
        """The machine's wall clock, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """`time.monotonic()`."""
        return time.monotonic()

    def random(self) -> float:
        """`random.random()`."""
        return random.random()
