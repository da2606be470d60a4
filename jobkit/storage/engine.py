"""Engines and connections: how jobkit opens a database, and what a transaction means on each of its
connections.

Invariants: jobkit's SQLite transactions take the write lock when they begin, so none ever fails half-way for
want of it; waiting for it is a fair loop of our own (SQLite's starves writers); a process never uses a
connection that its parent opened; node connections come from no pool, so jobs cannot starve the node of them.
"""

from __future__ import annotations

import logging
import select
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, PoolProxiedConnection, QueuePool

from jobkit._forks import in_children, leave_to_parent
from jobkit.errors import ConfigError
from jobkit.storage.brake import brake_for
from jobkit.storage.faults import Fault, classify, retrying
from jobkit.storage.sqlite_engine import (
    BEGIN_OPTION,
    SQLITE_ARGS,
    configure,
    configure_sqlite,
    execute_patiently,
    keep_no_reader,
    open_for_reading,
    real_begin,
    sqlite_configured,
)
from jobkit.storage.sqlite_forks import still_at_fork

__all__ = [
    "DatabaseSettings",
    "Fault",
    "as_sqlalchemy",
    "atomic",
    "autocommits",
    "classify",
    "configure_sqlite",
    "driver_in_transaction",
    "execute_directly",
    "in_transaction",
    "is_stale",
    "make_engine",
    "node_connection",
    "read_engine",
    "reading",
    "retrying",
    "savepoint",
    "sqlite_configured",
]

log = logging.getLogger("jobkit.storage")

_UTC: Final = "SET TIME ZONE 'UTC';"
_LET_GO: Final = "SET idle_in_transaction_session_timeout = '20s';"
"""A process that is suspended within a transaction must not hold its locks, and up its own rescue, for ever."""
_BY_INDEX: Final = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
"""A queue's table is empty when the first plans are made and may hold a million rows a minute later."""
_READ_TIMEOUT_MS: Final = 15_000
_AUTOCOMMIT: Final = "jobkit_autocommit"
_CURSOR: Final = "jobkit_cursor"


class DatabaseSettings(Protocol):
    """The part of `Config` that engines are made from."""

    @property
    def database_url(self) -> str:
        """Any SQLAlchemy URL of SQLite or Postgres; the driver it names is not used."""
        ...

    @property
    def sqlite_synchronous(self) -> str:
        """`full` or `normal`."""
        ...

    @property
    def postgres_prepare(self) -> str:
        """`auto`, `on` or `off`: whether statements are prepared on the server."""
        ...


# --- making engines


def make_engine(config: DatabaseSettings) -> Engine:
    """The engine of an app: psycopg 3 or sqlite3, whatever driver the URL names.

    Raises ConfigError for a URL that is no URL, another database, or SQLite in memory.
    """
    engine = _build(config, pooled=True)
    _node_engines[engine] = {mode: _build(config, pooled=False, autocommit=mode) for mode in (True, False)}
    return engine


def read_engine(config: DatabaseSettings) -> Engine:
    """An engine that cannot write: transactions are read-only, never wait for writers, and give up after 15
    s.
    """
    url = _url(config)
    if url.get_backend_name() == "sqlite":
        engine = create_engine(
            "sqlite://", creator=lambda: open_for_reading(url), poolclass=QueuePool, pool_size=5
        )
        real_begin(engine, default="DEFERRED")
        keep_no_reader(engine)
    else:
        engine = _postgres(url, config, pooled=True)
        event.listen(engine, "begin", _read_only)
    in_children(engine, _start_over)
    return engine


_node_engines: weakref.WeakKeyDictionary[Engine, dict[bool, Engine]] = weakref.WeakKeyDictionary()


def _build(config: DatabaseSettings, *, pooled: bool, autocommit: bool = False) -> Engine:
    url = _url(config)
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, poolclass=QueuePool if pooled else NullPool, connect_args=SQLITE_ARGS)
        configure(engine, config.sqlite_synchronous.upper())
        still_at_fork(engine)
    else:
        engine = _postgres(url, config, pooled=pooled, autocommit=autocommit)
    in_children(engine, _start_over)
    return engine


