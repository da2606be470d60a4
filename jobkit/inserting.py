"""Enqueueing: writes jobs in the caller's transaction, or in a short one of jobkit's own.

Invariant: a caller's transaction is joined, never committed and never broken, and workers are woken only for
rows that have committed. Whatever is wrong with a job is found before the first row is written.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, Unpack, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from jobkit._prepare import new_job, prepare
from jobkit.core import Core, current_core
from jobkit.errors import EnqueueConflict
from jobkit.jobs import Inserted, JobOptions, JobRow, JobState, NewJob
from jobkit.storage.engine import atomic, autocommits, in_transaction
from jobkit.storage.faults import DEADLINE, passing, pauses, retrying
from jobkit.storage.kept import kept_connections
from jobkit.wakeup import waker_of
from jobkit.workers import Worker

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from jobkit.storage.base import Storage

__all__ = [
    "AsyncTarget",
    "Job",
    "Target",
    "aenqueue",
    "aenqueue_all",
    "enqueue",
    "enqueue_all",
    "joined_by",
    "joining",
    "rows_of",
]

Job: TypeAlias = Worker | NewJob
Target: TypeAlias = "Session | scoped_session[Session] | Connection | Engine"
AsyncTarget: TypeAlias = "AsyncSession | async_scoped_session[AsyncSession] | AsyncConnection | AsyncEngine"


# -- public


def enqueue(target: Target, job: Job, /, **options: Unpack[JobOptions]) -> Inserted:
    """Insert one job through the caller's session, connection or engine.

    With a Session or Connection the row joins its transaction, which is never committed here; an Engine gives it a
    short transaction of its own, which is run again where the database aborts it. `options` are those of
    `Worker.job()`. Returns `Inserted(id, duplicate)`.

    Raises ArgsError (args or options refused, nothing written), EnqueueConflict (deadlock or serialization failure: run
    the transaction again), EnqueueLocked (SQLite stayed locked), NotMigrated.
    """
    return enqueue_with(current_core(), target, [job], options)[0]


def enqueue_all(target: Target, jobs: Iterable[Job], /) -> list[Inserted]:
    """Insert many jobs in one statement, unique ones included; one result for each, in the order given.

    A job that equals a row, or an earlier job of the batch, gets that one's id as a duplicate. Raises as `enqueue`;
    nothing is written unless every job is acceptable.
    """
    return enqueue_with(current_core(), target, jobs)


async def aenqueue(target: AsyncTarget, job: Job, /, **options: Unpack[JobOptions]) -> Inserted:
    """`enqueue` for AsyncSession, AsyncConnection and AsyncEngine."""
    return (await aenqueue_with(current_core(), target, [job], options))[0]


async def aenqueue_all(target: AsyncTarget, jobs: Iterable[Job], /) -> list[Inserted]:
    """`enqueue_all` for AsyncSession, AsyncConnection and AsyncEngine."""
    return await aenqueue_with(current_core(), target, jobs)


# -- for the app's methods, which name the core themselves


def enqueue_with(
    core: Core, target: Target | None, jobs: Iterable[Job], options: JobOptions | None = None
) -> list[Inserted]:
    """Enqueue through `target`, or without one in a transaction of jobkit's own."""
    rows = rows_of(core, [_with_options(job, options) for job in jobs])
    if not rows:
        return []
    if target is None:
        target = cast("Target | None", joined_by(core))
    if target is None:
        return _insert_own(core, rows)
    if isinstance(target, Engine):
        engine = target
        return retrying(lambda: _insert_through(core, engine, rows))
    return _insert_joining(core, _connection_of(target), rows)


async def aenqueue_with(
    core: Core, target: AsyncTarget | None, jobs: Iterable[Job], options: JobOptions | None = None
) -> list[Inserted]:
    """The async twin of `enqueue_with`; without a target the insert runs in a thread."""
    rows = rows_of(core, [_with_options(job, options) for job in jobs])
    if not rows:
        return []
    if target is None and (joined := joined_by(core)) is not None:
        if isinstance(joined, Connection):
            return _insert_joining(core, joined, rows)
        target = joined
    if target is None:
        return await asyncio.to_thread(_insert_own, core, rows)
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    def insert(conn: Connection) -> list[Inserted]:
        return _insert_joining(core, conn, rows)

    if isinstance(target, AsyncEngine):
        return await _insert_through_async(target, insert)
    if isinstance(target, AsyncConnection):
        return await target.run_sync(insert)
    if hasattr(target, "connection"):
        return await (await target.connection()).run_sync(insert)
    raise TypeError(_refused(target, "an AsyncSession, AsyncConnection or AsyncEngine"))


@contextmanager
def joining(core: Core, conn: Connection | AsyncConnection) -> Iterator[None]:
    """Inside, what is enqueued on this app without naming a target joins the transaction of `conn`.

    For tests that commit nothing; the jobs that run inside see it too.
    """
    token = _joined.set((core, conn))
    try:
        yield
    finally:
        _joined.reset(token)


_joined: ContextVar[tuple[Core, Connection | AsyncConnection] | None] = ContextVar(
    "jobkit_joined", default=None
)


def joined_by(core: Core) -> Connection | AsyncConnection | None:
    """The connection that `joining` named, if any."""
    joined = _joined.get()
    return joined[1] if joined is not None and joined[0] is core else None


# -- in a short transaction on a caller's engine


