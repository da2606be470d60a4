"""A clock that moves by hand.

Invariant: between two calls of `advance` no time passes, on either of its two clocks.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["FrozenClock"]

_START: Final = 1_000.0


class FrozenClock:
    """A `Clock` for tests: `Jobkit(url, clock=FrozenClock())`. Safe from any thread.

    start: an aware datetime; left out, the machine's present. fraction: what `random()` always gives.
    """

    def __init__(self, start: datetime | None = None, *, fraction: float = 0.5) -> None:
        """Raises ValueError for a naive datetime, and for a fraction outside of [0, 1)."""
        if start is not None and start.utcoffset() is None:
            raise ValueError(f"{start} has no time zone; give an aware datetime")
        if not 0 <= fraction < 1:
            raise ValueError(f"fraction must be at least 0 and less than 1, not {fraction}")
        self._now = (start or datetime.now(UTC)).astimezone(UTC)
        self._monotonic = _START
        self._fraction = fraction
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The wall clock: an aware UTC instant."""
        return self._now

    def monotonic(self) -> float:
        """Seconds; moves only forwards, with `advance`."""
        return self._monotonic

    def random(self) -> float:
        """The fraction given at the start."""
        return self._fraction

    def advance(self, delta: timedelta | float) -> datetime:
        """Let time pass: `now` and `monotonic` both move on by a timedelta or by seconds. Returns the new `now`.

        Raises ValueError for a delta below zero, since no monotonic clock goes back; see `set`.
        """
        step = delta if isinstance(delta, timedelta) else timedelta(seconds=delta)
        if step < timedelta(0):
            raise ValueError(f"time does not pass backwards (got {step}); set() moves the wall clock alone")
        with self._lock:
            self._now += step
            self._monotonic += step.total_seconds()
            return self._now

    def set(self, now: datetime) -> None:
        """Set the wall clock alone, forwards or backwards, as an administrator or a time server would."""
        if now.utcoffset() is None:
            raise ValueError(f"{now} has no time zone; give an aware datetime")
        with self._lock:
            self._now = now.astimezone(UTC)

    def __repr__(self) -> str:
        return f"FrozenClock({self._now.isoformat()})"
