"""The brake: ends calls that wait for a reply which will never come.

A connection can be dead without anybody saying so: a firewall or proxy forgets it and goes on acknowledging,
which neither keepalives nor `tcp_user_timeout` notice, and the thread that waits on it would wait for ever.
A watcher looks at the connections of the node's threads; where one has been waiting in silence for long, the
server is asked on a fresh connection whether it is still at work on that call.

Invariant: a call is ended only where the server has answered it, has forgotten it, or cannot be reached; one
that is slow, or waits for a lock, goes on.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, text

from jobkit._forks import in_children

__all__ = ["Brake", "brake_for"]

log = logging.getLogger("jobkit.storage")

LOOK_EVERY: Final = 1.0
SILENT_FOR: Final = 5.0
"""Seconds without a byte after which a call is looked into."""
POOLED_SILENT_FOR: Final = 60.0
"""The same behind a pooler, whose server processes cannot be told apart: such calls are ended unasked."""
PROBE_FOR: Final = 5.0
"""Seconds in which the server must answer the question."""
TELL_EVERY: Final = 30.0
_ACTIVE: Final = 1
"""libpq's PQTRANS_ACTIVE: a command is in progress."""
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_LAST_DATA: Final = struct.Struct("=44xI4xI")
"""tcpi_last_data_sent and tcpi_last_data_recv, in milliseconds."""

_AT_WORK: Final = text(
    "SELECT 1 FROM pg_stat_activity WHERE pid = :pid AND state = 'active' "
    "AND wait_event IS DISTINCT FROM 'ClientWrite'"
)

Probe = Callable[[int], bool]
"""Whether the server process of this id is at work on a statement. Raises where the server cannot be
asked.
"""


@dataclass(frozen=True, slots=True)
class _Watched:
    address: object
    backend: int | None


class Brake:
    """Watches connections of psycopg; one thread a process, made at first use and again after a fork."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._lock = threading.Lock()
        self._watched: weakref.WeakKeyDictionary[Any, _Watched] = weakref.WeakKeyDictionary()
        self._running = False
        self._tell_at = 0.0
        in_children(self, Brake._start_over)

    def _start_over(self) -> None:
        """In a forked child: the thread, and the connections, are the parent's."""
        self._lock = threading.Lock()
        self._watched = weakref.WeakKeyDictionary()
        self._running = False

    def watch(self, raw: Any, *, backend: int | None = None) -> None:
        """Look after this connection from now on; `backend` is its server process, where that is known."""
        address = _address(raw)
        if address is None:
            return
        with self._lock:
            if not self._running:
                self._running = True
                threading.Thread(
                    target=_run, args=(weakref.ref(self),), name="jobkit-brake", daemon=True
                ).start()
            self._watched[raw] = _Watched(address, backend)

    def look(self) -> int:
        """One round; returns how many calls were ended."""
        with self._lock:
            watched = list(self._watched.items())
        return sum(self._hangs(raw, about) and _shut(raw, about) for raw, about in watched)

    def _hangs(self, raw: Any, about: _Watched) -> bool:
        limit = POOLED_SILENT_FOR if about.backend is None else SILENT_FOR
        if _silence(raw, about) < limit:
            return False
        if about.backend is not None and self._at_work(about.backend):
            return False
        if _silence(raw, about) < limit:
            return False
        self._tell(limit)
        return True

    def _tell(self, limit: float) -> None:
        """One line for all connections that died together."""
        now = time.monotonic()
        if now >= self._tell_at:
            self._tell_at = now + TELL_EVERY
            log.warning(
                "calls to the database wait for %.0f s in vain; their connections are replaced", limit
            )

    def _at_work(self, backend: int) -> bool:
        """Ask in a thread, since the question may meet the same silence."""
        answers: list[bool] = []

        def ask() -> None:
            with suppress(Exception):
                answers.append(self._probe(backend))

        thread = threading.Thread(target=ask, name="jobkit-probe", daemon=True)
        thread.start()
        thread.join(PROBE_FOR)
        return bool(answers and answers[0])


def brake_for(engine: Engine) -> Brake:
    """A brake that asks on connections of this engine."""
    ref = weakref.ref(engine)

    def at_work(backend: int) -> bool:
        engine = ref()
        if engine is None:
            return True
        with engine.connect() as conn:
            return conn.execute(_AT_WORK, {"pid": backend}).first() is not None

    return Brake(at_work)


def _run(brake: weakref.ref[Brake]) -> None:
    pause = threading.Event()
    while not pause.wait(LOOK_EVERY):
        live = brake()
        if live is None:
            return
        try:
            live.look()
        except Exception as error:  # noqa: BLE001 - the next look comes
            log.debug("looking at connections failed: %s", error)
        del live


def _socket(raw: Any) -> socket.socket:
    """The connection's socket, by a descriptor of our own."""
    return socket.socket(fileno=os.dup(raw.pgconn.socket))


def _address(raw: Any) -> object:
    """The two ends of the line; None where there is no TCP, or no way to look at it."""
    if _TCP_INFO is None:
        return None
    try:
        with closing(_socket(raw)) as line:
            if line.family not in (socket.AF_INET, socket.AF_INET6) or not os.path.exists("/proc/net/tcp"):
                return None
            return line.getsockname(), line.getpeername()
    except Exception:  # noqa: BLE001 - a socket of another kind
        return None


def _silence(raw: Any, about: _Watched) -> float:
    """For how many seconds a call has been waiting without a byte sent or received; 0 where none waits."""
    try:
        if raw.closed or raw.pgconn.transaction_status != _ACTIVE:
            return 0.0
        with closing(_socket(raw)) as line:
            if (line.getsockname(), line.getpeername()) != about.address:
                return 0.0
            assert _TCP_INFO is not None
            sent, received = _LAST_DATA.unpack(
                line.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _LAST_DATA.size)
            )
            return float(min(sent, received)) / 1000
    except Exception:  # noqa: BLE001 - closed meanwhile
        return 0.0


def _shut(raw: Any, about: _Watched) -> bool:
    """End the wait: whoever waits gets an error at once."""
    try:
        with closing(_socket(raw)) as line:
            if (line.getsockname(), line.getpeername()) == about.address:
                line.shutdown(socket.SHUT_RDWR)
                return True
    except Exception:  # noqa: BLE001 - closed meanwhile
        return False
    return False
