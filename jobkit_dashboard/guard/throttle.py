"""Bounds on how often: logins, writes, and searches at once.

Invariant: refusing one client costs nothing that another client needs, and a valid session is never locked out
by somebody else's wrong passwords.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from jobkit_dashboard.guard.limits import Refused

__all__ = ["LoginThrottle", "Rate", "SearchGate"]

_MOST_CLIENTS: Final = 10_000


class Rate:
    """At most `limit` events a `window` of seconds for each key."""

    def __init__(self, limit: int, window: float, monotonic: Callable[[], float]) -> None:
        self.limit, self.window, self._now = limit, window, monotonic
        self._events: dict[str, deque[float]] = defaultdict(deque)
        self._lock = threading.Lock()

    def wait(self, key: str) -> float:
        """Seconds until another event is allowed; 0 where it is now."""
        with self._lock:
            return self._wait(key)

    def add(self, key: str) -> float:
        """Count an event where it is allowed; seconds to wait where it is not."""
        with self._lock:
            wait = self._wait(key)
            if not wait:
                self._events[key].append(self._now())
            return wait

    def _wait(self, key: str) -> float:
        now = self._now()
        if len(self._events) > _MOST_CLIENTS:
            self._forget(now)
        events = self._events[key]
        while events and events[0] <= now - self.window:
            events.popleft()
        return 0.0 if len(events) < self.limit else events[0] + self.window - now

    def _forget(self, now: float) -> None:
        for key in [
            key for key, events in self._events.items() if not events or events[-1] <= now - self.window
        ]:
            del self._events[key]


class LoginThrottle:
    """5 wrong tries a minute and address, 30 in all; beyond that each further try doubles the wait, up to 5 minutes."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._now = monotonic
        self._each = Rate(5, 60.0, monotonic)
        self._all = Rate(30, 60.0, monotonic)
        self._until: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def check(self, address: str) -> None:
        """Raises Refused (429) where this address has to wait."""
        wait = max(self._each.wait(address), self._all.wait(""), self._delay(address))
        if wait > 0:
            self._grow(address, wait)
            raise Refused(429, "too many tries; wait a little", retry_after=int(wait) + 1)

    def failed(self, address: str) -> None:
        """Count a wrong try."""
        self._each.add(address)
        self._all.add("")

    def succeeded(self, address: str) -> None:
        """Forget the growing delay of an address."""
        with self._lock:
            self._until.pop(address, None)

    def _delay(self, address: str) -> float:
        with self._lock:
            return self._until.get(address, (0.0, 0.0))[0] - self._now()

    def _grow(self, address: str, wait: float) -> None:
        with self._lock:
            if len(self._until) > _MOST_CLIENTS:
                self._until.clear()
            grown = min(max(self._until.get(address, (0.0, 0.0))[1] * 2, 2.0), 300.0)
            self._until[address] = (self._now() + max(wait, grown), grown)


@dataclass(slots=True)
class SearchGate:
    """At most 4 searches at once in this process, and 1 running with 1 waiting for each actor."""

    most: int = 4
    each: int = 2
    _running: int = 0
    _by_actor: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def enter(self, actor: str) -> Iterator[None]:
        """Hold a place while a search runs. Raises Refused (429)."""
        with self._lock:
            if self._running >= self.most or self._by_actor[actor] >= self.each:
                raise Refused(429, "too many searches at once; try again in a moment", retry_after=1)
            self._running += 1
            self._by_actor[actor] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._by_actor[actor] -= 1
                if not self._by_actor[actor]:
                    del self._by_actor[actor]
