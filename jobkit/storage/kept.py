"""Connections that are kept open: one that a thread keeps for itself, and a few that an app's threads share.

Invariant: after trouble the next use gets another connection, and a broken one is never given back to a pool.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine

from jobkit.storage.engine import is_stale, node_connection

__all__ = ["KeptConnection", "KeptConnections", "kept_connections"]

T = TypeVar("T")


class KeptConnection:
    """Opened at first use; belongs to one thread."""

    __slots__ = ("_connect", "current")

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self.current: Connection | None = None
        """The connection, where there is one."""

    def get(self) -> Connection:
        """The connection; another one where the last is closed or was given up. Raises what connecting raises."""
        conn = self.current
        if conn is None or conn.closed or conn.invalidated:
            self.drop()
            conn = self.current = self._connect()
        return conn

    def drop(self) -> None:
        """Close it, so that the next use connects anew."""
        conn, self.current = self.current, None
        if conn is not None:
            with suppress(Exception):
                conn.invalidate()
            with suppress(Exception):
                conn.close()


class KeptConnections:
    """A few autocommit connections: half the cost of a single insert is opening a transaction for it."""

    KEPT: Final = 4

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pid = os.getpid()
        self._free: list[Connection] = []
        self._closed = False

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        """One connection for the body alone. What an error leaves behind is thrown away, not kept."""
        conn = self._take()
        try:
            yield conn
        except BaseException:
            with suppress(Exception):
                conn.invalidate()
            with suppress(Exception):
                conn.close()
            raise
        if len(self._free) < self.KEPT and os.getpid() == self._pid and not self._closed:
            self._free.append(conn)
        else:
            conn.close()

    def _take(self) -> Connection:
        if os.getpid() != self._pid:  # a fork never uses its parent's connections
            self._free, self._pid = [], os.getpid()
        while self._free:
            with suppress(IndexError):
                conn = self._free.pop()
                if not is_stale(conn):
                    return conn
                with suppress(Exception):
                    conn.invalidate()
        return node_connection(self._engine, autocommit=True)

    def close(self) -> None:
        """Close all; what is in use is closed when it comes back."""
        self._closed = True
        while self._free:
            with suppress(Exception):
                self._free.pop().close()


class _HasEngine(Protocol):
    @property
    def engine(self) -> Engine: ...
    def once(self, key: Hashable, make: Callable[[], T]) -> T: ...


def kept_connections(core: _HasEngine) -> KeptConnections:
    """Those of this app."""
    return core.once("connections", lambda: KeptConnections(core.engine))
