"""Hints from other processes: Postgres notifications, and SQLite's data_version.

Invariant: hints only make things faster. Whatever happens to a connection here, polling finds the work, and the thread
keeps trying to get its hints back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from sqlalchemy import Connection

from jobkit.clock import Clock
from jobkit.runtime.daemon import Daemon
from jobkit.runtime.failures import brief
from jobkit.runtime.lanes import pause_after
from jobkit.runtime.logs import Throttle, log

__all__ = ["Hints", "Listener", "Watcher"]

PING_EVERY: Final = 10.0
DEAF_AFTER: Final = 25.0
"""Seconds without one's own ping after which a listener is taken for dead."""
LISTEN_FOR: Final = 0.5
WATCH_EVERY: Final = 0.008
WATCH_CLOSELY: Final = 0.002
"""Seconds between looks where jobs came a moment ago: the next are likely."""


class Hints(Protocol):
    """A thread that brings hints."""

    @property
    def healthy(self) -> bool:
        """True while hints can be relied on, so that polling may slow down."""
        ...

    def start(self) -> None:
        """Start the thread."""
        ...

    def stop(self) -> None:
        """End soon. Does not wait."""
        ...

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end; False where it took longer."""
        ...


class Listener(Daemon):
    """LISTEN on a connection of its own, with a ping that finds dead, half-open and pooled ones.

    `wake` gets queue names, or `*` after each connect, since what came in between is lost. `ping(payload)` must send a
    notification by another connection; the listener trusts itself only while it hears its own.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        channel: str,
        *,
        wake: Callable[[set[str]], None],
        ping: Callable[[str], None],
        name: str,
        clock: Clock,
        lost: Callable[[str], None] = lambda error: None,
        restored: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("jobkit-listener")
        self._connect = connect
        self._channel = channel
        self._wake = wake
        self._ping = ping
        self._own = f"ping:{name}"
        self._clock = clock
        self._lost = lost
        self._restored = restored
        self._throttle = Throttle(clock.monotonic, every=300.0)
        self._raw: Any = None
        self._heard: float | None = None
        self._ping_at = 0.0
        self._failures = 0
        self._ever = False

    @property
    def healthy(self) -> bool:
        """True while its own pings arrive."""
        heard = self._heard
        return heard is not None and self._clock.monotonic() - heard < DEAF_AFTER

    def stop(self) -> None:
        """See Hints; closing the connection ends a wait on it at once."""
        super().stop()
        self._hang_up()

    def _run(self) -> None:
        while not self._halt.is_set():
            try:
                self._listen()
            except Exception as exc:  # noqa: BLE001 - whatever happened, listen again
                self._trouble(exc)
        self._hang_up()

    def _listen(self) -> None:
        """Connect and listen until something fails."""
        conn = self._connect()
        try:
            quoted = self._channel.replace('"', '""')
            raw: Any = conn.connection.driver_connection
            self._raw = raw
            conn.exec_driver_sql(f'LISTEN "{quoted}"')
            opened = self._clock.monotonic()
            self._wake({"*"})
            self._ping_at = opened
            while not self._halt.is_set():
                self._send_ping()
                for notice in raw.notifies(
                    timeout=LISTEN_FOR
                ):  # at once back to the wait: others need the GIL
                    self._received(notice.payload)
                self._check(opened)
        finally:
            self._raw = None
            with contextlib.suppress(Exception):
                conn.invalidate()
            with contextlib.suppress(Exception):
                conn.close()

    def _received(self, payload: str) -> None:
        if payload.startswith("ping:"):
            if payload == self._own:
                self._hear()
        else:
            self._wake(set(payload.split(",")))

    def _hear(self) -> None:
        fresh = self._heard is None
        self._heard = self._clock.monotonic()
        self._failures = 0
        if fresh and self._ever:
            log.info("notifications arrive again")
            self._restored()
        self._ever = True

    def _send_ping(self) -> None:
        now = self._clock.monotonic()
        if now >= self._ping_at:
            self._ping_at = now + PING_EVERY
            self._ping(self._own)

    def _check(self, opened: float) -> None:
        """Hang up on a line on which one's own voice is not heard."""
        last = max(self._heard or 0.0, opened)
        if self._clock.monotonic() - last >= DEAF_AFTER:
            raise ConnectionError("its own notifications do not arrive (a pooler, or a dead connection)")

    def _trouble(self, exc: Exception) -> None:
        if self._halt.is_set():
            return
        if self._heard is not None:
            self._heard = None
            self._lost(brief(exc))
        self._failures += 1
        if self._throttle.passes("listener") is not None:
            log.warning("listening for notifications failed, polling instead: %s", brief(exc))
        self._halt.wait(pause_after(self._failures, self._clock.random()))

    def _hang_up(self) -> None:
        raw = self._raw
        if raw is not None:
            with contextlib.suppress(Exception):
                raw.close()


class Watcher(Daemon):
    """Sees writes of other connections to a SQLite file by `PRAGMA data_version`, on one that never writes.

    Invariant: it never holds a transaction open.
    """

    healthy: Final = False
    """Commits of other hosts are not promised to be seen: polling keeps its pace."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        changed: Callable[[], None],
        lively: Callable[[], bool] = lambda: False,
        clock: Clock,
    ) -> None:
        super().__init__("jobkit-watcher")
        self._connect = connect
        self._changed = changed
        self._lively = lively
        self._clock = clock
        self._failures = 0

    def _run(self) -> None:
        while not self._halt.is_set():
            try:
                self._watch()
            except Exception as exc:  # noqa: BLE001 - polling goes on without the hints
                self._failures += 1
                log.debug("watching the file failed: %s", brief(exc))
                self._halt.wait(pause_after(self._failures, self._clock.random()))

    def _watch(self) -> None:
        conn = self._connect()
        try:
            raw: Any = conn.connection.driver_connection
            cursor = raw.cursor()
            seen = None
            while not self._halt.wait(WATCH_CLOSELY if self._lively() else WATCH_EVERY):
                version = cursor.execute("PRAGMA data_version").fetchone()[0]
                self._failures = 0
                if version != seen:
                    seen = version
                    self._changed()
        finally:
            with contextlib.suppress(Exception):
                conn.close()
