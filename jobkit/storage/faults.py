"""What went wrong in the database, as one word; and trying again where that is the answer.

Invariant: code decides by `Fault`, never by a driver's exception class or message; only this file knows
those.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, TypeVar

from sqlalchemy import exc as sa_exc

from jobkit.errors import EnqueueConflict

__all__ = ["DEADLINE", "Fault", "classify", "is_busy", "passing", "pauses", "retrying"]

T = TypeVar("T")

DEADLINE: Final = 10.0
"""Seconds for which a transaction of jobkit's own is run again."""


class Fault(StrEnum):
    """The kinds of database errors that are answered differently."""

    LOST = "lost"
    """The connection or the server is gone, or there are too many connections: wait, connect anew."""
    CONFLICT = "conflict"
    """Deadlock or serialization failure: the transaction was rolled back, run it again."""
    LOCKED = "locked"
    """SQLite's lock, or a Postgres lock timeout: run it again."""
    READONLY = "readonly"
    """The database refuses writes for now."""
    FULL = "full"
    """No room left, or no memory."""
    MISSING = "missing"
    """No such table, column or schema: not migrated."""
    TIMEOUT = "timeout"
    """A statement was cancelled or took too long, or no pooled connection became free."""
    OTHER = "other"
    """Anything else: the statement or its data is at fault, or it is no database error at all."""


_SQLSTATES: Final = {
    "40001": Fault.CONFLICT,
    "40P01": Fault.CONFLICT,
    "55P03": Fault.LOCKED,
    "25006": Fault.READONLY,
    "53100": Fault.FULL,
    "53200": Fault.FULL,
    "53300": Fault.LOST,
    "57P01": Fault.LOST,
    "57P02": Fault.LOST,
    "57P03": Fault.LOST,
    "57P05": Fault.LOST,
    "25P03": Fault.LOST,
    "57014": Fault.TIMEOUT,
    "42P01": Fault.MISSING,
    "42703": Fault.MISSING,
    "3F000": Fault.MISSING,
}
_SQLITE_CODES: Final = {
    sqlite3.SQLITE_BUSY: Fault.LOCKED,
    sqlite3.SQLITE_LOCKED: Fault.LOCKED,
    sqlite3.SQLITE_READONLY: Fault.READONLY,
    sqlite3.SQLITE_FULL: Fault.FULL,
    sqlite3.SQLITE_NOMEM: Fault.FULL,
    sqlite3.SQLITE_IOERR: Fault.LOST,
    sqlite3.SQLITE_CANTOPEN: Fault.LOST,
    sqlite3.SQLITE_INTERRUPT: Fault.TIMEOUT,
}
_SQLITE_BUSY_SNAPSHOT: Final = 517


def classify(exc: BaseException) -> Fault:
    """The kind of `exc`, which SQLAlchemy or a driver raised (psycopg, psycopg2, asyncpg, sqlite3,
    aiosqlite).
    """
    for error in _layers(exc):
        if (fault := _fault_of(error)) is not None:
            return fault
    return Fault.OTHER


def _layers(exc: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    queue: list[BaseException | None] = [exc]
    while queue:
        error = queue.pop(0)
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        queue += [getattr(error, "orig", None), error.__cause__]


def _fault_of(error: BaseException) -> Fault | None:
    if isinstance(error, sa_exc.TimeoutError):
        return Fault.TIMEOUT
    if isinstance(error, sa_exc.DBAPIError) and error.connection_invalidated:
        return Fault.LOST
    if isinstance(error, sqlite3.Error):
        return _sqlite_fault(error)
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str):
        return _SQLSTATES.get(state, Fault.LOST if state.startswith("08") else Fault.OTHER)
    if isinstance(error, ConnectionError | sa_exc.DisconnectionError):
        return Fault.LOST
    # A driver's OperationalError or InterfaceError without an SQLSTATE: no server answered.
    driver = type(error).__module__.split(".")[0] in {"psycopg", "psycopg2", "asyncpg"}
    gone = type(error).__name__ in {"OperationalError", "InterfaceError", "ConnectionTimeout"}
    return Fault.LOST if driver and gone else None


def _sqlite_fault(error: sqlite3.Error) -> Fault | None:
    message = str(error)
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in message:
        return Fault.LOST
    if "no such table" in message or "no such column" in message or "has no column named" in message:
        return Fault.MISSING
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else _SQLITE_CODES.get(code & 0xFF, Fault.OTHER)


def is_busy(error: sqlite3.Error) -> bool:
    """True for a lock that ends by itself; a stale snapshot (a reader that wants to write) does not."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_BUSY and code != _SQLITE_BUSY_SNAPSHOT


_AGAIN: Final = frozenset({Fault.CONFLICT, Fault.LOCKED})


def passing(error: BaseException) -> bool:
    """True for what goes away if the whole transaction is run again: CONFLICT and LOCKED."""
    return classify(error) in _AGAIN


def pauses(deadline: float, monotonic: Callable[[], float] = time.monotonic) -> Iterator[float]:
    """Growing, jittered pauses in seconds; no more of them once `deadline` seconds from now are over."""
    end = monotonic() + deadline

    def steps() -> Iterator[float]:
        step = 0.002
        while monotonic() < end:
            yield random.uniform(0.2, 1.0) * step
            step = min(step * 2, 0.25)

    return steps()


def retrying(
    fn: Callable[[], T],
    *,
    deadline: float = DEADLINE,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """Calls `fn` until it raises neither CONFLICT nor LOCKED, for at most `deadline` seconds.

    `fn` must be a whole transaction. The last error passes through.
    """
    waits = pauses(deadline, monotonic)
    while True:
        try:
            return fn()
        except (sa_exc.DBAPIError, sqlite3.OperationalError, EnqueueConflict) as error:
            if not passing(error) or (wait := next(waits, None)) is None:
                raise
        pause(wait)
