"""Running one worker without a database."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobkit import (
    Cancel,
    Done,
    JobInfo,
    Jobkit,
    NewJob,
    Snooze,
    Worker,
    configure,
    current_job,
    hookimpl,
    worker,
)
from jobkit.config import Config
from jobkit.core import current_core
from jobkit.errors import ArgsError
from jobkit.testing import aperform_job, perform_job
from tests.testing.support import on_a_loop

seen: list[Any] = []


class Recorded(Worker, name="recorded", secret=("token",)):
    user_id: uuid.UUID
    delay: timedelta
    names: tuple[str, ...] = ()
    token: str = ""

    def perform(self, job: JobInfo) -> None:
        seen.append((self, job))


@worker
def misbehave(how: str) -> object:
    if how == "raise":
        raise LookupError("nothing there")
    if how == "cancel":
        raise Cancel("gone")
    if how == "exit":
        raise SystemExit(2)
    return {"snooze": Snooze(5), "value": 42}[how]


@worker(timeout=timedelta(milliseconds=20))
async def hang() -> None:
    await asyncio.Event().wait()


@worker
def enqueuing() -> None:
    core = current_core()
    assert core is APPS[0].core
    APPS[0].enqueue(misbehave("value"))


APPS: list[Jobkit] = []


@pytest.fixture(autouse=True)
def app(tmp_path: Path) -> Iterator[Jobkit]:
    app = Jobkit(config=Config(database_url=f"sqlite:///{tmp_path / 'perform.db'}", sqlite_synchronous="off"))
    configure(app)
    APPS[:] = [app]
    seen.clear()
    yield app
    configure(None)
    app.close()


def test_TH2_args_take_the_way_through_the_encoding() -> None:
    given = Recorded(user_id=uuid.UUID(int=7), delay=timedelta(seconds=3), names=("a", "b"))
    assert perform_job(given) == Done()
    [(received, _)] = seen
    assert received == given
    assert received is not given


def test_TH2_args_that_would_be_refused_at_enqueue_are_refused_here() -> None:
    with pytest.raises(ArgsError, match="user_id"):
        perform_job(Recorded(user_id="seven", delay=timedelta(0)))  # type: ignore[arg-type]


def test_the_job_says_what_it_would_say_in_production() -> None:
    job = Recorded(user_id=uuid.UUID(int=1), delay=timedelta(0)).job(
        queue="special", priority=4, tags=["x"], meta={"source": "test"}, max_attempts=7
    )
    perform_job(job, attempt=3, id=99)
    [(_, info)] = seen
    assert (info.id, info.attempt, info.max_attempts, info.queue) == (99, 3, 7, "special")
    assert (info.priority, info.tags) == (4, ("x",))
    assert info.meta == {"source": "test", "secret_paths": ["token"]}
    assert info.scheduled_at.utcoffset() == timedelta(0)
    assert not info.should_stop()


def test_it_writes_nothing(app: Jobkit, tmp_path: Path) -> None:
    perform_job(misbehave("value"))
    assert list(tmp_path.iterdir()) == []


def test_outcomes_come_back_whether_returned_or_raised() -> None:
    assert perform_job(misbehave("snooze")) == Snooze(5)
    assert perform_job(misbehave("cancel")) == Cancel("gone")
    assert perform_job(misbehave("value")) == Done()


def test_errors_come_out_as_they_are() -> None:
    with pytest.raises(LookupError, match="nothing there"):
        perform_job(misbehave("raise"))
    with pytest.raises(RuntimeError, match="the job raised SystemExit: 2"):
        perform_job(misbehave("exit"))


def test_a_timeout_is_a_timeout_error() -> None:
    with pytest.raises(TimeoutError, match=r"timed out after 0\.02 s"):
        perform_job(hang())


def test_a_class_or_a_function_without_args_is_refused_with_a_hint() -> None:
    with pytest.raises(ArgsError, match="call it with its args"):
        perform_job(misbehave)  # type: ignore[arg-type]


def test_a_job_of_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ArgsError, match="knows no worker 'never_seen'"):
        perform_job(NewJob(worker="never_seen", args="{}"))
    with pytest.raises(ArgsError, match="the first run is 1, not 0"):
        perform_job(misbehave("value"), attempt=0)


def test_resources_and_hooks_apply(app: Jobkit) -> None:
    class Plugin:
        @hookimpl
        def jobkit_lifespan(self) -> Any:
            @asynccontextmanager
            async def life() -> Any:
                yield {"http": "real", "cache": "real"}

            return life()

        @hookimpl
        def jobkit_job_inserting(self, job: NewJob) -> NewJob:
            return job.tag("seen")

        @hookimpl
        def jobkit_around_job(self) -> Any:
            @contextmanager
            def around() -> Iterator[None]:
                assert current_job() is not None
                yield

            return around()

    app.registry.add_plugin(Plugin())
    perform_job(Recorded(user_id=uuid.UUID(int=1), delay=timedelta(0)), app=app, resources={"http": "fake"})
    [(_, info)] = seen
    assert info.tags == ("seen",)
    assert info.resources == {"http": "fake", "cache": "real"}


def test_with_conn_what_the_job_enqueues_joins_that_transaction(app: Jobkit) -> None:
    app.migrate()
    with app.engine.connect() as conn:
        perform_job(enqueuing(), app=app, conn=conn)
        assert conn.exec_driver_sql("SELECT worker FROM jobkit_jobs").scalars().all() == ["misbehave"]
        conn.rollback()
    with app.engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM jobkit_jobs").scalar() == 0


@on_a_loop
async def test_both_forms_work_on_a_running_loop() -> None:
    assert await aperform_job(misbehave("cancel")) == Cancel("gone")
    assert perform_job(misbehave("cancel")) == Cancel("gone")