def _url(config: DatabaseSettings) -> URL:
    try:
        url = make_url(config.database_url)
    except Exception as error:
        raise ConfigError(  # without its text, which may hold a password
            "database_url is not a database URL; it looks like sqlite:///jobkit.db or postgresql://user@host/name"
        ) from error
    backend = url.get_backend_name()
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise ConfigError(f"database_url: {backend!r} is not supported; use sqlite or postgresql")
    if not url.database or url.database == ":memory:" or "mode=memory" in str(url):
        raise ConfigError(
            "database_url: a database in memory is seen by one connection only; name a file, "
            "such as sqlite:///jobkit.db"
        )
    return url.set(drivername="sqlite+pysqlite")


def _start_over(engine: Engine) -> None:
    """In a forked child: its pool is the parent's."""
    engine.dispose(close=False)


# --- Postgres

_POSTGRES_ARGS: Final[dict[str, str | int]] = {
    "application_name": "jobkit",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


def _postgres(url: URL, config: DatabaseSettings, *, pooled: bool, autocommit: bool = False) -> Engine:
    defaults = {name: value for name, value in _POSTGRES_ARGS.items() if name not in url.query}
    level: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
    pool = QueuePool if pooled else NullPool
    engine = create_engine(url, poolclass=pool, connect_args=defaults, **level)
    prepare = config.postgres_prepare
    brake = None if pooled else brake_for(engine)

    def opened(raw: Any, _: ConnectionPoolEntry) -> None:
        leave_to_parent(raw)
        if brake is not None:
            brake.watch(raw)
        pooler = _behind_pooler(raw)
        if brake is not None and not pooler:
            brake.watch(raw, backend=raw.info.backend_pid)
        if prepare == "off" or (prepare == "auto" and pooler):
            raw.prepare_threshold = None
        if not pooler:  # which would hand our settings on to others
            _set_up_session(raw, _UTC + ("" if pooled else _LET_GO) + (_BY_INDEX if autocommit else ""))

    event.listen(engine, "connect", opened)
    if pooled:
        event.listen(engine, "checkout", _refuse_stale)
    return engine


def _behind_pooler(raw: Any) -> bool:
    """A pooler answers the handshake with a process id of its own."""
    row = raw.execute("SELECT pg_backend_pid()").fetchone()
    raw.rollback()
    return bool(row[0] != raw.info.backend_pid)


def _set_up_session(raw: Any, settings: str) -> None:
    raw.execute(settings)
    raw.commit()


def _refuse_stale(raw: Any, record: ConnectionPoolEntry, _: PoolProxiedConnection) -> None:
    """An idle connection has nothing to read, unless the server said good-bye. Costs no round trip."""
    if not _readable(raw.fileno()):
        return
    try:
        raw.execute("SELECT 1")
        raw.rollback()
    except Exception as error:
        raise DisconnectionError("the server closed this connection") from error


def is_stale(conn: Connection) -> bool:
    """Whether the server has closed this idle connection, or it is closed here. Costs no round trip."""
    if conn.closed or conn.invalidated:
        return True
    raw: Any = conn.connection.driver_connection
    return conn.dialect.name == "postgresql" and (raw.closed or _readable(raw.fileno()))


def _readable(fileno: int) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([fileno], [], [], 0)[0])
    poller = select.poll()
    poller.register(fileno, select.POLLIN)
    return bool(poller.poll(0))


def _read_only(conn: Connection) -> None:
    """For this transaction only: a session's setting would stay behind in a transaction-mode pooler."""
    conn.exec_driver_sql(f"SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = {_READ_TIMEOUT_MS}")


# --- connections and transactions


def node_connection(engine: Engine, *, autocommit: bool) -> Connection:
    """A connection for one thread of a node, from no pool; the caller closes it.

    `autocommit`: each statement commits by itself, in one round trip; `atomic` still makes real
    transactions. After Fault.LOST close it and make another.
    """
    engines = _node_engines.get(engine)
    conn = (engine if engines is None else engines[autocommit]).connect()
    if not autocommit:
        return conn
    if conn.dialect.name == "sqlite":
        return conn.execution_options(**{BEGIN_OPTION: None, _AUTOCOMMIT: True})
    if engines is None:
        conn.execution_options(isolation_level="AUTOCOMMIT")
    return conn.execution_options(**{_AUTOCOMMIT: True})


def autocommits(conn: Connection) -> bool:
    """Whether `conn` is a node's connection on which each statement commits by itself."""
    return bool(conn.get_execution_options().get(_AUTOCOMMIT))


