"""Draining: what runs, what is left, and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from jobkit import (
    JobInfo,
    Jobkit,
    Outcome,
    Snooze,
    Worker,
    configure_sqlite,
    current_job,
    hookimpl,
    worker,
)
from jobkit.config import Config
from jobkit.core import Core, current_core
from jobkit.errors import ArgsError, JobkitError
from jobkit.events import Event, JobFailed, JobStarted, JobStopped
from jobkit.jobs import JobState
from jobkit.storage.base import Change
from jobkit.testing import FrozenClock, adrain_jobs, all_enqueued, drain_jobs
from tests.testing.guide_workers import cancel, discard, fail, hang, hold, journal, ok, stranger
from tests.testing.support import HOUR, MINUTE, START, Kit, on_a_loop


@worker
def parent(children: int) -> None:
    core = current_core()
    app = APPS[core]
    for n in range(children):
        app.enqueue(ok(n))


@worker
def for_ever() -> Outcome:
    return Snooze(0)


@worker
def resourceful(job: JobInfo) -> None:
    journal.note(dict(job.resources))


@worker(timeout=timedelta(milliseconds=20))
def overtime(job: JobInfo) -> None:
    while not job.should_stop():
        pass


@worker
def undone(job: JobInfo) -> None:
    """Somebody cancels the job while it runs."""
    core = current_core()
    change = Change(
        id=job.id, expect=frozenset({JobState.EXECUTING}), to=JobState.CANCELLED, at=core.clock.now()
    )
    with core.engine.begin() as conn:
        assert core.storage.transition(conn, [change])


APPS: dict[Core, Jobkit] = {}


@pytest.fixture(autouse=True)
def _more_workers(kit: Kit) -> Iterator[None]:
    for each in (parent, for_ever, resourceful, overtime, undone):
        kit.app.registry.add_worker(each)
    APPS[kit.core] = kit.app
    yield
    APPS.clear()


def test_nothing_runs_until_the_test_says_so(kit: Kit) -> None:
    kit.app.enqueue(ok(1))
    assert journal.entries == []
    assert drain_jobs(kit.app) == {"completed": 1}
    assert journal.entries == [1]


def test_an_empty_drain_counts_nothing_and_every_state_reads_as_zero(kit: Kit) -> None:
    counts = drain_jobs(kit.app)
    assert counts == {}
    assert counts["completed"] == 0


def test_TH3_every_outcome_is_counted_by_the_state_it_led_to(kit: Kit) -> None:
    kit.app.enqueue_all([ok(1), ok(2), fail(), cancel(), discard(), stranger()])
    counts = drain_jobs(kit.app)
    assert counts == {"completed": 2, "retryable": 1, "cancelled": 1, "discarded": 2}
    assert sorted(counts.elements()) == sorted(kit.states())


def test_jobs_run_by_priority_then_time_then_id_across_queues(kit: Kit) -> None:
    for n, priority, queue in ((1, 5, "a"), (2, 0, "b"), (3, 5, "b"), (4, 0, "a")):
        kit.app.enqueue(ok(n), priority=priority, queue=queue)
    drain_jobs(kit.app)
    assert journal.entries == [2, 4, 1, 3]


def test_one_queue_alone_can_be_drained(kit: Kit) -> None:
    kit.app.enqueue(ok(1), queue="mail")
    kit.app.enqueue(ok(2), queue="other")
    assert drain_jobs(kit.app, "mail") == {"completed": 1}
    assert journal.entries == [1]
    assert drain_jobs(kit.app, queue="mail") == {}


def test_what_jobs_enqueue_runs_too(kit: Kit) -> None:
    kit.app.enqueue(parent(2))
    assert drain_jobs(kit.app) == {"completed": 3}


def test_without_recursion_only_what_was_due_at_the_beginning_runs(kit: Kit) -> None:
    kit.app.enqueue_all([parent(2), ok(9)])
    assert drain_jobs(kit.app, with_recursion=False) == {"completed": 2}
    assert len(all_enqueued(kit.app, ok)) == 2


def test_later_jobs_wait_for_the_clock(kit: Kit) -> None:
    kit.app.enqueue(ok(1), schedule_in=HOUR)
    assert drain_jobs(kit.app) == {}
    kit.clock.advance(HOUR)
    assert drain_jobs(kit.app) == {"completed": 1}


def test_with_scheduled_later_jobs_run_as_if_due_the_earliest_first(kit: Kit) -> None:
    for n, delay in ((1, 3 * HOUR), (2, HOUR), (3, 2 * HOUR)):
        kit.app.enqueue(ok(n), schedule_in=delay)
    assert drain_jobs(kit.app, with_scheduled=True) == {"completed": 3}
    assert journal.entries == [2, 3, 1]
    assert kit.clock.now() == START


def test_with_scheduled_and_without_recursion_each_job_runs_once(kit: Kit) -> None:
    kit.app.enqueue_all([fail(), ok(1).job(schedule_in=MINUTE)])
    assert drain_jobs(kit.app, with_scheduled=True, with_recursion=False) == {
        "retryable": 1,
        "completed": 1,
    }


def test_a_limit_stops_the_drain_and_leaves_the_rest(kit: Kit) -> None:
    kit.app.enqueue_all([ok(n) for n in range(5)])
    assert drain_jobs(kit.app, limit=2) == {"completed": 2}
    assert drain_jobs(kit.app, limit=2, with_recursion=False) == {"completed": 2}
    assert kit.states().count("available") == 1


def test_a_drain_that_would_never_end_says_so(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobkit._testing_drain.ENDLESS", 20)
    kit.app.enqueue(for_ever())
    with pytest.raises(JobkitError, match=r"20 jobs were run and more are due.*limit="):
        drain_jobs(kit.app)
    assert kit.states() == ["available"]
    kit.app.enqueue(for_ever(), schedule_in=HOUR, queue="later")
    with pytest.raises(JobkitError, match="20 jobs were run"):
        drain_jobs(kit.app, "later", with_scheduled=True)


def test_without_safety_the_first_error_comes_out_after_it_was_recorded(kit: Kit) -> None:
    first, second = (each.id for each in kit.app.enqueue_all([fail(), ok(1)]))
    with pytest.raises(ValueError, match="attempt 1 failed"):
        drain_jobs(kit.app, with_safety=False)
    assert kit.row(first).state == "retryable"
    assert (kit.row(second).state, kit.row(second).attempt) == ("available", 0)
    assert kit.nodes() == []


def test_without_safety_what_was_claimed_behind_the_error_goes_back(kit: Kit) -> None:
    _, second = (each.id for each in kit.app.enqueue_all([fail(), ok(1)]))
    with pytest.raises(ValueError, match="attempt 1 failed"):
        drain_jobs(kit.app, with_safety=False, with_recursion=False)
    assert (kit.row(second).state, kit.row(second).attempt) == ("available", 0)


def test_without_safety_outcomes_are_no_errors_and_unknown_workers_are(kit: Kit) -> None:
    kit.app.enqueue_all([discard(), cancel()])
    assert drain_jobs(kit.app, with_safety=False) == {"discarded": 1, "cancelled": 1}
    kit.app.enqueue(stranger())
    with pytest.raises(ArgsError, match="unknown worker: stranger"):
        drain_jobs(kit.app, with_safety=False)


def test_a_job_that_was_cancelled_while_it_ran_counts_as_cancelled(kit: Kit) -> None:
    kit.app.enqueue(undone())
    assert drain_jobs(kit.app) == {"cancelled": 1}


def test_a_drain_leaves_no_node_behind_and_claims_under_its_own_name(kit: Kit) -> None:
    job = kit.app.enqueue(ok(1)).id
    drain_jobs(kit.app)
    assert kit.nodes() == []
    assert kit.row(job).attempted_by.startswith("drain:")


def test_TH5_a_thread_that_overruns_its_timeout_is_recorded_as_timed_out(config: Config) -> None:
    app = Jobkit(config=config, workers=[overtime])
    app.migrate()
    app.enqueue(overtime(), max_attempts=1)
    assert drain_jobs(app) == {"discarded": 1}
    app.enqueue(overtime(), max_attempts=1)
    with pytest.raises(TimeoutError, match=r"timed out after 0\.02 s"):
        drain_jobs(app, with_safety=False)
    app.close()


# -- plugins take part


class Witness:
    """A plugin that looks on, opens something, and stands around jobs."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = False

    @hookimpl
    def jobkit_event(self, event: Event) -> None:
        self.events.append(event)

    @hookimpl
    def jobkit_lifespan(self) -> Any:
        @asynccontextmanager
        async def open_client() -> Any:
            yield {"client": "open"}
            self.closed = True

        return open_client()

    @hookimpl
    def jobkit_around_job(self, job: JobInfo) -> Any:
        @contextmanager
        def around() -> Iterator[None]:
            journal.note(f"before {job.worker}")
            yield
            journal.note(f"after {job.worker}")

        return around()


