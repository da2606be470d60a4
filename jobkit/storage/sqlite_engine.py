"""How SQLite is opened: WAL, a real BEGIN that takes the write lock, and a fair way to wait for it.

Invariant: a transaction that writes holds the write lock from its first statement, so it never fails
half-way for want of it; SQLite's own busy handler is not used on jobkit's connections, since it starves
writers.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor, ExecutionContext
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from jobkit.errors import ConfigError
from jobkit.storage.faults import Fault, classify, is_busy
from jobkit.storage.sqlite_forks import StillConnection

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = [
    "BEGIN_OPTION",
    "BUSY_DEADLINE",
    "SQLITE_ARGS",
    "configure",
    "configure_sqlite",
    "execute_patiently",
    "keep_no_reader",
    "open_for_reading",
    "real_begin",
    "sqlite_configured",
]

BUSY_DEADLINE: Final = 10.0
"""Seconds that a statement waits for SQLite's lock."""
BEGIN_OPTION: Final = "jobkit_begin"
"""The execution option, or entry of `Connection.info`, that says how a transaction begins."""

SQLITE_ARGS: Final[dict[str, Any]] = {"timeout": 0, "check_same_thread": False, "factory": StillConnection}
_configured: weakref.WeakSet[object] = weakref.WeakSet()


def configure_sqlite(
    engine: Engine | AsyncEngine, *, synchronous: Literal["FULL", "NORMAL"] = "FULL"
) -> None:
    """Makes a user's own SQLite engine fit for enqueueing: call it once, right after making the engine.

    WAL; a real BEGIN, which takes the write lock at once (`execution_options(jobkit_begin="DEFERRED")` on a
    connection or engine that only reads leaves it); waiting for locks up to 10 s. Works for sqlite3 and
    aiosqlite. Raises ConfigError for another database.
    """
    sync_engine = engine if isinstance(engine, Engine) else engine.sync_engine
    if sync_engine.dialect.name != "sqlite":
        raise ConfigError(f"configure_sqlite: this engine speaks {sync_engine.dialect.name}, not SQLite")
    if sync_engine.dialect not in _configured:
        configure(sync_engine, synchronous)


def sqlite_configured(conn: Connection) -> bool:
    """Whether the engine behind `conn` went through `configure_sqlite` (or is jobkit's own)."""
    return conn.dialect in _configured


def configure(engine: Engine, synchronous: str) -> None:
    """Installs all that `configure_sqlite` promises; `synchronous` is FULL or NORMAL."""
    _configured.add(engine.dialect)
    patient = engine.dialect.driver == "pysqlite"  # the others must not block an event loop

    def prepare(raw: DBAPIConnection, record: ConnectionPoolEntry, _: PoolProxiedConnection) -> None:
        if record.info.get("jobkit_prepared") is not raw:
            _prepare_sqlite(raw, synchronous, busy_timeout=0 if patient else int(BUSY_DEADLINE * 1000))
            record.info["jobkit_prepared"] = raw

    event.listen(engine, "checkout", prepare)
    keep_no_reader(engine)
    real_begin(engine, default="IMMEDIATE")
    if patient:
        event.listen(engine, "do_execute", execute_patiently)


def keep_no_reader(engine: Engine) -> None:
    """Pool no connection to a file that may not be written to.

    SQLite shares one process's way of opening a file's shared memory among all its connections: a single one left from
    the time when the file was read-only would keep those that come later from writing.
    """

    def opened(raw: Any, record: ConnectionPoolEntry) -> None:
        cursor = raw.cursor()
        cursor.execute("PRAGMA database_list")
        file = cursor.fetchone()[2]
        cursor.close()
        record.info["jobkit_reader"] = bool(file) and not os.access(file, os.W_OK)

    def returned(raw: Any, record: ConnectionPoolEntry) -> None:
        if raw is not None and record.info.get("jobkit_reader"):
            record.invalidate()

    event.listen(engine, "connect", opened)
    event.listen(engine, "checkin", returned)


def _prepare_sqlite(raw: Any, synchronous: str, *, busy_timeout: int) -> None:
    if getattr(raw, "autocommit", -1) in (True, False):  # 3.12's own mode would open deferred transactions
        raw.commit()
        raw.autocommit = -1
    raw.isolation_level = None
    cursor = raw.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {busy_timeout}")
    cursor.execute("PRAGMA journal_mode")
    if str(cursor.fetchone()[0]).lower() != "wal":
        _set_wal(cursor)
    cursor.execute(f"PRAGMA synchronous = {synchronous}")
    cursor.close()


def _set_wal(cursor: DBAPICursor) -> None:
    """SQLite calls no busy handler for this pragma, so that processes which open a new file together would
    fail.
    """
    end = time.monotonic() + BUSY_DEADLINE
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.fetchall()
            return
        except sqlite3.OperationalError as error:
            if classify(error) is Fault.READONLY:
                return
            if classify(error) is not Fault.LOCKED or time.monotonic() >= end:
                raise
            time.sleep(random.uniform(0.002, 0.008))


def real_begin(engine: Engine, *, default: str) -> None:
    """Transactions begin with IMMEDIATE, DEFERRED or (None) not at all, as the option or `default` says."""

    def begin(conn: Connection) -> None:
        how = conn.info.get(BEGIN_OPTION) or conn.get_execution_options().get(BEGIN_OPTION, default)
        if how:
            conn.exec_driver_sql(f"BEGIN {how}")

    event.listen(engine, "begin", begin)


def execute_patiently(
    cursor: DBAPICursor, statement: str, parameters: Any, context: ExecutionContext | None
) -> bool:
    """Executes; waits for the lock in a loop that is fair to all who wait."""
    try:
        cursor.execute(statement, parameters)
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        _wait_and_execute(cursor, statement, parameters)
    return True


def _wait_and_execute(cursor: DBAPICursor, statement: str, parameters: Any) -> None:
    end = time.monotonic() + BUSY_DEADLINE
    while True:
        time.sleep(random.uniform(0.0005, 0.003))
        try:
            cursor.execute(statement, parameters)
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= end:
                raise


def open_for_reading(url: URL) -> sqlite3.Connection:
    """mode=rw, so that a missing file is an error instead of a new file."""
    name = url.database or ""
    if not name.startswith("file:"):
        name = f"file:{quote(os.path.abspath(name))}?mode=rw"
    raw = sqlite3.connect(
        name, uri=True, timeout=5, check_same_thread=False, isolation_level=None, factory=StillConnection
    )
    raw.execute("PRAGMA query_only = 1")
    return raw
