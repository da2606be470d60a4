"""The read-only door to the database: short transactions that cannot write, wait for nobody, and end in
time.

Invariant: a read either returns within its limit or raises one of this package's errors; no driver's
exception and no text of a statement gets past it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from jobkit.admin.errors import DatabaseUnreachable, QueryTimeout
from jobkit.errors import NotMigrated
from jobkit.storage.faults import Fault, classify

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core

__all__ = ["database_errors", "read_only"]

_STEPS: Final = 5_000
"""SQLite asks after so many of its instructions: a fraction of a millisecond."""


@contextmanager
def read_only(app: Core, timeout: timedelta) -> Iterator[Connection]:
    """A transaction for reading; each statement in it has `timeout` (on SQLite: all of them together).

    Raises QueryTimeout, DatabaseUnreachable, NotMigrated.
    """
    with (
        database_errors(app, timeout),
        app.read_engine.connect() as conn,
        conn.begin(),
        _limited(conn, timeout),
    ):
        yield conn


@contextmanager
def _limited(conn: Connection, timeout: timedelta) -> Iterator[None]:
    if conn.dialect.name != "sqlite":
        millis = max(int(timeout.total_seconds() * 1000), 1)
        conn.exec_driver_sql(
            f"SET LOCAL statement_timeout = {millis}; SET LOCAL lock_timeout = {millis}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {millis * 10}; "
            # compiling a statement takes longer than these statements may
            "SET LOCAL jit = off"
        )
        yield
        return
    raw: Any = conn.connection.driver_connection
    end = time.monotonic() + timeout.total_seconds()
    raw.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    try:
        yield
    finally:
        raw.set_progress_handler(None, 0)


@contextmanager
def database_errors(app: Core, timeout: timedelta | None = None) -> Iterator[None]:
    """Turns database errors into this package's."""
    try:
        yield
    except SQLAlchemyError as error:
        told = _told(app, error, timeout)
        if told is error:
            raise
        raise told from error


def _told(app: Core, error: SQLAlchemyError, timeout: timedelta | None) -> Exception:
    fault = classify(error)
    if fault is Fault.MISSING:
        return NotMigrated("jobkit's tables are missing or outdated in this database: run `jobkit migrate`")
    if fault is Fault.TIMEOUT:
        limit = "" if timeout is None else f" than {timeout.total_seconds():g} s"
        return QueryTimeout(f"this took longer{limit} and was given up; narrow the query")
    if fault in (Fault.LOST, Fault.FULL, Fault.READONLY, Fault.LOCKED):
        reason = app.redactor.text(str(getattr(error, "orig", None) or error), kind="log")
        return DatabaseUnreachable(f"the database cannot be used now ({fault.value}): {reason}")
    if isinstance(error, DBAPIError) and fault is Fault.CONFLICT:
        return DatabaseUnreachable("the database rolled this back again and again; try once more")
    return error
