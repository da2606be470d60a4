"""Databases that go away and come back while a node runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError

from jobkit import JobInfo, Worker
from jobkit.runtime.listener import Listener
from tests.runtime.nodes import App, run
from tests.runtime.support import until
from tests.support.postgres import PostgresServer

SEEN: list[int] = []
GATE = threading.Event()


class Note(Worker, name="note"):
    async def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)


class Hold(Worker, name="hold"):
    async def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)
        while not GATE.is_set():
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    SEEN.clear()
    GATE.clear()
    yield
    GATE.set()


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    made = App(database_url, [Note, Hold])
    yield made
    made.core.close()


@pytest.fixture
def pg_app(postgres_url: str) -> Iterator[App]:
    made = App(postgres_url, [Note, Hold])
    yield made
    made.core.close()


def superuser(app: App) -> psycopg.Connection[tuple[object, ...]]:
    """A connection to another database of the same server."""
    url = make_url(app.core.config.database_url)
    return psycopg.connect(
        host=url.host, port=url.port, user=url.username, dbname="postgres", autocommit=True
    )


def kill_backends(app: App, where: str = "true") -> int:
    """End the server's side of all connections to the app's database."""
    name = make_url(app.core.config.database_url).database
    with superuser(app) as conn:
        rows = conn.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND {where}",  # type: ignore[arg-type]
            [name],
        ).fetchall()
    return len(rows)


def enqueue(app: App, worker: Worker) -> int:
    """Enqueue as a caller would whose own connection may just have been ended: once more."""
    for _ in range(20):
        with contextlib.suppress(OperationalError):
            return app.enqueue(worker)[0]
    raise AssertionError("no connection lasts")


def connections(app: App) -> int:
    name = make_url(app.core.config.database_url).database
    with superuser(app) as conn:
        row = conn.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [name]).fetchone()
    assert row is not None
    return int(str(row[0]))


def test_DB3_ended_connections_are_replaced_and_nothing_is_lost(pg_app: App) -> None:
    async def scenario() -> None:
        [held] = pg_app.enqueue(Hold())
        async with pg_app.node(grace=1):
            await until(lambda: held in SEEN)
            for _ in range(5):
                kill_backends(pg_app)
                id = enqueue(pg_app, Note())
                [row] = await pg_app.settled(id)
                assert row.state == "completed"
            kill_backends(pg_app)
            GATE.set()
            [row] = await pg_app.settled(held)
            assert (row.state, row.attempt) == ("completed", 1)

    run(scenario)


def test_ML3_reconnecting_leaks_neither_connections_nor_file_descriptors(pg_app: App) -> None:
    async def scenario() -> None:
        async with pg_app.node(grace=1) as node:
            [id] = pg_app.enqueue(Note())
            await pg_app.settled(id)
            await until(lambda: node.poller.informed())
            before, files = connections(pg_app), len(os.listdir("/proc/self/fd"))
            for _ in range(8):
                kill_backends(pg_app)
                id = enqueue(pg_app, Note())
                await pg_app.settled(id)
            await until(lambda: connections(pg_app) <= before + 2)
            await until(lambda: len(os.listdir("/proc/self/fd")) <= files + 3)

    run(scenario)


def test_DB8_a_node_waits_while_the_database_is_read_only_and_says_so(
    pg_app: App, caplog: pytest.LogCaptureFixture
) -> None:
    name = make_url(pg_app.core.config.database_url).database

    def read_only(on: bool) -> None:
        with superuser(pg_app) as conn:
            conn.execute(
                f'ALTER DATABASE "{name}" SET default_transaction_read_only = {"on" if on else "off"}'
            )  # type: ignore[arg-type]
        kill_backends(pg_app)

    async def scenario() -> None:
        [held] = pg_app.enqueue(Hold())
        async with pg_app.node(grace=1):
            await until(lambda: held in SEEN)
            read_only(True)
            GATE.set()
            await until(lambda: [r for r in caplog.records if "read-only" in r.getMessage()])
            assert pg_app.row(held).state == "executing"
            read_only(False)
            [row] = await pg_app.settled(held, timeout=30)
            assert row.state == "completed"
            id = enqueue(pg_app, Note())
            await pg_app.settled(id)

    run(scenario)
    assert len([r for r in caplog.records if "database trouble" in r.getMessage()]) <= 3


def test_DB1_DB2_outcomes_reached_during_a_restart_are_recorded_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = PostgresServer.create()
    try:
        app = App(server.url(server.new_database()), [Note, Hold])
        caplog.set_level(logging.INFO, "jobkit")

        async def scenario() -> None:
            held = app.enqueue(*[Hold() for _ in range(10)])
            async with app.node(grace=1) as node:
                await until(lambda: len(SEEN) == 10)
                await asyncio.to_thread(server.stop, "fast")
                GATE.set()
                await until(lambda: node.recorder.unrecorded == 10)
                await asyncio.sleep(2)
                await asyncio.to_thread(server.start)
                rows = await app.settled(*held, timeout=30)
                assert {row.state for row in rows} == {"completed"}
                assert {row.attempt for row in rows} == {1}
                id = enqueue(app, Note())
                await app.settled(id)

        run(scenario)
        app.core.close()
    finally:
        server.destroy()
    told = [r for r in caplog.records if "database trouble" in r.getMessage() or r.levelno >= logging.ERROR]
    assert 1 <= len(told) <= 4, [r.getMessage() for r in told]


def test_a_node_may_start_while_the_database_is_away() -> None:
    server = PostgresServer.create()
    try:
        app = App(server.url(server.new_database()), [Note])
        [id] = app.enqueue(Note())
        app.core.close()
        server.stop("fast")

        async def scenario() -> None:
            async with app.node(grace=1):
                await asyncio.to_thread(server.start)
                [row] = await app.settled(id, timeout=30)
                assert row.state == "completed"

        run(scenario)
        app.core.close()
    finally:
        server.destroy()


# -- hints


INSERT = """
import sys
from jobkit.config import Config
from jobkit.core import Core
from jobkit.inserting import enqueue_with
from jobkit.wakeup import waker_of
from tests.runtime.test_faults import Note
core = Core(Config(database_url=sys.argv[1], notify=sys.argv[2]), workers=[Note])
sys.stdin.readline()
enqueue_with(core, None, [Note()])
waker_of(core).flush(2.0)
print("done", flush=True)
"""


def insert_elsewhere(url: str, notify: str = "after_commit") -> subprocess.Popen[bytes]:
    """Another process, which enqueues once its stdin gets a line."""
    return subprocess.Popen(
        [sys.executable, "-c", INSERT, url, notify], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_DB7_a_job_enqueued_by_another_process_starts_at_once(app: App, backend: str) -> None:
    other = insert_elsewhere(app.core.config.database_url)

    async def scenario() -> None:
        async with app.node(grace=1) as node:
            await until(lambda: backend == "sqlite" or node.poller.informed())
            assert other.stdin is not None
            assert other.stdout is not None
            await asyncio.sleep(0.3)
            other.stdin.write(b"\n")
            other.stdin.flush()
            await asyncio.to_thread(other.stdout.readline)
            done = time.perf_counter()
            await until(lambda: SEEN, 3)
            assert time.perf_counter() - done < 0.4

    run(scenario)
    other.communicate()


def test_DB7_without_notifications_jobs_start_within_the_polling_interval(pg_app: App) -> None:
    other = insert_elsewhere(pg_app.core.config.database_url, "off")
    quiet = App(pg_app.core.config.database_url, [Note], notify="off")

    async def scenario() -> None:
        async with quiet.node() as node:
            assert not node.poller.informed()
            await asyncio.to_thread(other.communicate, b"\n")
            await until(lambda: SEEN, 2.5)

    run(scenario)
    quiet.core.close()


def test_DB7_the_listener_recovers_by_itself(pg_app: App) -> None:
    async def scenario() -> None:
        async with pg_app.node(grace=1) as node:
            await until(lambda: node.poller.informed())
            assert kill_backends(pg_app, "query LIKE 'LISTEN%%'") == 1
            await until(lambda: not node.poller.informed())
            await until(lambda: node.poller.informed())
            other = insert_elsewhere(pg_app.core.config.database_url)
            await asyncio.to_thread(other.communicate, b"\n")
            await until(lambda: SEEN, 1)

    run(scenario)


def test_a_listener_that_does_not_hear_itself_is_not_trusted(
    pg_app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobkit.clock import SystemClock
    from jobkit.runtime import listener as module
    from jobkit.storage.engine import node_connection

    monkeypatch.setattr(module, "DEAF_AFTER", 0.7)
    monkeypatch.setattr(module, "LISTEN_FOR", 0.05)
    woken: list[set[str]] = []
    deaf = Listener(
        lambda: node_connection(pg_app.core.engine, autocommit=True),
        "test_wake",
        wake=woken.append,
        ping=lambda payload: None,
        name="n",
        clock=SystemClock(),
    )
    deaf.start()
    run(lambda: until(lambda: [r for r in caplog.records if "polling instead" in r.getMessage()]))
    assert not deaf.healthy
    assert woken[0] == {"*"}
    deaf.stop()
    assert deaf.join(2)


def test_DB11_no_listener_where_notifications_are_off(postgres_url: str) -> None:
    app = App(postgres_url, [Note], notify="off")

    async def scenario() -> None:
        async with app.node(grace=1):
            name = make_url(postgres_url).database
            with superuser(app) as conn:
                rows = conn.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND query LIKE 'LISTEN%%'", [name]
                ).fetchall()
            assert rows == []

    run(scenario)
    app.core.close()


def test_DB4_two_processes_and_enqueuers_share_one_sqlite_file(sqlite_url: str) -> None:
    app, other = App(sqlite_url, [Note]), App(sqlite_url, [Note])
    errors: list[BaseException] = []

    def enqueue() -> None:
        try:
            for _ in range(40):
                other.enqueue(Note(), Note())
        except BaseException as exc:
            errors.append(exc)

    async def scenario() -> None:
        async with app.node(), other.node():
            threads = [threading.Thread(target=enqueue) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            await until(lambda: len(SEEN) >= 240, 30)
        assert len(SEEN) == len(set(SEEN)) == 240

    run(scenario)
    assert errors == []
    with app.core.engine.connect() as conn:
        assert conn.execute(text("SELECT count(*) FROM jobkit_jobs WHERE state <> 'completed'")).scalar() == 0
    app.core.close()
    other.core.close()
