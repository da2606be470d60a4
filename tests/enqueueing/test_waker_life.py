"""The waker's own life: its thread, its events, the end of its app, and forks."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from jobkit import JobInfo, Jobkit, Worker, configure_sqlite, hookimpl, wakeup
from jobkit.events import Event, WakeFailed, WakeSent
from jobkit.storage.notices import Notices
from jobkit.wakeup import waker_of

DEADLINE = 15.0


class Ping(Worker, name="ping", queue="pings"):
    def perform(self, job: JobInfo) -> None: ...


class Listens:
    """A plugin that keeps the waker's events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @hookimpl
    def jobkit_event(self, event: Event) -> None:
        if isinstance(event, WakeSent | WakeFailed):
            self.events.append(event)


@pytest.fixture
def ears() -> Listens:
    return Listens()


@pytest.fixture
def app(database_url: str, ears: Listens) -> Iterator[Jobkit]:
    made = Jobkit(database_url, workers=[Ping], plugins=[ears])
    made.migrate()
    yield made
    made.close()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        threading.Event().wait(0.01)


def enqueue_in_a_transaction(app: Jobkit) -> None:
    engine = sa.create_engine(app.engine.url)
    if engine.dialect.name == "sqlite":
        configure_sqlite(engine)
    with engine.begin() as conn:
        app.enqueue(Ping(), conn=conn)
    engine.dispose()


def wakers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "jobkit-waker"}


def sessions(url: str) -> set[int]:
    """The server processes of all other connections to this database."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as conn:
        mine = sa.text(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return set(conn.execute(mine).scalars())


def in_child(work: Callable[[], object]) -> int:
    """Run it in a forked child; its exit code: 0 = it returned something true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# -- events


def test_observers_hear_that_queues_were_woken(app: Jobkit, ears: Listens, backend: str) -> None:
    app.enqueue(Ping())
    waker_of(app.core).flush(DEADLINE)

    [event] = ears.events

    assert isinstance(event, WakeSent)
    assert (event.queues, event.notified) == (("pings",), backend == "postgres")


def test_observers_hear_of_a_callers_rows_once_they_have_committed(app: Jobkit, ears: Listens) -> None:
    waker_of(app.core).subscribe(lambda queues: None)

    enqueue_in_a_transaction(app)

    until(lambda: ears.events)
    assert isinstance(ears.events[0], WakeSent)


def test_observers_hear_of_a_wake_up_that_could_not_be_sent(
    postgres_url: str, ears: Listens, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Jobkit(postgres_url, workers=[Ping], plugins=[ears])
    app.migrate()

    def refuse(*args: object) -> None:
        raise ConnectionError("no server at password=hunter2")

    monkeypatch.setattr(Notices, "confirm", refuse)
    enqueue_in_a_transaction(app)

    until(lambda: ears.events)
    event = ears.events[0]
    assert isinstance(event, WakeFailed)
    assert "no server" in event.error
    assert "hunter2" not in event.error
    monkeypatch.undo()
    until(lambda: isinstance(ears.events[-1], WakeSent))
    app.close()


# -- its thread


def test_a_closed_waker_leaves_no_thread_and_starts_again_when_needed(postgres_url: str) -> None:
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    waker, before = waker_of(app.core), wakers()
    enqueue_in_a_transaction(app)
    assert waker.flush(DEADLINE)

    waker.close()
    assert wakers() <= before
    enqueue_in_a_transaction(app)
    assert waker.flush(DEADLINE)

    assert len(wakers() - before) == 1
    app.close()
    assert wakers() <= before


def test_ML3_a_closed_app_leaves_no_connection(postgres_url: str) -> None:
    before = sessions(postgres_url)
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    app.enqueue(Ping())
    enqueue_in_a_transaction(app)

    app.close()

    until(lambda: sessions(postgres_url) <= before)


def test_ML3_the_thread_of_an_app_that_nobody_holds_ends(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "LOOK_AROUND", 0.01)
    before = wakers()
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    enqueue_in_a_transaction(app)
    assert wakers() - before

    del app
    gc.collect()

    until(lambda: wakers() <= before)


# -- forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_FK1_a_forked_child_enqueues_and_wakes_on_its_own(app: Jobkit) -> None:
    app.enqueue(Ping())
    enqueue_in_a_transaction(app)
    waker_of(app.core).flush(DEADLINE)

    def child() -> bool:
        enqueue_in_a_transaction(app)
        return not app.enqueue(Ping()).duplicate and waker_of(app.core).flush(DEADLINE)

    assert in_child(child) == 0
    with app.engine.connect() as conn:
        assert conn.execute(sa.select(sa.func.count()).select_from(app.tables.jobs)).scalar_one() == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_FK1_a_forked_child_ends_none_of_its_parents_connections(postgres_url: str) -> None:
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    app.enqueue(Ping())
    waker_of(app.core).flush(DEADLINE)
    before = sessions(postgres_url)

    def child() -> bool:
        app.enqueue(Ping())
        app.close()
        gc.collect()
        return True

    assert before
    assert in_child(child) == 0
    assert before <= sessions(postgres_url)
    app.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_FK1_a_child_that_is_forked_while_the_waker_is_at_work_is_not_stopped_by_its_lock(
    postgres_url: str,
) -> None:
    app = Jobkit(postgres_url, workers=[Ping])
    app.migrate()
    waker = waker_of(app.core)
    with waker._lock:
        assert in_child(lambda: app.enqueue(Ping()) and waker.flush(DEADLINE)) == 0
    app.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_FK2_a_forked_child_wakes_no_node_of_its_parent(app: Jobkit) -> None:
    woken: list[frozenset[str]] = []
    waker_of(app.core).subscribe(woken.append)

    def child() -> bool:
        app.enqueue(Ping())
        return waker_of(app.core).flush(DEADLINE) and not woken

    assert in_child(child) == 0
    app.enqueue(Ping())
    assert woken == [frozenset({"pings"})]
