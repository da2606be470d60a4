"""Waking: after the commit, never before, and never for what was rolled back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from jobkit import JobInfo, Jobkit, Worker, configure_sqlite
from jobkit.wakeup import channel_of, waker_of

DEADLINE = 10.0


class Ping(Worker, name="ping", queue="pings"):
    def perform(self, job: JobInfo) -> None: ...


class Wakes:
    """Collects what subscribers are told."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.seen: list[frozenset[str]] = []

    def __call__(self, queues: frozenset[str]) -> None:
        with self._changed:
            self.seen.append(queues)
            self._changed.notify_all()

    def wait(self, count: int = 1) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= count, DEADLINE)


@pytest.fixture
def app(database_url: str) -> Iterator[Jobkit]:
    made = Jobkit(database_url, workers=[Ping])
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def wakes(app: Jobkit) -> Wakes:
    wakes = Wakes()
    waker_of(app.core).subscribe(wakes)
    return wakes


@pytest.fixture
def engine(app: Jobkit) -> Iterator[sa.Engine]:
    engine = sa.create_engine(app.engine.url)
    if engine.dialect.name == "sqlite":
        configure_sqlite(engine)
    yield engine
    engine.dispose()


def quiet(app: Jobkit) -> None:
    """Wait until the waker has nothing left to look for."""
    assert waker_of(app.core).flush(DEADLINE)


def test_SC6_workers_are_woken_after_the_commit_and_not_before(
    app: Jobkit, wakes: Wakes, engine: sa.Engine
) -> None:
    with engine.begin() as conn:
        app.enqueue(Ping(), conn=conn)
        assert wakes.seen == []
    assert wakes.wait()
    assert wakes.seen == [frozenset({"pings"})]


def test_a_rollback_wakes_nobody(app: Jobkit, wakes: Wakes, engine: sa.Engine) -> None:
    with engine.connect() as conn:
        conn.begin()
        app.enqueue(Ping(), conn=conn)
        conn.rollback()
    with engine.connect() as conn, conn.begin(), conn.begin_nested() as savepoint:
        app.enqueue(Ping(), conn=conn)
        savepoint.rollback()
    quiet(app)
    assert wakes.seen == []


def test_a_commit_that_fails_wakes_nobody(app: Jobkit, wakes: Wakes, engine: sa.Engine, backend: str) -> None:
    if backend == "postgres":
        ddl = "CREATE TABLE c (p int, CONSTRAINT u UNIQUE (p) DEFERRABLE INITIALLY DEFERRED)"
        breaks = ["INSERT INTO c VALUES (1)", "INSERT INTO c VALUES (1)"]
    else:
        ddl = "CREATE TABLE c (p int REFERENCES p2(i) DEFERRABLE INITIALLY DEFERRED)"
        breaks = ["INSERT INTO c VALUES (1)"]
    with engine.begin() as conn:
        if backend == "sqlite":
            conn.execute(sa.text("CREATE TABLE p2 (i integer PRIMARY KEY)"))
        conn.execute(sa.text(ddl))

    @sa.event.listens_for(engine, "checkout")
    def enforce(raw: object, *_: object) -> None:
        if backend == "sqlite":
            raw.execute("PRAGMA foreign_keys = 1")  # type: ignore[attr-defined]

    def commit_that_fails() -> None:
        with engine.begin() as conn:
            app.enqueue(Ping(), conn=conn)
            for statement in breaks:
                conn.execute(sa.text(statement))

    with pytest.raises(sa.exc.IntegrityError):
        commit_that_fails()
    quiet(app)
    assert wakes.seen == []


def test_a_session_joined_to_an_outer_transaction_wakes_only_with_the_outer_one(
    app: Jobkit, wakes: Wakes, engine: sa.Engine
) -> None:
    with engine.connect() as conn:
        outer = conn.begin()
        with orm.Session(conn, join_transaction_mode="create_savepoint") as session:
            app.enqueue(Ping(), conn=session)
            session.commit()
        quiet(app)
        assert wakes.seen == []
        outer.commit()
    assert wakes.wait()


