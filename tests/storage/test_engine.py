"""Engines, transactions, faults."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from jobkit.errors import ConfigError
from jobkit.storage.engine import (
    Fault,
    atomic,
    classify,
    configure_sqlite,
    in_transaction,
    make_engine,
    node_connection,
    read_engine,
    reading,
    retrying,
    sqlite_configured,
)
from tests.storage.support import Database, Settings


def count(engine: Engine) -> int:
    with engine.connect() as conn, reading(conn):
        return int(conn.execute(text("SELECT count(*) FROM t")).scalar_one())


def _insert_and_fail(conn: Connection) -> None:
    conn.execute(text("INSERT INTO t VALUES (3)"))
    raise ZeroDivisionError


@pytest.fixture
def table(engine: Engine) -> Engine:
    with engine.begin() as conn:
        conn.execute(text("CREATE TABLE t (v INTEGER)"))
    return engine


@pytest.mark.parametrize("autocommit", [True, False])
def test_atomic_is_all_or_nothing_on_every_connection(table: Engine, autocommit: bool) -> None:
    with node_connection(table, autocommit=autocommit) as conn:
        assert not in_transaction(conn)
        with atomic(conn):
            conn.execute(text("INSERT INTO t VALUES (1)"))
            assert in_transaction(conn)
            with atomic(conn):
                conn.execute(text("INSERT INTO t VALUES (2)"))
        with pytest.raises(ZeroDivisionError), atomic(conn):
            _insert_and_fail(conn)
        assert not in_transaction(conn)
        with atomic(conn):
            conn.execute(text("INSERT INTO t VALUES (4)"))
    assert count(table) == 3


def test_an_autocommit_connection_commits_each_statement(table: Engine) -> None:
    with node_connection(table, autocommit=True) as conn:
        conn.execute(text("INSERT INTO t VALUES (1)"))
        assert not in_transaction(conn)
        assert count(table) == 1


def test_a_plain_transaction_really_begins(table: Engine) -> None:
    with node_connection(table, autocommit=False) as conn:
        with conn.begin():
            conn.execute(text("INSERT INTO t VALUES (1)"))
        with pytest.raises(ZeroDivisionError), conn.begin():
            _insert_and_fail(conn)
    assert count(table) == 1


def test_a_reading_engine_cannot_write(table: Engine, database_url: str) -> None:
    engine = read_engine(Settings(database_url))
    with engine.connect() as conn:
        assert conn.execute(text("SELECT count(*) FROM t")).scalar_one() == 0
        with pytest.raises(DBAPIError) as caught:
            conn.execute(text("INSERT INTO t VALUES (1)"))
    assert classify(caught.value) is Fault.READONLY
    engine.dispose()


def test_readers_do_not_wait_for_a_writer(table: Engine, database_url: str) -> None:
    reader = read_engine(Settings(database_url))
    with table.begin() as writer:
        writer.execute(text("INSERT INTO t VALUES (1)"))
        assert count(reader) == 0
        assert count(table) == 0
    assert count(reader) == 1
    reader.dispose()


def test_a_reading_engine_makes_no_file(tmp_path: Path) -> None:
    engine = read_engine(Settings(f"sqlite:///{tmp_path / 'missing.db'}"))
    with pytest.raises(DBAPIError), engine.connect() as conn:
        conn.execute(text("SELECT 1"))
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "not a url", "sqlite:///file:x?mode=memory&uri=true"],
)
def test_DB5_what_cannot_work_is_refused_clearly(url: str) -> None:
    with pytest.raises(ConfigError, match="database_url"):
        make_engine(Settings(url))


def test_any_driver_named_gives_ours(database_url: str, backend: str) -> None:
    other = {"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg"}[backend]
    engine = make_engine(Settings(other + database_url[database_url.index(":") :]))
    assert engine.dialect.driver in {"pysqlite", "psycopg"}
    with engine.connect() as conn:
        assert conn.execute(text("SELECT 1")).scalar_one() == 1
    engine.dispose()


def test_sqlite_runs_in_wal_with_the_synchronous_asked_for(sqlite_url: str) -> None:
    for setting, expected in (("full", 2), ("normal", 1)):
        engine = make_engine(Settings(sqlite_url, sqlite_synchronous=setting))
        with engine.connect() as conn:
            assert conn.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
            assert conn.exec_driver_sql("PRAGMA synchronous").scalar_one() == expected
        engine.dispose()


def test_DB4_writers_that_read_first_do_not_fail(sqlite_url: str) -> None:
    engine = make_engine(Settings(sqlite_url))
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE t (v INTEGER)")
        conn.exec_driver_sql("INSERT INTO t VALUES (0)")
    _count_up_together(engine)
    engine.dispose()


def test_DB4_a_users_configured_engine_does_not_fail_either(sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE t (v INTEGER)")
        conn.exec_driver_sql("INSERT INTO t VALUES (0)")
        assert not sqlite_configured(conn)
    configure_sqlite(engine)
    configure_sqlite(engine)
    with engine.connect() as conn:
        assert sqlite_configured(conn)
        conn.exec_driver_sql("UPDATE t SET v = 5")
        conn.rollback()
        savepoint = conn.begin_nested()
        conn.exec_driver_sql("UPDATE t SET v = 7")
        savepoint.commit()
        conn.rollback()
    _count_up_together(engine)
    engine.dispose()


def _count_up_together(engine: Engine) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                with engine.begin() as conn:
                    value = conn.exec_driver_sql("SELECT v FROM t").scalar_one()
                    conn.exec_driver_sql("UPDATE t SET v = ?", (value + 1,))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT v FROM t").scalar_one() == 60


def test_configure_sqlite_refuses_another_database(postgres_url: str) -> None:
    with pytest.raises(ConfigError, match="postgresql"):
        configure_sqlite(create_engine(postgres_url))


def test_FK1_a_forked_child_opens_its_own_connections(table: Engine) -> None:
    if not hasattr(os, "fork"):
        return
    with table.connect() as conn:
        conn.execute(text("SELECT 1"))
    child = os.fork()
    if child == 0:
        try:
            with table.begin() as conn:
                conn.execute(text("INSERT INTO t VALUES (1)"))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert count(table) == 1


def test_CW8_node_connections_come_from_no_pool(table: Engine) -> None:
    held = [table.connect() for _ in range(15)]  # all that the pool has
    with node_connection(table, autocommit=True) as conn:
        assert conn.execute(text("SELECT 1")).scalar_one() == 1
    for conn in held:
        conn.close()


def test_DB3_a_connection_that_the_server_closed_is_replaced(postgres_url: str) -> None:
    engine = make_engine(Settings(postgres_url))
    with engine.connect() as conn:
        pid = conn.execute(text("SELECT pg_backend_pid()")).scalar_one()
    other = make_engine(Settings(postgres_url))
    with other.begin() as conn:
        assert conn.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid}).scalar_one()
    with engine.connect() as conn:
        assert conn.execute(text("SELECT pg_backend_pid()")).scalar_one() != pid
    engine.dispose()
    other.dispose()


def test_a_node_connection_that_was_cut_is_lost(db: Database) -> None:
    if db.engine.dialect.name == "sqlite":
        return
    with node_connection(db.engine, autocommit=True) as conn:
        pid = conn.execute(text("SELECT pg_backend_pid()")).scalar_one()
        db.conn.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
        with pytest.raises(DBAPIError) as caught:
            db.storage.due_queues(conn, ["default"], now=_now())
        assert classify(caught.value) is Fault.LOST


def _now() -> Any:
    from tests.storage.support import NOW

    return NOW


def test_faults_are_told_apart(engine: Engine, backend: str) -> None:
    def fault(statement: str) -> Fault:
        with engine.connect() as conn:
            try:
                conn.exec_driver_sql(statement)
            except DBAPIError as error:
                return classify(error)
        raise AssertionError("no error")

    assert fault("SELECT * FROM nowhere") is Fault.MISSING
    assert fault("SELECT no_such FROM jobkit_jobs") is Fault.MISSING
    assert fault("SELEC 1") is Fault.OTHER
    assert fault("INSERT INTO jobkit_job_workers (name) VALUES ('x')") is Fault.OTHER
    if backend == "postgres":
        assert fault("SET statement_timeout = 1; SELECT pg_sleep(5)") is Fault.TIMEOUT
    assert classify(ValueError("x")) is Fault.OTHER


def test_an_absent_server_is_lost(tmp_path: Path) -> None:
    engine = make_engine(Settings(f"postgresql://x@127.0.0.1:{_free_port()}/x"))
    with pytest.raises(DBAPIError) as caught:
        engine.connect()
    assert classify(caught.value) is Fault.LOST
    engine = make_engine(Settings(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}"))
    with pytest.raises(DBAPIError) as caught:
        engine.connect()
    assert classify(caught.value) is Fault.LOST


def _free_port() -> int:
    from tests.support.postgres import free_port

    return free_port()


def test_DB6_conflicts_are_run_again_until_the_deadline() -> None:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY  # type: ignore[misc]
    calls: list[float] = []
    clock = iter(range(100))

    def fn() -> str:
        calls.append(1)
        if len(calls) < 4:
            raise error
        return "done"

    assert retrying(fn, monotonic=lambda: 0.0, pause=lambda _: None) == "done"
    assert len(calls) == 4
    calls.clear()

    def never() -> None:
        calls.append(1)
        raise error

    with pytest.raises(sqlite3.OperationalError):
        retrying(never, deadline=3, monotonic=lambda: float(next(clock)), pause=lambda _: None)
    assert 1 < len(calls) < 6


def test_the_busy_loop_ends_when_the_lock_goes(sqlite_url: str) -> None:
    engine = make_engine(Settings(sqlite_url))
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE t (v INTEGER)")
    holder = node_connection(engine, autocommit=False)
    transaction = holder.begin()
    released = threading.Event()

    def release() -> None:
        time.sleep(0.05)
        transaction.commit()
        released.set()

    thread = threading.Thread(target=release)
    thread.start()
    with node_connection(engine, autocommit=True) as conn:
        conn.exec_driver_sql("INSERT INTO t VALUES (1)")
        assert released.wait(5)
    thread.join()
    holder.close()
    engine.dispose()


def test_times_are_read_in_utc_whatever_the_session_says(postgres_url: str) -> None:
    from jobkit.storage.choice import make_storage
    from jobkit.storage.migrations import up
    from jobkit.storage.schema import tables_for
    from tests.storage.support import NOW, job_row

    tables = tables_for()
    engine = create_engine(postgres_url)
    up(engine, tables)
    storage = make_storage("postgresql", tables)
    with engine.begin() as conn:
        conn.exec_driver_sql("SET TIME ZONE 'Asia/Kathmandu'")
        storage.insert(conn, [job_row()])
        storage.register_node(conn, "n", now=NOW, queues={}, info={})
        [job] = storage.claim(conn, "default", 1, node="n", at=NOW)
        assert (job.inserted_at, job.inserted_at.utcoffset().total_seconds()) == (NOW, 0)  # type: ignore[union-attr]
        beat = storage.beat(conn, "n", now=NOW, queues={}, info={})
        assert beat is not None
        assert beat.executing == [job.lease]
        assert storage.nodes(conn)[0].started_at.utcoffset().total_seconds() == 0  # type: ignore[union-attr]
    engine.dispose()
