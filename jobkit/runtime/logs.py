"""The runtime's log lines: one shape, and a bound on how many an outage may cause.

Each line is `event key=value ...` on logger `jobkit`; the same fields hang on the record as `jobkit`, a
dict, for formatters that write JSON. Invariant: an outage of any length writes one warning and then at most
one line per 30 s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["Outage", "Throttle", "log", "log_event"]

log: Final = logging.getLogger("jobkit")

REPEAT: Final = 30.0
"""Seconds between two lines about the same trouble."""


def log_event(level: int, event: str, fields: dict[str, object], *, detail: str = "") -> None:
    """Log one event. `detail` (an error's text) follows on lines of its own."""
    if not log.isEnabledFor(level):
        return
    words = " ".join(f"{key}={_word(value)}" for key, value in fields.items() if value is not None)
    text = f"{event} {words}\n{detail}" if detail else f"{event} {words}"
    log.log(
        level,
        "%s",
        text,
        extra={"jobkit": {"event": event, **fields, **({"error": detail} if detail else {})}},
    )


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    text = str(value)
    return repr(text) if not text or any(c.isspace() or not c.isprintable() for c in text) else text


class Throttle:
    """Lets one call in 30 s through, per key, and counts the others. Safe from any thread."""

    def __init__(self, monotonic: Callable[[], float], every: float = REPEAT) -> None:
        self._monotonic = monotonic
        self._every = every
        self._lock = threading.Lock()
        self._passed: dict[str, tuple[float, int]] = {}

    def passes(self, key: str) -> int | None:
        """How many calls were held back since the last one that passed; None where this one is held back
        too.
        """
        now = self._monotonic()
        with self._lock:
            at, held = self._passed.get(key, (float("-inf"), 0))
            if now - at < self._every:
                self._passed[key] = (at, held + 1)
                return None
            if len(self._passed) > 1_000:
                self._passed.clear()
            self._passed[key] = (now, 0)
            return held


class Outage:
    """Whether the database is out of reach, as all threads of one node see it together."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        lost: Callable[[str], None] = lambda error: None,
        restored: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._monotonic = monotonic
        self._lost = lost
        self._restored = restored
        self._lock = threading.Lock()
        self._since: float | None = None
        self._next_line: dict[str, float] = {}
        self._told = False
        self._errors = 0

    @property
    def active(self) -> bool:
        """True between the first failure and the next success."""
        return self._since is not None

    def failed(self, what: str, error: str, kind: str = "") -> None:
        """`what` failed since the database is out of reach, read-only, full or locked; each `kind` has lines."""
        now = self._monotonic()
        with self._lock:
            first, since = self._since is None, now if self._since is None else self._since
            self._since = since
            self._errors += 1
            due = now >= self._next_line.get(kind, now)
            if due:
                self._next_line[kind], self._told = now + REPEAT, True
        if due and first:
            log.warning("database trouble (%s): %s; retrying until it works again", what, error)
        elif due:
            log.warning("database trouble for %.0f s now (%s): %s", now - since, what, error)
        if first:
            self._lost(error)

    def succeeded(self) -> None:
        """Something worked again."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
            errors, self._errors = self._errors, 0
            told, self._told = self._told, False
        if since is None:
            return
        seconds = self._monotonic() - since
        if told:
            log.warning("database works again after %.1f s and %d failed tries", seconds, errors)
        self._restored(seconds)
