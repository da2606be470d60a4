"""From a job that was asked for to the row that will be inserted: pure, no database.

Invariant: two equal requests made in one period have the same unique key, whoever makes them and however.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from jobkit.errors import ArgsError
from jobkit.jobs import JobRow, JobState, NewJob, Unique
from jobkit.outcomes import MAX_DELAY
from jobkit.workers import FunctionWorker, Worker, arg_names, decode, encode

__all__ = ["new_job", "prepare"]

_LAST_YEAR: Final = 9000
_TEXT: Final = msgspec.json.Encoder().encode


def new_job(job: NewJob | Worker) -> NewJob:
    """The job value of either; raises ArgsError for anything else."""
    if isinstance(job, NewJob):
        return job
    if isinstance(job, Worker):
        return job.job()
    raise ArgsError(f"a worker's instance or a NewJob is expected, not {_described(job)}")


def prepare(
    job: NewJob | Worker, now: datetime, *, system_meta: Mapping[str, object] | None = None
) -> JobRow:
    """The row to insert. `now`: aware, from the clock. system_meta: reserved keys, from jobkit's own callers.

    A schedule time in the past means now. Raises ArgsError for args that do not survive JSON and for a
    schedule time more than 100 years away.
    """
    if isinstance(job, Worker) and not system_meta:
        return _plain_row(job, now)
    new = new_job(job)
    at = _scheduled_at(new, now)
    key = None
    if new.unique is not None:
        key = new.unique.key(new.worker, new.queue, _values(new.worker_type, new.args), now)
    return JobRow(
        state=JobState.SCHEDULED if at > now else JobState.AVAILABLE,
        queue=new.queue,
        worker=new.worker,
        args=new.args,
        meta=_meta({**new.meta, **(system_meta or {})}, new.unique, key, new.secret),
        tags=_TEXT(new.tags).decode(),
        max_attempts=new.max_attempts,
        priority=new.priority,
        inserted_at=now,
        scheduled_at=at,
        unique_key=key,
    )


def _plain_row(worker: Worker, now: datetime) -> JobRow:
    # Most jobs have no options: no NewJob in between makes a large batch twice as fast.
    config = worker.__jobkit__
    args = encode(worker)
    key = None
    if config.unique is not None:
        key = config.unique.key(config.name, config.queue, _values(type(worker), args), now)
    return JobRow(
        JobState.AVAILABLE,
        config.queue,
        config.name,
        args,
        _meta({}, config.unique, key, config.secret),
        "[]",
        config.max_attempts,
        config.priority,
        now,
        now,
        key,
    )


def _scheduled_at(job: NewJob, now: datetime) -> datetime:
    if job.schedule_in is not None:
        return now + job.schedule_in
    if job.schedule_at is None:
        return now
    at = _utc(job.schedule_at)
    if at > now + MAX_DELAY:
        raise ArgsError(f"schedule_at: {job.schedule_at} lies more than 100 years ahead")
    return max(at, now)


def _utc(at: datetime) -> datetime:
    try:
        utc = at.astimezone(UTC)
    except OverflowError:  # within a day of the first or the last instant there is
        return datetime(1 if at.year < _LAST_YEAR else _LAST_YEAR, 1, 1, tzinfo=UTC)
    # A plain datetime, whatever subclass was given: drivers know no other.
    return datetime.combine(utc.date(), utc.time(), UTC)


def _values(cls: type[object] | None, args: str) -> Mapping[str, object]:
    """The args as values of their types; as JSON's where nothing here knows the worker."""
    if cls is not None and issubclass(cls, Worker):
        instance = decode(cls, args)
        return {name: getattr(instance, name) for name in arg_names(cls)}
    values: dict[str, object] = msgspec.json.decode(args, type=dict[str, object])
    return values


def _meta(given: dict[str, object], unique: Unique | None, key: str | None, secret: tuple[str, ...]) -> str:
    if unique is not None:
        given |= {"unique_states": unique.states, "unique_key": key}
    if secret:
        given["secret_paths"] = secret
    return _TEXT(given).decode() if given else "{}"


def _described(job: object) -> str:
    if isinstance(job, type) and issubclass(job, Worker):
        return f"the class {job.__name__}; call it with its args"
    if isinstance(job, FunctionWorker):
        return f"the function {job.worker.__jobkit__.name} itself; call it with its args"
    return f"{type(job).__name__} {job!r:.100}"
