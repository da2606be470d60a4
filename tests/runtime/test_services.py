"""Services: ticks, trouble, transactions, and an end in time."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Literal

import pytest
from sqlalchemy import Connection, text

from jobkit.hookspecs import Service
from jobkit.runtime.logs import Outage
from jobkit.runtime.options import NodeOptions
from jobkit.runtime.services import Entry, ServiceThread, threads_for
from tests.runtime.nodes import App
from tests.runtime.support import wait_until


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    made = App(database_url)
    yield made
    made.core.close()


Start = Callable[..., ServiceThread]


@pytest.fixture
def start(app: App) -> Iterator[Start]:
    running: list[ServiceThread] = []

    def begin(*services: Service) -> ServiceThread:
        entries = [Entry("plugin", service) for service in services]
        thread = ServiceThread(app.core, entries, Outage(app.core.clock.monotonic), "test-services")
        running.append(thread)
        thread.start()
        return thread

    yield begin
    for thread in running:
        thread.stop()
        assert thread.join(5)


def test_a_service_ticks_at_once_and_then_at_its_interval(start: Start) -> None:
    ticks: list[float] = []

    def tick(conn: Connection, now: datetime) -> int:
        ticks.append(time.monotonic())
        return 0

    began = time.monotonic()
    thread = start(Service("s", 0.05, tick))
    assert thread.wait_first(5)
    wait_until(lambda: len(ticks) == 4)
    assert ticks[0] - began < 1
    assert all(0.04 < later - earlier < 1 for earlier, later in itertools.pairwise(ticks))


def test_a_tick_really_begins_and_commits_its_transactions(app: App, start: Start) -> None:
    def tick(conn: Connection, now: datetime) -> int:
        assert not conn.in_transaction()
        with conn.begin():
            conn.execute(
                text("INSERT INTO jobkit_job_workers (name, last_seen_at) VALUES ('w', '2026-01-01')")
            )
        return 1

    assert start(Service("s", 60, tick)).wait_first(5)
    assert "w" in app.core.storage.known_workers(app.core.engine.connect())


def test_a_tick_that_raises_is_tried_again_and_disturbs_no_other(start: Start) -> None:
    bad: list[int] = []
    good: list[int] = []

    def fails(conn: Connection, now: datetime) -> int:
        bad.append(1)
        raise SystemExit("plugin")

    def works(conn: Connection, now: datetime) -> int:
        good.append(1)
        return 0

    thread = start(Service("bad", 0.02, fails), Service("good", 0.02, works))
    wait_until(lambda: len(bad) >= 3 and len(good) >= 3)
    entry = next(entry for entry in thread.entries if entry.service.name == "bad")
    assert entry.failures >= 3
    assert entry.last_error == "SystemExit: plugin"
    assert entry.ticked_at is None


def test_a_transaction_that_a_tick_leaves_open_is_rolled_back(
    app: App, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    ticks: list[bool] = []

    def tick(conn: Connection, now: datetime) -> int:
        ticks.append(conn.in_transaction())
        conn.execute(text("INSERT INTO jobkit_job_workers (name, last_seen_at) VALUES ('w', '2026-01-01')"))
        return 1

    start(Service("s", 0.02, tick))
    wait_until(lambda: len(ticks) >= 3)
    assert not any(ticks)
    assert app.core.storage.known_workers(app.core.engine.connect()) == {}
    assert "left a transaction open" in caplog.text


def test_a_broken_connection_is_replaced(app: App, start: Start, backend: str) -> None:
    seen: list[object] = []
    closed: list[object] = []

    def tick(conn: Connection, now: datetime) -> int:
        if len(seen) == 1 and not closed:
            closed.append(conn)
            conn.connection.driver_connection.close()  # type: ignore[union-attr]
        conn.execute(text("SELECT 1"))
        conn.rollback()
        seen.append(conn)
        return 0

    start(Service("s", 0.02, tick))
    wait_until(lambda: len(seen) >= 3)
    assert closed


@pytest.mark.parametrize("thread", ["shared", "own"])
def test_services_are_sorted_into_phases_and_threads(app: App, thread: Literal["shared", "own"]) -> None:
    def tick(conn: Connection, now: datetime) -> int:
        return 0

    services = [
        ("heartbeat", Service("heartbeat", 1, tick, thread="own", phase="outer")),
        ("a", Service("a", 1, tick, thread=thread)),
        ("b", Service("b", 1, tick, thread=thread)),
        ("left out", Service("c", 1, tick)),
    ]
    outage = Outage(app.core.clock.monotonic)
    outer, normal = threads_for(app.core, services, outage, lambda plugin, service: plugin != "left out")
    assert [entry.label for t in outer for entry in t.entries] == ["heartbeat"]
    assert [entry.label for t in normal for entry in t.entries] == ["a", "b"]
    assert len(normal) == (1 if thread == "shared" else 2)


def test_a_thread_ends_soon_after_stop_whatever_its_interval(start: Start) -> None:
    ticked = threading.Event()

    def tick(conn: Connection, now: datetime) -> int:
        ticked.set()
        return 0

    thread = start(Service("s", 3600, tick))
    assert ticked.wait(5)
    began = time.monotonic()
    thread.stop()
    assert thread.join(5)
    assert time.monotonic() - began < 0.5


def test_a_node_keeps_its_heartbeat_and_what_stands_in_for_it() -> None:
    def tick(conn: Connection, now: datetime) -> int:
        return 0

    plain, outer = Service("s", 1, tick), Service("s", 1, tick, phase="outer")
    only = NodeOptions(only=frozenset({"stager"}), without=frozenset({"pruner"}))

    assert [only.keeps(name, plain) for name in ("stager", "pruner", "other", "heartbeat")] == [
        True, False, False, True,
    ]  # fmt: skip
    assert only.keeps("acme_heartbeat", outer)
    assert NodeOptions().keeps("other", plain)
