"""Test helpers: run due jobs here and now, run one worker, look at what was enqueued, move the clock.

Tests run in manual mode: an insert writes a row and nothing executes until the test says so. Invariant: every
helper takes the same way through encoding, claiming and recording as a node does, so that a test sees the
states of production; and given `conn`, it works inside that transaction and commits nothing.

The plain functions may be called from anywhere: where an event loop is running, they do their work on another
loop in a thread and block until it is done. The `a` twins run on the loop they are awaited on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from jobkit._testing_clock import FrozenClock
from jobkit._testing_drain import Drain, DrainOptions
from jobkit._testing_find import Found, find
from jobkit._testing_match import ANY, EnqueuedJob, Expected
from jobkit._testing_perform import perform
from jobkit._testing_reach import AnyConnection, SyncConnection, core_of, reaching, run_sync
from jobkit.core import Core, current_core, reset_current
from jobkit.inserting import Job
from jobkit.outcomes import Outcome
from jobkit.runtime.body import forget_warnings
from jobkit.workers import FunctionWorker, Worker, encode, worker_of

if TYPE_CHECKING:
    from jobkit.app import Jobkit

__all__ = [
    "ANY",
    "EnqueuedJob",
    "FrozenClock",
    "adrain_jobs",
    "all_enqueued",
    "aperform_job",
    "assert_enqueued",
    "drain_jobs",
    "perform_job",
    "refute_enqueued",
    "reset",
]

WorkerLike: TypeAlias = "type[Worker] | FunctionWorker[..., Any] | Worker | str"


# -- running


def drain_jobs(
    app: Jobkit | Core,
    queue: str | None = None,
    with_scheduled: bool = False,
    with_recursion: bool = True,
    with_safety: bool = True,
    limit: int | None = None,
    conn: AnyConnection | None = None,
) -> Counter[str]:
    """Run the jobs that are due, one after the other, until none is left; returns how many ended in which state.

    The result counts runs by the state they led to: `{"completed": 3, "retryable": 1}`; a snoozed run counts as
    "scheduled". A state that no run led to counts 0.

    - queue: only this one; left out, all of them. Pauses and limits are a node's business: a drain runs paused
      queues too.
    - with_scheduled: run later jobs, retries included, as if they were due, the earliest first.
    - with_recursion: also run what those jobs enqueue. False: only what was due at the beginning.
    - with_safety: record failures and go on. False: the first one is recorded and then raised.
    - limit: at most so many runs. Left out, a drain that has run 10,000 jobs and finds more raises JobkitError.
    - conn: a Session or Connection: jobs are claimed, run and recorded inside its transaction, which stays open;
      what they enqueue through the app joins it. The async twin takes AsyncSession and AsyncConnection too.

    Jobs whose worker the app does not know are discarded at once. Raises NotMigrated without tables.
    """
    options = DrainOptions(queue, with_scheduled, with_recursion, with_safety, limit)
    return run_sync(lambda: _drain(core_of(app), options, conn))


async def adrain_jobs(
    app: Jobkit | Core,
    queue: str | None = None,
    with_scheduled: bool = False,
    with_recursion: bool = True,
    with_safety: bool = True,
    limit: int | None = None,
    conn: AnyConnection | None = None,
) -> Counter[str]:
    """`drain_jobs` on the running loop; async jobs share it with the test."""
    options = DrainOptions(queue, with_scheduled, with_recursion, with_safety, limit)
    return await _drain(core_of(app), options, conn)


async def _drain(core: Core, options: DrainOptions, conn: AnyConnection | None) -> Counter[str]:
    async with reaching(core, conn) as reach:
        return await Drain(core, reach, options).run()


def perform_job(
    worker: Job,
    attempt: int = 1,
    *,
    app: Jobkit | Core | None = None,
    id: int = 1,
    resources: Mapping[str, object] | None = None,
    conn: AnyConnection | None = None,
) -> Outcome:
    """Run one job, given as a worker's value (`SendEmail(user_id=1)`) or a NewJob, and return its outcome.

    Args are encoded and decoded as those of a stored job, hooks, lifespans, middleware and the timeout apply, and no
    row is read or written. `None` comes back as `Done()`; a raised outcome is returned; whatever else the job raises
    is raised here, a timeout as TimeoutError, and args that do not survive as ArgsError.

    - attempt: which run of the job it is, from 1. id: what `job.id` says.
    - app: whose plugins and clock apply; left out, the current one's.
    - resources: what `job.resources` has beside, or instead of, what lifespans open.
    - conn: what the job enqueues through the app joins this transaction; without it, the job's own enqueueing is as
      real as ever.
    """
    core = current_core() if app is None else core_of(app)
    return run_sync(lambda: perform(core, worker, attempt=attempt, job_id=id, resources=resources, conn=conn))


async def aperform_job(
    worker: Job,
    attempt: int = 1,
    *,
    app: Jobkit | Core | None = None,
    id: int = 1,
    resources: Mapping[str, object] | None = None,
    conn: AnyConnection | None = None,
) -> Outcome:
    """`perform_job` on the running loop."""
    core = current_core() if app is None else core_of(app)
    return await perform(core, worker, attempt=attempt, job_id=id, resources=resources, conn=conn)


# -- looking


def all_enqueued(
    app: Jobkit | Core,
    worker: WorkerLike | None = None,
    *,
    args: Mapping[str, object] | None = None,
    queue: str | None = None,
    meta: Mapping[str, object] | None = None,
    tags: Iterable[str] | None = None,
    scheduled_at: datetime | None = None,
    conn: SyncConnection | None = None,
) -> list[EnqueuedJob]:
    """The jobs that will still run (available, scheduled, retryable) and match, by id.

    - worker: a class, an `@worker` function, a name, or a worker's value (`SendEmail(user_id=1)`: its args count).
    - args, meta: matched in part, at every depth; lists must be equally long; `ANY` matches whatever is there.
      Values are compared as they are stored: a UUID or datetime matches its text.
    - tags: the job has all of these. scheduled_at: within one second.
    - conn: a Session or Connection whose transaction is looked into.
    """
    return _found(app, worker, args, queue, meta, tags, scheduled_at, conn).matching


def assert_enqueued(
    app: Jobkit | Core,
    worker: WorkerLike | None = None,
    *,
    args: Mapping[str, object] | None = None,
    queue: str | None = None,
    meta: Mapping[str, object] | None = None,
    tags: Iterable[str] | None = None,
    scheduled_at: datetime | None = None,
    conn: SyncConnection | None = None,
) -> None:
    """Assert that a job which will still run matches, as `all_enqueued` does; else AssertionError shows the others."""
    __tracebackhide__ = True
    found = _found(app, worker, args, queue, meta, tags, scheduled_at, conn)
    if not found.matching:
        raise AssertionError(found.missing())


def refute_enqueued(
    app: Jobkit | Core,
    worker: WorkerLike | None = None,
    *,
    args: Mapping[str, object] | None = None,
    queue: str | None = None,
    meta: Mapping[str, object] | None = None,
    tags: Iterable[str] | None = None,
    scheduled_at: datetime | None = None,
    conn: SyncConnection | None = None,
) -> None:
    """Assert that no job which will still run matches; else AssertionError shows those that do."""
    __tracebackhide__ = True
    found = _found(app, worker, args, queue, meta, tags, scheduled_at, conn)
    if found.matching:
        raise AssertionError(found.unwanted())


def _found(
    app: Jobkit | Core,
    worker: WorkerLike | None,
    args: Mapping[str, object] | None,
    queue: str | None,
    meta: Mapping[str, object] | None,
    tags: Iterable[str] | None,
    scheduled_at: datetime | None,
    conn: SyncConnection | None,
) -> Found:
    if isinstance(worker, Worker):
        if args is not None:
            raise TypeError("args: give them in the worker's value or by name, not both")
        args = msgspec.json.decode(encode(worker), type=dict[str, object])
    expected = Expected(_name(worker), args, queue, meta, tags, scheduled_at)
    return find(core_of(app), expected, conn)


def _name(worker: WorkerLike | None) -> str | None:
    if worker is None or isinstance(worker, str):
        return worker
    cls = type(worker) if isinstance(worker, Worker) else worker_of(worker)
    return cls.__jobkit__.name


# -- between tests


def reset() -> None:
    """Forget what the process remembers between tests: the current app (given to `configure`, or made from file and
    environment, whose connections are closed), and which warnings were already given once.

    Nothing else is shared: two apps have nothing in common, so tests that make an app each may run side by side.
    """
    reset_current()
    forget_warnings()
