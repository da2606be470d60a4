"""Runs: job code's every way of ending becomes one record, on the loop and in threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta

import pytest

from jobkit import Cancel, Done, JobInfo, JobState, Outcome, Snooze, Worker, current_job, hookimpl, worker
from jobkit.config import Config
from jobkit.core import Core, current_core
from jobkit.hookspecs import JobContext
from jobkit.jobs import Lease
from jobkit.runtime.executor import Ended, Executor, run_claimed
from jobkit.runtime.settle import Settled
from jobkit.storage.base import Change
from tests.runtime.support import claimed, until

BODIES: dict[str, Callable[[JobInfo], object]] = {}
ABODIES: dict[str, Callable[[JobInfo], Awaitable[object]]] = {}


class Sync(Worker, name="sync"):
    case: str = ""

    def perform(self, job: JobInfo) -> Outcome | None:
        return BODIES[self.case](job)  # type: ignore[return-value]


class Async(Worker, name="async"):
    case: str = ""

    async def perform(self, job: JobInfo) -> Outcome | None:
        return await ABODIES[self.case](job)  # type: ignore[return-value]


class Hasty(Worker, name="hasty", timeout=timedelta(milliseconds=30)):
    case: str = ""

    async def perform(self, job: JobInfo) -> Outcome | None:
        return await ABODIES[self.case](job)  # type: ignore[return-value]


class HastySync(Worker, name="hasty_sync", timeout=timedelta(milliseconds=30)):
    case: str = ""

    def perform(self, job: JobInfo) -> Outcome | None:
        return BODIES[self.case](job)  # type: ignore[return-value]


class Picky(Worker, name="picky"):
    number: int

    def perform(self, job: JobInfo) -> None: ...


@worker
def plain_function(number: int, job: JobInfo) -> Outcome | None:
    return Snooze(number)


def core_with(*plugins: object) -> Core:
    config = Config(database_url="sqlite:///unused.db")
    return Core(config, workers=[Sync, Async, Hasty, HastySync, Picky, plain_function], plugins=plugins)


async def perform(name: str, case: str = "", *, core: Core | None = None, args: str | None = None) -> Ended:
    text = args if args is not None else f'{{"case": "{case}"}}'
    return await asyncio.wait_for(run_claimed(core or core_with(), claimed(worker=name, args=text)), 10)


def run(name: str, body: Callable[[JobInfo], object], *, core: Core | None = None) -> Ended:
    """Run `body` as the sync or as the async worker's perform, as `name` says."""
    BODIES["x"] = body

    async def awaited(job: JobInfo) -> object:
        result = body(job)
        return await result if asyncio.iscoroutine(result) else result

    ABODIES["x"] = awaited
    return asyncio.run(perform(name, "x", core=core))


def change_of(ended: Ended) -> Change:
    assert ended.settled.change is not None
    return ended.settled.change


def error_of(ended: Ended) -> str:
    error = change_of(ended).error
    assert error is not None
    return error.error


both = pytest.mark.parametrize("name", ["sync", "async"])


def throwing(exc: BaseException) -> Callable[[JobInfo], object]:
    def body(job: JobInfo) -> object:
        raise exc

    return body


@both
def test_nothing_returned_means_done(name: str) -> None:
    assert change_of(run(name, lambda job: None)).to is JobState.COMPLETED


@both
@pytest.mark.parametrize("outcome", [Done(), Snooze(5), Cancel("x")])
def test_an_outcome_means_the_same_returned_or_raised(name: str, outcome: Outcome) -> None:
    returned = change_of(run(name, lambda job: outcome)).to
    assert change_of(run(name, throwing(outcome))).to is returned


