"""Transactions of jobkit's own are run again where the database aborts them; a caller's never are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from jobkit import Jobkit, Worker, aenqueue, configure, enqueue
from jobkit.errors import EnqueueConflict
from jobkit.jobs import JobInfo, Unique


class Once(Worker, name="once", unique=Unique.args()):
    key: str

    def perform(self, job: JobInfo) -> None: ...


@pytest.fixture
def app(postgres_url: str) -> Iterator[Jobkit]:
    made = Jobkit(postgres_url, workers=[Once])
    made.migrate()
    configure(made)
    yield made
    configure(None)
    made.close()


def overtaken(engine: sa.Engine, rival: Callable[[], object]) -> None:
    """The engine's next transaction has its snapshot when the rival commits."""
    rivals = [rival]

    def begun(conn: sa.Connection) -> None:
        if rivals:
            conn.exec_driver_sql("SELECT 1")
            rivals.pop()()

    sa.event.listen(engine, "begin", begun)


def test_DB6_an_insert_through_an_engine_is_run_again(app: Jobkit) -> None:
    engine = sa.create_engine(app.engine.url, isolation_level="REPEATABLE READ")
    overtaken(engine, lambda: app.enqueue(Once(key="k")))

    assert enqueue(engine, Once(key="k")).duplicate

    engine.dispose()


def test_DB6_an_insert_through_an_async_engine_is_run_again(app: Jobkit) -> None:
    async def scenario() -> bool:
        engine = create_async_engine(app.engine.url, isolation_level="REPEATABLE READ")
        overtaken(engine.sync_engine, lambda: app.enqueue(Once(key="k")))
        try:
            return (await aenqueue(engine, Once(key="k"))).duplicate
        finally:
            await engine.dispose()

    assert asyncio.run(scenario())


def test_a_callers_transaction_is_never_run_again(app: Jobkit) -> None:
    engine = sa.create_engine(app.engine.url, isolation_level="REPEATABLE READ")
    overtaken(engine, lambda: app.enqueue(Once(key="k")))

    with engine.begin() as conn, pytest.raises(EnqueueConflict):
        enqueue(conn, Once(key="k"))

    engine.dispose()
