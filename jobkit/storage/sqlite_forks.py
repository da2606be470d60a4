"""No process is forked while a thread of it is inside SQLite, or in the middle of a write.

SQLite keeps in the memory of the process what its connections have locked, and guards that with mutexes. A child made
while another thread holds one of these would wait for it in vain, for ever: that thread does not exist there. So the
one who forks takes the write lock first, which says that nobody else here has it, then keeps all other threads out,
and parent and child each let go.

Invariant: a fork is delayed by twice `PATIENCE` at most, and never fails for want of a lock.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Engine

__all__ = ["StillConnection", "still_at_fork"]

PATIENCE: Final = 1.0
"""Seconds: the one who forks may itself be the one who writes."""

_opening: Final = threading.RLock()
_connections: Final[weakref.WeakSet[StillConnection]] = weakref.WeakSet()
_files: Final[weakref.WeakKeyDictionary[Engine, str]] = weakref.WeakKeyDictionary()


class StillConnection(sqlite3.Connection):
    """A connection that nobody is inside of while the process is forked: `sqlite3.connect(factory=...)`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        with _opening:
            super().__init__(*args, **options)
            self.inside: Final = threading.RLock()
            _connections.add(self)

    def cursor(self, factory: Any = None) -> Any:
        """A cursor that holds `inside` during each call."""
        return super().cursor(factory or _StillCursor)  # type: ignore[arg-type]

    def execute(self, *args: Any) -> Any:
        """As sqlite3 does it."""
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> Any:
        """As sqlite3 does it."""
        return self.cursor().executemany(*args)

    def commit(self) -> None:
        """As sqlite3 does it."""
        with self.inside:
            super().commit()

    def rollback(self) -> None:
        """As sqlite3 does it."""
        with self.inside:
            super().rollback()

    def close(self) -> None:
        """As sqlite3 does it."""
        with self.inside:
            super().close()


class _StillCursor(sqlite3.Cursor):
    connection: StillConnection

    def __init__(self, connection: StillConnection) -> None:
        super().__init__(connection)
        self._inside: Final = connection.inside

    def execute(self, *args: Any) -> Any:
        with self._inside:
            return super().execute(*args)

    def executemany(self, *args: Any) -> Any:
        with self._inside:
            return super().executemany(*args)

    def fetchone(self) -> Any:
        with self._inside:
            return super().fetchone()

    def fetchmany(self, *args: Any, **options: Any) -> Any:
        with self._inside:
            return super().fetchmany(*args, **options)

    def fetchall(self) -> Any:
        with self._inside:
            return super().fetchall()

    def close(self) -> None:
        with self._inside:
            super().close()

    def __next__(self) -> Any:
        with self._inside:
            return super().__next__()


def still_at_fork(engine: Engine) -> None:
    """Fork only between the writes to this engine's file, as long as the engine lives."""
    if engine.url.database and not engine.url.database.startswith("file:"):
        _files[engine] = os.path.realpath(engine.url.database)


class _Held(threading.local):
    """What this thread holds while it forks."""

    def __init__(self) -> None:
        self.locks: list[Any] = []
        self.writes: list[sqlite3.Connection] = []


_held: Final = _Held()
_forking: Final = threading.RLock()
_left: Final[list[sqlite3.Connection]] = []
"""The parent's connections in a child: ending one there is the parent's right alone."""


def _before() -> None:
    _hold(_forking, PATIENCE)
    for file in sorted(set(_files.values())):
        if os.path.exists(file):
            with suppress(sqlite3.Error):
                _held.writes.append(_between_writes(file))
    end = time.monotonic() + PATIENCE
    _hold(_opening, PATIENCE)
    for raw in list(_connections):
        _hold(raw.inside, max(0.0, end - time.monotonic()))


def _hold(lock: Any, patience: float) -> None:
    if lock.acquire(timeout=patience):
        _held.locks.append(lock)


def _between_writes(file: str) -> sqlite3.Connection:
    raw = sqlite3.connect(file, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        raw.execute("BEGIN IMMEDIATE")
    except sqlite3.Error:
        raw.close()
        raise
    return raw


def _in_parent() -> None:
    _let_in(ends=True)


def _in_child() -> None:
    _left.extend(_held.writes)
    _let_in(ends=False)


def _let_in(*, ends: bool) -> None:
    for raw in _held.writes:
        with suppress(sqlite3.Error):
            raw.execute("ROLLBACK")
            if ends:
                raw.close()
    for lock in reversed(_held.locks):  # the one that keeps others from forking comes last
        lock.release()
    _held.writes, _held.locks = [], []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