@both
@pytest.mark.parametrize(
    "raised",
    [
        ValueError("x"),
        SystemExit(0),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(1),
        StopAsyncIteration(),
        MemoryError(),
        RecursionError(),
        asyncio.CancelledError(),
        ExceptionGroup("g", [ValueError()]),
        BaseExceptionGroup("g", [SystemExit(0)]),
        TimeoutError("its own"),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_ER6_anything_that_job_code_raises_is_that_jobs_failure(name: str, raised: BaseException) -> None:
    assert change_of(run(name, throwing(raised))).to is JobState.RETRYABLE


def test_ER8_running_out_of_stack_is_an_ordinary_failure() -> None:
    def endless(job: JobInfo) -> object:
        return endless(job)

    assert error_of(run("sync", endless)).startswith("RecursionError")


@both
def test_ER7_an_outcome_class_is_no_outcome(name: str) -> None:
    assert "return Snooze(...)" in error_of(run(name, lambda job: Snooze))


def test_ER7_a_generator_or_an_unawaited_coroutine_never_counts_as_done() -> None:
    async def work() -> None: ...

    def generate() -> Iterator[int]:
        yield 1

    assert "generator" in error_of(run("sync", lambda job: generate()))
    assert "awaitable" in error_of(run("sync", lambda job: work()))
    assert "generator" in error_of(run("async", lambda job: generate()))


@both
def test_other_values_are_dropped_with_one_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    from jobkit.runtime import body

    body._warned.clear()
    for _ in range(2):
        assert change_of(run(name, lambda job: 42)).to is JobState.COMPLETED
    assert len([r for r in caplog.records if "dropped" in r.getMessage()]) == 1


def test_JA6_args_that_do_not_decode_discard_the_job() -> None:
    for text in ("{}", '{"number": "seven"}', "nonsense", "[]", "null"):
        change = change_of(asyncio.run(perform("picky", args=text)))
        assert change.to is JobState.DISCARDED


def test_a_function_worker_gets_its_args_and_its_job() -> None:
    change = change_of(asyncio.run(perform("plain_function", args='{"number": 60}')))
    assert change.to is JobState.SCHEDULED


@both
def test_job_and_app_are_the_current_ones_inside_and_only_there(name: str) -> None:
    core, seen = core_with(), []

    def body(job: JobInfo) -> None:
        seen.append((current_job(), current_core(), job))

    run(name, body, core=core)
    [(job, app, given)] = seen
    assert job is given
    assert app is core
    assert current_job() is None


def test_async_jobs_run_on_the_loop_and_plain_ones_in_daemon_threads() -> None:
    seen: list[threading.Thread] = []
    run("async", lambda job: seen.append(threading.current_thread()))
    run("sync", lambda job: seen.append(threading.current_thread()))
    assert seen[0] is threading.main_thread()
    assert seen[1] is not threading.main_thread()
    assert seen[1].daemon


# -- timeouts


@pytest.mark.parametrize("jobs", [2, 3, 7])
def test_plain_jobs_that_come_together_and_wait_run_side_by_side(jobs: int) -> None:
    """Each waits for all the others, so that none ends unless all have begun; again and again, since threads race."""

    async def scenario() -> list[Settled]:
        together = threading.Barrier(jobs)

        def meet(job: JobInfo) -> None:
            together.wait(10)

        BODIES["meet"] = meet
        delivered: list[Settled] = []
        executor = Executor(core, asyncio.get_running_loop(), lambda settled, _: delivered.append(settled))
        claims = [claimed(n, worker="sync", args='{"case": "meet"}') for n in range(jobs)]
        executor.accept(None, claims, {"sync": Sync})
        await until(lambda: len(delivered) == jobs)
        executor.shut_down()
        return delivered

    core = core_with()
    for _ in range(20):
        assert {settled.outcome for settled in asyncio.run(scenario())} == {"completed"}


def test_a_timeout_cancels_a_coroutine() -> None:
    seen: list[str] = []

    async def body(job: JobInfo) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    assert error_of(run("hasty", body)).startswith("TimeoutError: timed out after 0.03 s")
    assert seen == ["cancelled"]


def test_a_coroutine_that_swallows_its_timeout_is_recorded_as_timed_out_when_it_ends() -> None:
    async def body(job: JobInfo) -> Outcome:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        return Done()

    assert error_of(run("hasty", body)).startswith("TimeoutError: timed out")


def test_a_thread_sees_should_stop_and_keeps_its_slot_until_it_ends() -> None:
    def body(job: JobInfo) -> str:
        waited = threading.Event()
        while not job.should_stop():
            waited.wait(0.002)
        return "late"

    assert error_of(run("hasty_sync", body)).startswith("TimeoutError: timed out")


# -- middleware


class Recording:
    """A plugin that notes what its context sees."""

    def __init__(
        self, *, asynchronous: bool = False, swallow: bool = False, outcome: Outcome | None = None
    ) -> None:
        self.seen: list[object] = []
        self.asynchronous = asynchronous
        self.swallow = swallow
        self.outcome = outcome

    @hookimpl
    def jobkit_around_job(
        self, job: JobInfo, worker: Worker, ctx: JobContext
    ) -> AbstractContextManager[None] | AbstractAsyncContextManager[None]:
        return self.on_loop(ctx) if self.asynchronous else self.plain(ctx)

    @contextlib.contextmanager
    def plain(self, ctx: JobContext) -> Iterator[None]:
        self.seen.append("in")
        try:
            yield
        except BaseException as exc:
            self.seen.append(type(exc))
            if not self.swallow:
                raise
        self.seen.append(ctx.outcome)
        if self.outcome is not None:
            ctx.outcome = self.outcome

    @contextlib.asynccontextmanager
    async def on_loop(self, ctx: JobContext) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        with self.plain(ctx):
            yield


@both
def test_middleware_sees_the_outcome_and_may_set_it(name: str) -> None:
    plugin = Recording(outcome=Snooze(9))
    assert change_of(run(name, lambda job: Cancel("x"), core=core_with(plugin))).to is JobState.SCHEDULED
    assert plugin.seen == ["in", Cancel("x")]


@both
def test_middleware_sees_a_raised_outcome_as_an_outcome(name: str) -> None:
    plugin = Recording()
    run(name, throwing(Cancel("x")), core=core_with(plugin))
    assert plugin.seen == ["in", Cancel("x")]


@both
def test_a_suppressed_exception_stays_a_failure(name: str) -> None:
    plugin = Recording(swallow=True, outcome=Done())
    assert error_of(run(name, throwing(ValueError("x")), core=core_with(plugin))).startswith("ValueError: x")


def test_an_async_context_works_around_a_coroutine_and_fails_a_thread() -> None:
    plugin = Recording(asynchronous=True)
    assert change_of(run("async", lambda job: None, core=core_with(plugin))).to is JobState.COMPLETED
    assert "async context manager" in error_of(run("sync", lambda job: None, core=core_with(plugin)))


@both
def test_middleware_that_raises_fails_the_job(name: str) -> None:
    class Broken:
        @hookimpl
        def jobkit_around_job(self, job: JobInfo) -> AbstractContextManager[None]:
            raise LookupError("no context")

    assert error_of(run(name, lambda job: None, core=core_with(Broken()))).startswith(
        "LookupError: no context"
    )


def test_middleware_runs_inside_the_timeout() -> None:
    class Slow:
        @hookimpl
        @contextlib.asynccontextmanager
        async def jobkit_around_job(self, job: JobInfo) -> AsyncIterator[None]:
            await asyncio.sleep(30)
            yield

    assert error_of(run("hasty", lambda job: None, core=core_with(Slow()))).startswith(
        "TimeoutError: timed out"
    )


# -- runners of plugins


def test_a_plugin_may_choose_where_a_worker_runs() -> None:
    class Elsewhere:
        async def run(self, worker: Worker, job: JobInfo) -> object:
            return Snooze(3)

    class Plugin:
        @hookimpl
        def jobkit_runner(self, worker: type[Worker]) -> object:
            return Elsewhere()

    assert change_of(run("sync", lambda job: None, core=core_with(Plugin()))).to is JobState.SCHEDULED


def test_a_wrong_answer_about_the_runner_is_passed_over() -> None:
    class Plugin:
        @hookimpl
        def jobkit_runner(self, worker: type[Worker]) -> str:
            return "moon"

    assert change_of(run("sync", lambda job: None, core=core_with(Plugin()))).to is JobState.COMPLETED


# -- what the executor keeps


def test_a_lost_lease_ends_the_run_and_records_nothing() -> None:
    async def scenario() -> Settled:
        ABODIES["wait"] = lambda job: asyncio.sleep(30)
        delivered: list[Settled] = []
        core = core_with()
        executor = Executor(core, asyncio.get_running_loop(), lambda settled, _: delivered.append(settled))
        job = claimed(worker="async", args='{"case": "wait"}')
        executor.accept(None, [job], {"async": Async})
        await until(lambda: executor.runs[0].started)
        executor.abort(Lease(job.id, "another:1:x", job.attempted_at))
        await asyncio.sleep(0)
        assert executor.leases() == [job.lease]
        executor.abort(job.lease)
        await until(lambda: delivered)
        assert not executor.runs
        return delivered[0]

    settled = asyncio.run(scenario())
    assert settled.change is None
    assert settled.outcome == "lost"


def test_CW11_what_has_not_begun_at_shutdown_goes_back_without_running() -> None:
    ran: list[int] = []

    async def scenario() -> list[Settled]:
        async def body(job: JobInfo) -> None:
            ran.append(job.id)

        ABODIES["note"] = body
        delivered: list[Settled] = []
        core, loop = core_with(), asyncio.get_running_loop()
        # With a factory of its own, a loop begins no task at once, whatever the version of Python.
        loop.set_task_factory(lambda loop, coro, **more: asyncio.Task(coro, loop=loop, **more))
        executor = Executor(core, loop, lambda settled, _: delivered.append(settled))
        jobs = [claimed(n, worker="async", args='{"case": "note"}') for n in range(3)]
        executor.accept(None, jobs, {"async": Async})
        executor.shut_down()
        await until(lambda: len(delivered) == 3)
        return delivered

    delivered = asyncio.run(scenario())
    assert ran == []
    for settled in delivered:
        assert settled.change is not None
        assert (settled.change.to, settled.change.attempt_delta) == (JobState.AVAILABLE, -1)


def test_ML1_a_finished_run_leaves_nothing_behind() -> None:
    import gc
    import weakref

    class Big:
        pass

    async def scenario() -> None:
        kept: list[weakref.ref[Big]] = []

        async def body(job: JobInfo) -> None:
            big = Big()
            kept.append(weakref.ref(big))
            raise ValueError("x")

        ABODIES["big"] = body
        ends: list[str] = []
        executor = Executor(
            core_with(), asyncio.get_running_loop(), lambda settled, _: ends.append(settled.outcome)
        )
        gc.disable()
        try:
            executor.accept(None, [claimed(worker="async", args='{"case": "big"}')], {"async": Async})
            await until(lambda: ends)
            await asyncio.sleep(0)
            assert kept[0]() is None
        finally:
            gc.enable()

    asyncio.run(scenario())


def test_resources_reach_the_job() -> None:
    async def scenario() -> Mapping[str, object]:
        seen: list[Mapping[str, object]] = []

        async def body(job: JobInfo) -> None:
            seen.append(job.resources)

        ABODIES["look"] = body
        job = claimed(worker="async", args='{"case": "look"}')
        await run_claimed(core_with(), job, resources={"client": 1})
        return seen[0]

    assert asyncio.run(scenario()) == {"client": 1}