def test_an_autocommitted_insert_wakes_at_once(app: Jobkit, wakes: Wakes, backend: str) -> None:
    level = "AUTOCOMMIT"
    engine = sa.create_engine(app.engine.url, isolation_level=level)
    with engine.connect() as conn:
        app.enqueue(Ping(), conn=conn)
        assert wakes.wait()
    engine.dispose()


def test_a_duplicate_or_a_later_job_wakes_nobody(app: Jobkit, wakes: Wakes) -> None:
    app.enqueue(Ping(), schedule_in=60)
    quiet(app)
    assert wakes.seen == []


def listening(app: Jobkit, url: str) -> psycopg.Connection:
    conn = psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
    conn.execute(f'LISTEN "{channel_of(app.config)}"')
    return conn


def test_DB11_notifications_of_a_burst_are_coalesced(postgres_url: str) -> None:
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    with listening(app, postgres_url) as conn:
        for _ in range(200):
            app.enqueue(Ping())
        quiet(app)
        got = list(conn.notifies(timeout=1.0))
    assert 1 <= len(got) < 150
    assert {n.payload for n in got} == {"pings"}
    app.close()


def test_the_last_of_a_burst_is_told_of_as_well(postgres_url: str) -> None:
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    engine = sa.create_engine(postgres_url)
    count = sa.select(sa.func.count()).select_from(app.tables.jobs)
    with listening(app, postgres_url) as conn, engine.connect() as reader:
        for _ in range(30):
            app.enqueue(Ping())
        seen = 0
        for _ in conn.notifies(timeout=DEADLINE):
            with reader.begin():
                seen = reader.execute(count).scalar_one()
            if seen == 30:
                break
    assert seen == 30
    engine.dispose()
    app.close()


def test_an_insert_of_ones_own_notifies_in_its_own_statement(postgres_url: str) -> None:
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    with listening(app, postgres_url) as conn:
        app.enqueue(Ping())
        assert [n.payload for n in conn.notifies(timeout=DEADLINE, stop_after=1)] == ["pings"]
    assert not [thread for thread in threading.enumerate() if thread is waker_of(app.core)._thread]
    app.close()


def test_what_waits_to_be_sent_is_not_lost_with_an_insert_that_fails(postgres_url: str) -> None:
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    waker = waker_of(app.core)

    def fail_with_what_waits() -> None:
        waker._outbox.add("pings")
        with waker.along("pings") as channel:
            assert channel == channel_of(app.config)
            assert not waker._outbox
            raise LookupError

    with listening(app, postgres_url) as conn:
        with pytest.raises(LookupError):
            fail_with_what_waits()
        assert [n.payload for n in conn.notifies(timeout=DEADLINE, stop_after=1)] == ["pings"]
    app.close()


@pytest.mark.parametrize(("notify", "expected"), [("after_commit", 1), ("in_statement", 1), ("off", 0)])
def test_DB11_one_transaction_sends_one_notification_or_none(
    postgres_url: str, notify: str, expected: int
) -> None:
    app = Jobkit(postgres_url, workers=[Ping], config=_config(notify))
    app.migrate()
    engine = sa.create_engine(postgres_url)
    with listening(app, postgres_url) as conn:
        with engine.begin() as transaction:
            for _ in range(20):
                app.enqueue(Ping(), conn=transaction)
            assert list(conn.notifies(timeout=0.05)) == []
        quiet(app)
        got = list(conn.notifies(timeout=0.3))
    assert len(got) == expected
    engine.dispose()
    app.close()


def _config(notify: str):  # type: ignore[no-untyped-def]
    from jobkit.config import Config

    return Config(notify=notify)


def test_DB7_a_lost_hint_ends_the_look_and_loses_nothing(postgres_url: str) -> None:
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    waker = waker_of(app.core)
    waker.wake(["pings"])
    quiet(app)
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with listening(app, postgres_url) as conn:
        waker.wake(["pings"])
        assert waker.flush(DEADLINE)
        assert [n.payload for n in conn.notifies(timeout=2.0, stop_after=1)] == ["pings"]
    app.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        threading.Event().wait(0.01)
