"""Enqueueing through any driver's connection, sync and async; the whole life of a job through each of
them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from jobkit.jobs import JobState
from jobkit.storage.base import Change, ErrorEntry
from jobkit.storage.engine import configure_sqlite
from tests.storage.support import NOW, SECOND, Database, job_row

SYNC = {"sqlite": ["pysqlite"], "postgresql": ["psycopg", "psycopg2"]}
ASYNC = {"sqlite": ["aiosqlite"], "postgresql": ["asyncpg", "psycopg_async"]}


def life_of_a_job(db: Database, conn: Connection) -> None:
    """Everything that storage does, on this connection, in its transaction."""
    storage = db.storage
    plain, first, second, other = storage.insert(
        conn,
        [
            job_row(args={"t": "ü'\"%"}),
            job_row(unique_key="k"),
            job_row(unique_key="k"),
            job_row(unique_key="m"),
        ],
    )
    [single] = storage.insert(conn, [job_row(state=JobState.SCHEDULED, queue="later")])
    assert (second.id, second.duplicate) == (first.id, True)
    assert storage.visible(conn, [plain.id, 10**12]) == {plain.id}
    storage.register_node(conn, "n", now=NOW, queues={"default": 1}, info={"pid": 1})
    storage.ensure_queues(conn, {}, now=NOW)
    assert storage.due_queues(conn, ["default", "later"], now=NOW) == ["default"]
    jobs = storage.claim(conn, "default", 10, node="n", at=NOW, skip={"nobody"})
    assert [job.id for job in jobs] == [plain.id, first.id, other.id]
    assert json.loads(jobs[0].args) == {"t": "ü'\"%"}
    beat = storage.beat(conn, "n", now=NOW, queues={}, info={})
    assert beat is not None
    assert [lease.id for lease in beat.executing] == [plain.id, first.id, other.id]
    assert beat.executing[0] == jobs[0].lease
    changes = [
        Change(JobState.COMPLETED, NOW, jobs[0].lease),
        Change(JobState.RETRYABLE, NOW, jobs[1].lease, scheduled_at=NOW, error=ErrorEntry(1, NOW, "e")),
        Change(JobState.SCHEDULED, NOW, jobs[2].lease, scheduled_at=NOW, attempt_delta=-1, snoozed=True),
    ]
    assert storage.transition(conn, changes) == changes
    assert storage.stage(conn, now=NOW, limit=10).count == 3
    assert storage.rescue(conn, {"n": 99}, now=NOW, limit=10, error_text="x").available == 0
    assert storage.prune(conn, before=NOW + SECOND, limit=10) == 1
    assert storage.record_run(conn, "key", NOW, now=NOW)
    assert not storage.record_run(conn, "key", NOW, now=NOW)
    assert single.id


@pytest.mark.parametrize("position", [0, 1])
def test_the_whole_life_of_a_job_through_a_sync_driver(db: Database, position: int) -> None:
    drivers = SYNC[db.engine.dialect.name]
    if position >= len(drivers):
        pytest.skip("no such driver")
    engine = create_engine(_with_driver(db, drivers[position]))
    try:
        with engine.connect() as conn:
            life_of_a_job(db, conn)
            conn.rollback()
        assert db.states() == {}
        with engine.begin() as conn:
            life_of_a_job(db, conn)
        assert len(db.states()) == 3
    finally:
        engine.dispose()


@pytest.mark.parametrize("position", [0, 1])
def test_the_whole_life_of_a_job_through_an_async_driver(db: Database, position: int) -> None:
    drivers = ASYNC[db.engine.dialect.name]
    if position >= len(drivers):
        pytest.skip("no such driver")
    asyncio.run(_async_life(_with_driver(db, drivers[position]), lambda conn: life_of_a_job(db, conn)))
    assert len(db.states()) == 3


async def _async_life(url: Any, work: Callable[[Connection], None]) -> None:
    engine = create_async_engine(url)
    if engine.dialect.name == "sqlite":
        configure_sqlite(engine)
    try:
        async with engine.connect() as conn:
            await conn.run_sync(work)
            await conn.rollback()
        async with engine.begin() as conn:
            await conn.run_sync(work)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_an_autocommit_connection_commits_each_insert(postgres_url: str, driver: str, arm: str) -> None:
    from jobkit.storage.choice import make_storage
    from jobkit.storage.migrations import up
    from jobkit.storage.schema import tables_for

    tables = tables_for()
    storage = make_storage("postgresql", tables, arm=arm)  # type: ignore[arg-type]
    url = make_url(postgres_url).set(drivername=f"postgresql+{driver}")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    up(create_engine(url), tables)
    with engine.connect() as conn:
        [plain] = storage.insert(conn, [job_row()])
        [keyed] = storage.insert(conn, [job_row(unique_key="k")])
        [duplicate] = storage.insert(conn, [job_row(unique_key="k")])
        conn.rollback()
        assert storage.visible(conn, [plain.id, keyed.id]) == {plain.id, keyed.id}
    assert duplicate.duplicate
    engine.dispose()


def _with_driver(db: Database, driver: str) -> Any:
    return db.engine.url.set(drivername=f"{db.engine.dialect.name}+{driver}")
