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

from jobkit.admin._sqlite_files import explained, file_of, is_unchanging, unchanging_engine
from jobkit.admin.errors import DatabaseUnreachable, QueryTimeout
from jobkit.errors import NotMigrated
from jobkit.storage.faults import Fault, classify

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from jobkit.core import Core

__all__ = ["NOT_MIGRATED", "database_errors", "not_migrated", "read_only"]

NOT_MIGRATED: Final = "jobkit's tables are missing or outdated; run `jobkit migrate up`"
_STEPS: Final = 5_000
"""SQLite asks after so many of its instructions: a fraction of a millisecond."""


@contextmanager
def read_only(app: Core, timeout: timedelta) -> Iterator[Connection]:
    """A transaction for reading; each statement in it has `timeout` (on SQLite: all of them together).

    Raises QueryTimeout, DatabaseUnreachable, NotMigrated.
    """
    with (
        database_errors(app, timeout),
        _read_engine(app).connect() as conn,
        conn.begin(),
        _limited(conn, timeout),
    ):
        yield conn


def _read_engine(app: Core) -> Engine:
    """The app's; another one for a SQLite file in a place where not even a reader's lock can be made."""
    file = file_of(app.engine.url)
    if file is None or not is_unchanging(file):
        return app.read_engine
    return app.once(("admin.unchanging_engine", file), lambda: unchanging_engine(file))


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
    if (about_file := explained(app.engine.url, error)) is not None:
        return about_file
    fault = classify(error)
    if fault is Fault.MISSING:
        return NotMigrated(NOT_MIGRATED)
    if fault is Fault.TIMEOUT:
        limit = "" if timeout is None else f" than {timeout.total_seconds():g} s"
        return QueryTimeout(f"this took longer{limit} and was given up; narrow the query")
    if fault in (Fault.LOST, Fault.FULL, Fault.READONLY, Fault.LOCKED):
        reason = app.redactor.text(str(getattr(error, "orig", None) or error), kind="log")
        return DatabaseUnreachable(f"the database cannot be used now ({fault.value}): {reason}")
    if isinstance(error, DBAPIError) and fault is Fault.CONFLICT:
        return DatabaseUnreachable("the database rolled this back again and again; try once more")
    return error


def not_migrated(error: NotMigrated) -> str:
    """The one way in which it is told that tables are missing, with what is known of it."""
    what = str(error).partition("; run ")[0]
    start, _, remedy = NOT_MIGRATED.partition(";")
    return NOT_MIGRATED if what.startswith(start) else f"{start}: {what};{remedy}"