def _insert_through(core: Core, engine: Engine, rows: Sequence[JobRow]) -> list[Inserted]:
    with engine.begin() as conn:
        return _insert_joining(core, conn, rows)


async def _insert_through_async(
    engine: AsyncEngine, insert: Callable[[Connection], list[Inserted]]
) -> list[Inserted]:
    waits = pauses(DEADLINE)
    while True:
        try:
            async with engine.begin() as connection:
                return await connection.run_sync(insert)
        except (EnqueueConflict, DBAPIError) as error:
            if not passing(error) or (wait := next(waits, None)) is None:
                raise
        await asyncio.sleep(wait)


# -- in a caller's transaction


def _connection_of(target: object) -> Connection:
    if isinstance(target, Connection):
        return target
    if _is_session(target):
        return target.connection()
    raise TypeError(_refused(target, "a Session, Connection or Engine"))


def _is_session(target: object) -> TypeGuard[Session | scoped_session[Session]]:
    """Who has a session has loaded the ORM; a worker without one saves its 5 MB."""
    orm = sys.modules.get("sqlalchemy.orm")
    return orm is not None and isinstance(target, (orm.Session, orm.scoped_session))


def _refused(target: object, expected: str) -> str:
    hint = "; use aenqueue" if "Async" in type(target).__name__ else ""
    return f"enqueueing takes {expected}, not {type(target).__name__}{hint}"


def _insert_joining(core: Core, conn: Connection, rows: Sequence[JobRow]) -> list[Inserted]:
    inserted = core.storage_for(conn).insert(conn, rows)
    queues = _queues(rows, inserted)
    if queues:
        waker = waker_of(core)
        if core.config.notify == "in_statement":
            waker.notify_inside(conn, queues)
        if _really_open(conn):
            waker.joined(
                conn, [(i.id, r.queue) for i, r in zip(inserted, rows, strict=True) if not i.duplicate]
            )
        else:
            waker.wake(queues)
    return inserted


def _really_open(conn: Connection) -> bool:
    """Whether a transaction is open on the caller's connection. The driver is asked: SQLAlchemy counts autocommitted
    statements as a transaction, and never says that they were committed.
    """
    if autocommits(conn):
        return in_transaction(conn)
    raw: Any = conn.connection.driver_connection
    if hasattr(raw, "is_in_transaction"):  # asyncpg
        return bool(raw.is_in_transaction())
    if hasattr(raw, "in_transaction"):  # sqlite3, aiosqlite
        return bool(raw.in_transaction)
    if hasattr(raw, "info"):  # psycopg, psycopg2
        return bool(raw.info.transaction_status != 0)
    return True


# -- in a transaction of jobkit's own


def _insert_own(core: Core, rows: Sequence[JobRow]) -> list[Inserted]:
    """One short transaction, run again on deadlock and lock; a connection that died while idle is replaced once."""
    waker, storage = waker_of(core), core.storage
    if not (storage.tells(rows) and rows[0].state is JobState.AVAILABLE):
        inserted = retrying(lambda: _insert_and_notify(core, storage, rows))
        waker.wake(_queues(rows, inserted))
        return inserted
    queue = rows[0].queue
    with waker.along(queue) as channel:
        inserted = retrying(lambda: _insert_telling(core, storage, rows, channel))
    waker.wake((queue,), told=channel is not None)
    return inserted


def _insert_telling(
    core: Core, storage: Storage, rows: Sequence[JobRow], channel: str | None
) -> list[Inserted]:
    """The statement that inserts notifies as well: one round trip."""
    with kept_connections(core).borrowed() as conn:
        if not storage.observed:
            return storage.insert(conn, rows, tell=channel)
        with atomic(conn):
            return storage.insert(conn, rows, tell=channel)


def _insert_and_notify(core: Core, storage: Storage, rows: Sequence[JobRow]) -> list[Inserted]:
    inside = core.config.notify == "in_statement"
    with (
        kept_connections(core).borrowed() as conn,
        _one_transaction(conn, needed=storage.observed or inside or len(rows) > 1),
    ):
        inserted = storage.insert(conn, rows)
        if inside:
            waker_of(core).notify_inside(conn, _queues(rows, inserted))
        return inserted


@contextmanager
def _one_transaction(conn: Connection, *, needed: bool) -> Iterator[None]:
    if needed:
        with atomic(conn):
            yield
    else:
        yield


# -- the way to the row


def rows_of(
    core: Core, jobs: Sequence[Job], *, system_meta: Mapping[str, object] | None = None
) -> list[JobRow]:
    """The rows to insert for these jobs, after `jobkit_job_inserting` had its say.

    `system_meta` are reserved keys that only jobkit's own parts and plugins write (`cron`). Raises ArgsError.
    """
    if core.registry.has("jobkit_job_inserting"):
        jobs = [core.registry.fold("jobkit_job_inserting", new_job(job)) for job in jobs]
    now = core.clock.now()
    return [prepare(job, now, system_meta=system_meta) for job in jobs]


def _with_options(job: Job, options: JobOptions | None) -> Job:
    return new_job(job).replace(**options) if options else job


def _queues(rows: Sequence[JobRow], inserted: Sequence[Inserted]) -> frozenset[str]:
    """The queues in which something can run now."""
    return frozenset(
        row.queue
        for row, result in zip(rows, inserted, strict=True)
        if not result.duplicate and row.state is JobState.AVAILABLE
    )