def test_TH3_events_lifespans_and_middleware_are_those_of_production(kit: Kit) -> None:
    witness = Witness()
    kit.app.registry.add_plugin(witness)
    kit.app.enqueue_all([resourceful(), fail()])
    drain_jobs(kit.app)
    assert journal.entries == [
        *("before resourceful", {"client": "open"}, "after resourceful"),
        "before fail",
    ]
    told = [type(event) for event in witness.events if isinstance(event, JobStarted | JobStopped | JobFailed)]
    assert told == [JobStarted, JobStopped, JobStarted, JobFailed]
    assert witness.closed


def test_a_plugin_that_writes_in_the_transaction_changes_nothing_else(kit: Kit) -> None:
    class Observer:
        moves: list[str] = []

        @hookimpl
        def jobkit_transitions(self, transitions: Any) -> None:
            self.moves += [str(each.new) for each in transitions if each.new.final]

    kit.app.registry.add_plugin(Observer())
    kit.app.enqueue_all([ok(1), discard(), parent(1), ok(3).job(schedule_in=HOUR)])
    counts = drain_jobs(kit.app, with_scheduled=True)
    assert counts == {"completed": 4, "discarded": 1}
    assert sorted(counts.elements()) == sorted(kit.states())
    assert sorted(Observer.moves) == sorted(kit.states())


