"""Running one job without a database.

Invariant: the args take the way that a stored job's take (hooks, encoding, decoding), and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from jobkit._testing_failed import outcome_or_raise
from jobkit._testing_reach import AnyConnection, reaching
from jobkit.core import Core
from jobkit.errors import ArgsError
from jobkit.inserting import Job, rows_of
from jobkit.jobs import JobRow
from jobkit.outcomes import Outcome
from jobkit.runtime.executor import run_claimed
from jobkit.runtime.lifespans import Lifespans
from jobkit.storage.base import ClaimedJob
from jobkit.workers import Worker

__all__ = ["perform"]


async def perform(
    core: Core,
    job: Job,
    *,
    attempt: int,
    job_id: int,
    resources: Mapping[str, object] | None,
    conn: AnyConnection | None,
) -> Outcome:
    """See `jobkit.testing.perform_job`."""
    row = rows_of(core, [job])[0]
    cls = _class_of(core, job, row.worker)
    async with AsyncExitStack() as stack:
        if conn is not None:
            await stack.enter_async_context(reaching(core, conn))
        lifespans = Lifespans(core)
        try:
            await lifespans.open()
            given = {**lifespans.resources, **(resources or {})}
            ended = await run_claimed(core, _claimed(core, row, attempt, job_id), worker=cls, resources=given)
        finally:
            await lifespans.close()
    return outcome_or_raise(ended)


def _class_of(core: Core, job: Job, name: str) -> type[Worker]:
    cls = type(job) if isinstance(job, Worker) else job.worker_type
    if isinstance(cls, type) and issubclass(cls, Worker):
        return cls
    known = core.registry.resolve(name)
    if known is None:
        raise ArgsError(
            f"the app knows no worker {name!r}; give it to the app, or the worker's own value here"
        )
    return known


def _claimed(core: Core, row: JobRow, attempt: int, job_id: int) -> ClaimedJob:
    """The row as a claim of its `attempt`-th run would return it."""
    if attempt < 1:
        raise ArgsError(f"attempt: the first run is 1, not {attempt}")
    return ClaimedJob(
        id=job_id,
        worker=row.worker,
        queue=row.queue,
        args=row.args,
        meta=row.meta,
        tags=row.tags,
        attempt=attempt,
        max_attempts=max(row.max_attempts, attempt),
        priority=row.priority,
        inserted_at=row.inserted_at,
        scheduled_at=row.scheduled_at,
        node="perform_job",
        attempted_at=core.clock.now(),
    )
