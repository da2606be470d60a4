"""Numbers that are shared between viewers for a moment.

Invariant: a sample that took long is taken seldom (by default at most a twentieth of the time goes into it), by one
thread at a time, and always knows its age.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

__all__ = ["Sample", "Samples"]

log = logging.getLogger("jobkit.dashboard")
T = TypeVar("T")
_MOST: Final = 500
SPARE: Final = 20
_OLD: Final = 30.0
_REST: Final = 5
_LONGEST_REST: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sample(Generic[T]):
    """A value, when it was taken on the monotonic clock, and how long that took in seconds."""

    value: T
    taken: float
    took: float


class Samples:
    """Values by key."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._now = monotonic
        self._samples: dict[Hashable, Sample[object]] = {}
        self._locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "jobkit-dashboard-counts")
        self._resting = threading.Event()

    def get(
        self,
        key: Hashable,
        make: Callable[[], T],
        *,
        least: float = 1.0,
        spare: int = SPARE,
        behind: float | None = None,
        still: Callable[[T], bool] | None = None,
    ) -> Sample[T]:
        """The value of this key, taken anew where it is older than `least` seconds and `spare` times what taking it
        cost.

        `behind`: where taking it cost more than so many seconds, a value that is not much older is good enough for this
        once, and the new one is taken in a thread meanwhile. `still`: cheaper than taking it; says that it would be the
        same again.
        """
        found = self._samples.get(key)
        if found is not None and self._fresh(found, least, spare):
            return cast("Sample[T]", found)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        if not lock.acquire(blocking=found is None):
            return cast("Sample[T]", found)
        if (
            found is not None
            and behind is not None
            and found.took >= behind
            and self._fresh(found, _OLD, 3 * spare)
        ):
            self._pool.submit(self._renew, key, make, lock)
            return cast("Sample[T]", found)
        try:
            again = self._samples.get(key)
            if again is not None and self._fresh(again, least, spare):
                return cast("Sample[T]", again)
            if again is not None and still is not None and still(cast("T", again.value)):
                return self._keep(key, cast("Sample[T]", again))
            return self._take(key, make)
        finally:
            lock.release()

    def _renew(self, key: Hashable, make: Callable[[], T], lock: threading.Lock) -> None:
        try:
            took = self._take(key, make).took
            # However many numbers there are, counting leaves the processor to those who work most of the time.
            self._resting.wait(min(_REST * took, _LONGEST_REST))
        except Exception:
            log.warning("%r could not be counted anew", key, exc_info=True)
        finally:
            lock.release()

    def age(self, sample: Sample[T]) -> float:
        """Seconds since it was taken."""
        return max(self._now() - sample.taken, 0.0)

    def clear(self) -> None:
        """Forget everything, so that what was just changed is seen."""
        with self._lock:
            self._samples.clear()
            self._locks.clear()

    def _fresh(self, sample: Sample[object], least: float, spare: int) -> bool:
        return self._now() - sample.taken < max(least, spare * sample.took)

    def _keep(self, key: Hashable, sample: Sample[T]) -> Sample[T]:
        """The same value, known to be good now."""
        kept = Sample(sample.value, self._now(), sample.took)
        with self._lock:
            if key in self._samples:
                self._samples[key] = cast("Sample[object]", kept)
        return kept

    def _take(self, key: Hashable, make: Callable[[], T]) -> Sample[T]:
        begun = self._now()
        value = make()
        sample = Sample(value, self._now(), self._now() - begun)
        with self._lock:
            if len(self._samples) >= _MOST:
                self._samples.clear()
                self._locks.clear()
            self._samples[key] = cast("Sample[object]", sample)
        return sample