# -- loops


@on_a_loop
async def test_a_drain_works_while_a_loop_is_running(kit: Kit) -> None:
    kit.app.enqueue_all([ok(1), hang()])
    assert drain_jobs(kit.app, "default", limit=1) == {"completed": 1}


@on_a_loop
async def test_an_async_drain_shares_the_loop_of_the_test(kit: Kit) -> None:
    loops: list[object] = []

    class Where(Worker, name="where"):
        async def perform(self, job: JobInfo) -> None:
            assert current_job() == job
            loops.append(asyncio.get_running_loop())

    kit.app.registry.add_worker(Where)
    await kit.app.aenqueue(Where())
    assert await adrain_jobs(kit.app) == {"completed": 1}
    assert loops == [asyncio.get_running_loop()]


@on_a_loop
async def test_a_cancelled_drain_gives_its_job_back(kit: Kit) -> None:
    from tests.testing.guide_workers import started

    job = kit.app.enqueue(hold()).id
    drain = asyncio.create_task(adrain_jobs(kit.app))
    while not started.is_set():
        await asyncio.sleep(0.005)
    drain.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drain
    assert (kit.row(job).state, kit.row(job).attempt) == ("available", 0)
    assert kit.nodes() == []


# -- inside the caller's transaction


def test_with_conn_everything_happens_inside_the_callers_transaction(kit: Kit) -> None:
    with kit.app.engine.connect() as conn:
        kit.app.enqueue(ok(1), conn=conn)
        assert [job.args for job in all_enqueued(kit.app, ok, conn=conn)] == [{"n": 1}]
        assert drain_jobs(kit.app, conn=conn) == {"completed": 1}
        assert states(conn, kit) == ["completed"]
        conn.rollback()
    assert kit.rows() == []
    assert kit.nodes() == []


def test_with_a_session_nothing_is_committed_and_children_join_too(kit: Kit) -> None:
    with Session(kit.app.engine) as session:
        kit.app.enqueue(parent(2), conn=session)
        assert drain_jobs(kit.app, conn=session) == {"completed": 3}
        assert session.in_transaction()
        assert states(session.connection(), kit) == ["completed"] * 3
        session.rollback()
    assert kit.rows() == []


def test_with_conn_failures_are_recorded_there_as_well(kit: Kit) -> None:
    with kit.app.engine.connect() as conn:
        kit.app.enqueue_all([fail(), cancel()], conn=conn)
        assert drain_jobs(kit.app, conn=conn, with_scheduled=True) == {
            "retryable": 2,
            "discarded": 1,
            "cancelled": 1,
        }
        conn.commit()
    assert kit.states() == ["discarded", "cancelled"]


@on_a_loop
async def test_with_an_async_session_of_another_driver_nothing_is_committed(kit: Kit, backend: str) -> None:
    url = kit.app.engine.url.set(
        drivername={"sqlite": "sqlite+aiosqlite", "postgres": "postgresql+asyncpg"}[backend]
    )
    engine = create_async_engine(url)
    if backend == "sqlite":
        configure_sqlite(engine)
    async with AsyncSession(engine) as session:
        await kit.app.aenqueue(ok(1), conn=session)
        assert await adrain_jobs(kit.app, conn=session) == {"completed": 1}
        await session.rollback()
    await engine.dispose()
    assert kit.rows() == []


def test_with_conn_of_psycopg2_nothing_is_committed(kit: Kit, backend: str) -> None:
    drivername = {"sqlite": "sqlite", "postgres": "postgresql+psycopg2"}[backend]
    engine = sa.create_engine(kit.app.engine.url.set(drivername=drivername))
    if backend == "sqlite":
        configure_sqlite(engine)
    with engine.connect() as conn:
        kit.app.enqueue_all([ok(1), fail()], conn=conn)
        assert drain_jobs(kit.app, conn=conn) == {"completed": 1, "retryable": 1}
        conn.rollback()
    engine.dispose()
    assert kit.rows() == []


def test_an_app_that_is_none_and_a_conn_that_is_none_are_refused(kit: Kit) -> None:
    with pytest.raises(TypeError, match="a Jobkit is expected first, not str"):
        drain_jobs("sqlite://")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a Session or Connection is expected, not Engine"):
        drain_jobs(kit.app, conn=kit.app.engine)  # type: ignore[arg-type]


def test_TH4_two_apps_share_nothing(kit: Kit, tmp_path: Any) -> None:
    other = Jobkit(config=Config(database_url=f"sqlite:///{tmp_path / 'other.db'}"), clock=FrozenClock(START))
    kit.app.enqueue(ok(1))
    assert drain_jobs(other) == {}
    assert drain_jobs(kit.app) == {"completed": 1}
    other.close()


def states(conn: sa.Connection, kit: Kit) -> list[str]:
    jobs = kit.app.tables.jobs
    return list(conn.execute(sa.select(jobs.c.state).order_by(jobs.c.id)).scalars())