def in_transaction(conn: Connection) -> bool:
    """Whether a transaction that somebody else will end is open on `conn`.

    SQLAlchemy counts autocommitted statements as one, so there the driver is asked.
    """
    if not autocommits(conn):
        return conn.in_transaction()
    return driver_in_transaction(conn)


def execute_directly(conn: Connection, statement: str, parameters: Any) -> list[Any]:
    """Executes on the driver's own connection (psycopg, sqlite3), and returns all rows, if it gives any.

    Errors are SQLAlchemy's, and a lost connection is given up, as if SQLAlchemy had sent the statement.
    """
    try:
        if conn.dialect.name == "sqlite":
            return _ask_sqlite(conn.connection.driver_connection, statement, parameters)
        return _ask_postgres(conn, statement, parameters)
    except conn.dialect.loaded_dbapi.Error as error:
        raise as_sqlalchemy(conn, error, statement, parameters) from error


def _ask_sqlite(raw: Any, statement: str, parameters: Any) -> list[Any]:
    cursor = raw.cursor()
    try:
        execute_patiently(cursor, statement, parameters, None)
        rows: list[Any] = cursor.fetchall()
        return rows
    finally:
        cursor.close()  # or an error in the middle would leave a statement, and its lock, open


def _ask_postgres(conn: Connection, statement: str, parameters: Any) -> list[Any]:
    """On a cursor that stays: to make one takes a tenth of a small statement's time."""
    proxied = conn.connection
    cursor: Any = proxied.info.get(_CURSOR)
    if cursor is None or cursor.connection is not proxied.driver_connection:
        cursor = proxied.info[_CURSOR] = proxied.driver_connection.cursor()  # type: ignore[union-attr]
    cursor.execute(statement, parameters)
    if cursor.rownumber is None:  # no rows at all; to ask for the `description` would take longer
        return []
    rows: list[Any] = cursor.fetchall()
    return rows


def as_sqlalchemy(conn: Connection, error: Exception, statement: str, parameters: Any) -> BaseException:
    """A driver's error as SQLAlchemy would have raised it."""
    dialect = conn.dialect
    lost = dialect.is_disconnect(error, conn.connection, None)  # type: ignore[arg-type]
    if lost:
        conn.invalidate(error)
    return DBAPIError.instance(
        statement,
        parameters,
        error,
        dialect.loaded_dbapi.Error,
        hide_parameters=True,
        connection_invalidated=lost,
        dialect=dialect,
    )


def driver_in_transaction(conn: Connection) -> bool:
    """Whether the driver has a transaction open, now: false before the first statement and in autocommit."""
    raw: Any = conn.connection.driver_connection
    if hasattr(raw, "is_in_transaction"):  # asyncpg
        return bool(raw.is_in_transaction())
    if hasattr(raw, "in_transaction"):  # sqlite3, aiosqlite
        return bool(raw.in_transaction)
    return bool(raw.info.transaction_status != 0)  # psycopg, psycopg2


@contextmanager
def savepoint(conn: Connection) -> Iterator[None]:
    """Keeps the open transaction usable if the body fails; where statements commit by themselves, nothing."""
    if driver_in_transaction(conn):
        with conn.begin_nested():
            yield
    else:
        yield


@contextmanager
def atomic(conn: Connection) -> Iterator[Connection]:
    """All or nothing: joins the transaction that is open on `conn`, else runs and commits one of its own."""
    if in_transaction(conn):
        yield conn
    elif autocommits(conn):
        with _own_transaction(conn):
            yield conn
    else:
        with conn.begin():
            yield conn


@contextmanager
def _own_transaction(conn: Connection) -> Iterator[None]:
    execute_directly(conn, "BEGIN IMMEDIATE" if conn.dialect.name == "sqlite" else "BEGIN", ())
    try:
        yield
        execute_directly(conn, "COMMIT", ())
    except BaseException:
        with suppress(Exception):  # the first error tells; a lost connection rolls back by itself
            conn.exec_driver_sql("ROLLBACK")
        raise


@contextmanager
def reading(conn: Connection) -> Iterator[Connection]:
    """A consistent read that takes no write lock: in the open transaction, else in a short one of its own."""
    if in_transaction(conn) or autocommits(conn):
        yield conn
        return
    conn.info[BEGIN_OPTION] = "DEFERRED"
    try:
        with conn.begin():
            yield conn
    finally:
        if not conn.invalidated:
            conn.info.pop(BEGIN_OPTION, None)
