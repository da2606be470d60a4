"""Running `perform` within the middleware of plugins; the same code on the loop, in a thread and in a child.

Invariant: whatever job code returns or raises comes out as an Outcome or as an exception, and an exception
that a middleware suppresses stays a failure.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
)
from typing import TYPE_CHECKING, Final

from jobkit._hooktable import Implementation
from jobkit._hooktypes import JobContext, Runner
from jobkit.outcomes import Done, Outcome
from jobkit.runtime.logs import log

if TYPE_CHECKING:
    from jobkit.jobs import JobInfo
    from jobkit.workers import Worker

__all__ = ["forget_warnings", "outcome_of", "perform_async", "perform_sync"]

Manager = AbstractContextManager[object] | AbstractAsyncContextManager[object]

DONE: Final = Done()


async def perform_async(
    worker: Worker, job: JobInfo, around: Sequence[Implementation], runner: Runner | None = None
) -> Outcome:
    """Await `worker.perform(job)`, or a plugin's runner of it, inside the contexts of `around`.

    Returns its outcome or raises its failure; an outcome may come out raised, too.
    """
    if not around:
        value: object = worker.perform(job) if runner is None else runner.run(worker, job)
        if inspect.isawaitable(value):
            value = await value
        return DONE if value is None else outcome_of(job.worker, value)
    ctx = JobContext()
    failure: BaseException | None = None
    async with AsyncExitStack() as stack:
        for manager in _managers(around, job, worker, ctx):
            if isinstance(manager, AbstractAsyncContextManager):
                await stack.enter_async_context(manager)
            else:
                stack.enter_context(manager)
        try:
            ctx.outcome = await _outcome(worker, job, runner)
        except BaseException as exc:
            failure = exc
            raise
    return _decided(ctx, failure)


def perform_sync(worker: Worker, job: JobInfo, around: Sequence[Implementation]) -> Outcome:
    """Call `worker.perform(job)` inside the contexts of `around`, which must be sync ones."""
    if not around:
        return outcome_of(job.worker, worker.perform(job))
    ctx = JobContext()
    failure: BaseException | None = None
    with ExitStack() as stack:
        for manager in _managers(around, job, worker, ctx):
            if not isinstance(manager, AbstractContextManager):
                raise TypeError(
                    "jobkit_around_job gave an async context manager for a job that runs in a thread"
                )
            stack.enter_context(manager)
        try:
            ctx.outcome = _outcome_sync(worker, job)
        except BaseException as exc:
            failure = exc
            raise
    return _decided(ctx, failure)


async def _awaited(worker: Worker, job: JobInfo, runner: Runner | None) -> object:
    """The result of an async `perform`; a plain one's result as it is."""
    if runner is not None:
        return await runner.run(worker, job)
    result = worker.perform(job)
    return await result if inspect.isawaitable(result) else result


async def _outcome(worker: Worker, job: JobInfo, runner: Runner | None) -> Outcome:
    """An outcome may be raised from deep inside: middleware sees it as the outcome that it is."""
    try:
        return outcome_of(job.worker, await _awaited(worker, job, runner))
    except Outcome as outcome:
        return outcome


def _outcome_sync(worker: Worker, job: JobInfo) -> Outcome:
    try:
        return outcome_of(job.worker, worker.perform(job))
    except Outcome as outcome:
        return outcome


def _decided(ctx: JobContext, failure: BaseException | None) -> Outcome:
    if failure is not None:
        raise failure
    if not isinstance(ctx.outcome, Outcome):
        found = type(ctx.outcome).__name__
        raise TypeError(f"a jobkit_around_job hook set ctx.outcome to {found}, not an Outcome")
    return ctx.outcome


def _managers(
    around: Sequence[Implementation], job: JobInfo, worker: Worker, ctx: JobContext
) -> Iterator[Manager]:
    """The context managers that the hooks give, outermost first."""
    given: Mapping[str, object] = {"job": job, "worker": worker, "ctx": ctx}
    for hook in around:
        manager = hook.call(given)
        if isinstance(manager, AbstractContextManager | AbstractAsyncContextManager):
            yield manager
        elif manager is not None:
            found = type(manager).__name__
            raise TypeError(
                f"jobkit_around_job of plugin {hook.plugin!r} gave {found}, not a context manager"
            )


_warned: set[str] = set()


def forget_warnings() -> None:
    """Give the warnings about dropped values once more."""
    _warned.clear()


def outcome_of(worker: str, value: object) -> Outcome:
    """What `perform` returned, as an Outcome.

    An outcome class, an awaitable or a generator raises TypeError: the work it stands for was not done. Any
    other value counts as Done, with one warning per worker.
    """
    if value is None:
        return DONE
    if isinstance(value, Outcome):
        return value
    if isinstance(value, type) and issubclass(value, Outcome):
        raise TypeError(f"perform returned the class {value.__name__}; return {value.__name__}(...) instead")
    if isinstance(value, Awaitable):
        if inspect.iscoroutine(value):
            value.close()
        found = type(value).__name__
        raise TypeError(f"perform returned an awaitable ({found}) that nothing awaits: make it async def")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise TypeError("perform returned a generator, whose body has not run")
    if worker not in _warned and len(_warned) < 10_000:
        _warned.add(worker)
        log.warning("%s returned %s; values other than an Outcome are dropped", worker, type(value).__name__)
    return DONE
