"""How the test helpers reach a database: on a connection of their own, or inside the caller's transaction; and how
a plain function runs a coroutine, whether or not a loop is running.

Invariant: nothing is ever committed or rolled back on a caller's connection.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

from jobkit.core import Core
from jobkit.errors import NotMigrated
from jobkit.inserting import joining
from jobkit.runtime.ownloop import run_on_own_loop
from jobkit.storage.base import Storage
from jobkit.storage.engine import Fault, classify, node_connection

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from jobkit.app import Jobkit

__all__ = [
    "AnyConnection",
    "Reach",
    "SyncConnection",
    "connection_of",
    "core_of",
    "reaching",
    "run_sync",
    "tables_expected",
]

T = TypeVar("T")
Step: TypeAlias = Callable[[Connection], T]
SyncConnection: TypeAlias = "Connection | Session | scoped_session[Session]"
AnyConnection: TypeAlias = "SyncConnection | AsyncConnection | AsyncSession"


def core_of(app: Jobkit | Core) -> Core:
    """The core of an app, which may be given itself. Raises TypeError for anything else."""
    core = getattr(app, "core", app)
    if not isinstance(core, Core):
        raise TypeError(f"a Jobkit is expected first, not {type(app).__name__}")
    return core


def run_sync(main: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run `main()` to its end: on a loop of its own here, or in a thread where a loop is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_on_own_loop(main)
    answer: list[tuple[bool, T | BaseException]] = []

    def work() -> None:
        try:
            answer.append((True, run_on_own_loop(main)))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            answer.append((False, error))

    thread = threading.Thread(target=copy_context().run, args=(work,), name="jobkit-testing", daemon=True)
    thread.start()
    thread.join()
    good, value = answer[0]
    if not good:
        raise cast("BaseException", value)
    return cast("T", value)


def connection_of(conn: SyncConnection) -> Connection:
    """The Connection of a session or connection, with its transaction begun. Raises TypeError for others."""
    if isinstance(conn, Session | scoped_session):
        conn = conn.connection()
    if not isinstance(conn, Connection):
        hint = "; use its run_sync()" if "Async" in type(conn).__name__ else ""
        raise TypeError(f"conn: a Session or Connection is expected, not {type(conn).__name__}{hint}")
    if not conn.in_transaction():
        conn.begin()
    return conn


@contextmanager
def tables_expected() -> Iterator[None]:
    """Around database work of jobkit's own: raises NotMigrated, naming the remedy, where its tables are missing."""
    try:
        yield
    except Exception as error:
        if classify(error) is Fault.MISSING:
            raise NotMigrated(
                "jobkit's tables are missing or outdated; call app.migrate() before the tests"
            ) from error
        raise


class Reach(Protocol):
    """A database within reach: the storage that fits, and a way to do a step on its connection."""

    @property
    def storage(self) -> Storage: ...

    async def do(self, step: Step[T]) -> T:
        """The result of `step(connection)`."""
        ...


class _Plain:
    """A Connection, whoever owns it."""

    def __init__(self, storage: Storage, conn: Connection) -> None:
        self.storage = storage
        self._conn = conn

    async def do(self, step: Step[T]) -> T:
        with tables_expected():
            return step(self._conn)


class _Async:
    """An AsyncConnection of the caller's."""

    def __init__(self, storage: Storage, conn: AsyncConnection) -> None:
        self.storage = storage
        self._conn = conn

    async def do(self, step: Step[T]) -> T:
        with tables_expected():
            return await self._conn.run_sync(step)


@asynccontextmanager
async def reaching(core: Core, conn: AnyConnection | None) -> AsyncIterator[Reach]:
    """The caller's transaction, or without one a connection of jobkit's own, closed at the end.

    Inside a caller's transaction, what jobs enqueue through the app joins it too.
    """
    if conn is None:
        core.ready()
        own = node_connection(core.engine, autocommit=not core.storage.observed)
        with own:
            yield _Plain(core.storage, own)
    elif "Async" in type(conn).__name__ or type(conn).__module__.startswith("sqlalchemy.ext.asyncio"):
        joined = await _async_connection(cast("AsyncConnection | AsyncSession", conn))
        storage = await joined.run_sync(lambda inner: core.storage_for(inner))
        with joining(core, joined):
            yield _Async(storage, joined)
    else:
        plain = connection_of(cast("SyncConnection", conn))
        with joining(core, plain):
            yield _Plain(core.storage_for(plain), plain)


async def _async_connection(conn: AsyncConnection | AsyncSession) -> AsyncConnection:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    if isinstance(conn, AsyncSession):
        conn = await conn.connection()
    if not isinstance(conn, AsyncConnection):
        raise TypeError(f"conn: an AsyncSession or AsyncConnection is expected, not {type(conn).__name__}")
    if not conn.in_transaction():
        await conn.begin()
    return conn
