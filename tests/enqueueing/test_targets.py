"""Enqueueing through whatever the caller has: sessions, connections and engines of every driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import jobkit
from jobkit import Jobkit, Worker, configure_sqlite
from jobkit.errors import ArgsError
from jobkit.jobs import Unique

SYNC = {"sqlite": ["pysqlite"], "postgres": ["psycopg", "psycopg2"]}
ASYNC = {"sqlite": ["aiosqlite"], "postgres": ["psycopg", "asyncpg"]}
PAIRS = [(backend, driver) for backend, drivers in SYNC.items() for driver in drivers]
ASYNC_PAIRS = [(backend, driver) for backend, drivers in ASYNC.items() for driver in drivers]


class Greet(Worker, name="greet"):
    who: str

    def perform(self, job: jobkit.JobInfo) -> None: ...


class Once(Worker, name="once", unique=Unique.args()):
    key: str

    def perform(self, job: jobkit.JobInfo) -> None: ...


def url_of(request: pytest.FixtureRequest, backend: str, driver: str) -> sa.URL:
    url = sa.make_url(request.getfixturevalue(f"{backend}_url"))
    return url.set(drivername=f"{url.get_backend_name()}+{driver}")


@pytest.fixture
def setup(request: pytest.FixtureRequest) -> Iterator[tuple[Jobkit, sa.URL]]:
    backend, driver = request.param
    url = url_of(request, backend, driver)
    app = Jobkit(url.render_as_string(hide_password=False), workers=[Greet, Once])
    app.migrate()
    jobkit.configure(app)
    yield app, url
    app.close()
    jobkit.configure(None)


def rows(app: Jobkit) -> list[tuple[int, str]]:
    jobs = app.tables.jobs
    with app.core.read_engine.connect() as conn:
        return [
            (row[0], row[1]) for row in conn.execute(sa.select(jobs.c.id, jobs.c.worker).order_by(jobs.c.id))
        ]


def engine_for(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":
        configure_sqlite(engine)
    return engine


@pytest.mark.parametrize("setup", PAIRS, indirect=True, ids=lambda p: "-".join(p))
def test_DB13_a_connection_s_transaction_is_joined_and_never_committed(setup: tuple[Jobkit, sa.URL]) -> None:
    app, url = setup
    engine = engine_for(url)
    with engine.connect() as conn:
        conn.begin()
        inserted = jobkit.enqueue(conn, Greet(who="a"))
        assert not inserted.duplicate
        assert rows(app) == []
        conn.rollback()
    assert rows(app) == []
    with engine.begin() as conn:
        kept = jobkit.enqueue(conn, Greet(who="b"))
    assert rows(app) == [(kept.id, "greet")]
    engine.dispose()


@pytest.mark.parametrize("setup", PAIRS, indirect=True, ids=lambda p: "-".join(p))
def test_DB13_a_session_s_transaction_is_joined(setup: tuple[Jobkit, sa.URL]) -> None:
    app, url = setup
    engine = engine_for(url)
    with orm.Session(engine) as session:
        jobkit.enqueue(session, Greet(who="a"))
        jobkit.enqueue_all(session, [Greet(who="b"), Greet(who="c").job(priority=1)])
        session.rollback()
        assert rows(app) == []
        jobkit.enqueue(session, Greet(who="d"))
        with session.begin_nested() as savepoint:
            jobkit.enqueue(session, Greet(who="e"))
            savepoint.rollback()
        session.commit()
    assert len(rows(app)) == 1
    engine.dispose()


@pytest.mark.parametrize("setup", PAIRS, indirect=True, ids=lambda p: "-".join(p))
def test_UQ9_a_duplicate_leaves_the_transaction_usable(setup: tuple[Jobkit, sa.URL]) -> None:
    app, url = setup
    engine = engine_for(url)
    first = app.enqueue(Once(key="k"))
    with engine.begin() as conn:
        again = jobkit.enqueue(conn, Once(key="k"))
        assert (again.id, again.duplicate) == (first.id, True)
        other = jobkit.enqueue(conn, Greet(who="still alive"))
    assert [id for id, _ in rows(app)] == [first.id, other.id]
    engine.dispose()


@pytest.mark.parametrize("setup", PAIRS, indirect=True, ids=lambda p: "-".join(p))
def test_an_engine_gives_the_job_a_short_transaction_of_its_own(setup: tuple[Jobkit, sa.URL]) -> None:
    app, url = setup
    engine = engine_for(url)
    inserted = jobkit.enqueue(engine, Greet(who="a"), priority=3, tags=["x"])
    assert rows(app) == [(inserted.id, "greet")]
    engine.dispose()


@pytest.mark.parametrize("setup", ASYNC_PAIRS, indirect=True, ids=lambda p: "-".join(p))
def test_DB13_async_targets_behave_as_their_sync_twins(setup: tuple[Jobkit, sa.URL]) -> None:
    app, url = setup

    async def run() -> None:
        engine = create_async_engine(url)
        if engine.dialect.name == "sqlite":
            configure_sqlite(engine)
        async with AsyncSession(engine) as session:
            await jobkit.aenqueue(session, Greet(who="a"))
            await session.rollback()
        async with AsyncSession(engine) as session:
            await jobkit.aenqueue_all(session, [Greet(who="b"), Once(key="k"), Once(key="k")])
            await session.commit()
        async with engine.begin() as conn:
            again = await jobkit.aenqueue(conn, Once(key="k"))
            assert again.duplicate
        await jobkit.aenqueue(engine, Greet(who="c"))
        await engine.dispose()

    asyncio.run(run())
    assert [worker for _, worker in rows(app)] == ["greet", "once", "greet"]


@pytest.mark.parametrize("setup", PAIRS, indirect=True, ids=lambda p: "-".join(p))
def test_what_is_wrong_with_one_job_of_a_batch_is_found_before_any_row(setup: tuple[Jobkit, sa.URL]) -> None:
    app, url = setup
    engine = engine_for(url)
    with engine.begin() as conn, pytest.raises(ArgsError):
        jobkit.enqueue_all(conn, [Greet(who="fine"), Greet(who="\0")])
    with engine.begin() as conn, pytest.raises(ArgsError, match="Greet"):
        jobkit.enqueue(conn, Greet)  # type: ignore[arg-type]
    assert rows(app) == []
    engine.dispose()


def test_a_target_of_the_wrong_kind_is_refused_with_the_remedy(sqlite_url: str) -> None:
    app = Jobkit(sqlite_url, workers=[Greet])
    app.migrate()
    engine = create_async_engine(sqlite_url.replace("sqlite", "sqlite+aiosqlite"))
    with pytest.raises(TypeError, match="use aenqueue"):
        app.enqueue(Greet(who="a"), conn=engine)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Session, Connection or Engine"):
        app.enqueue(Greet(who="a"), conn="sqlite:///x.db")  # type: ignore[arg-type]
    app.close()


def test_an_unconfigured_sqlite_engine_is_warned_about_once(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Jobkit(sqlite_url, workers=[Greet])
    app.migrate()
    engine = sa.create_engine(sqlite_url)
    for _ in range(3):
        with engine.begin() as conn:
            app.enqueue(Greet(who="a"), conn=conn)
    assert [r.message for r in caplog.records if "configure_sqlite" in r.message].__len__() == 1
    engine.dispose()
    app.close()
