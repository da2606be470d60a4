"""Jobs as values: their states, and what is asked for, written, claimed and reported.

Invariant: nothing here touches a database; each class is an immutable value that may cross threads and
processes.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, TypedDict, Unpack

from jobkit._encoding import checked_object
from jobkit._names import check_name, check_tags, clamped
from jobkit.errors import ArgsError
from jobkit.outcomes import checked_delay
from jobkit.unique import Unique

__all__ = [
    "FINAL",
    "INCOMPLETE",
    "MAX_ATTEMPTS",
    "MAX_META_BYTES",
    "MAX_PRIORITY",
    "RESERVED_META",
    "Inserted",
    "JobInfo",
    "JobOptions",
    "JobRow",
    "JobState",
    "Lease",
    "NewJob",
    "Transition",
    "Unique",
    "checked_options",
]

MAX_PRIORITY: Final = 9
MAX_ATTEMPTS: Final = 2**31 - 1
MAX_META_BYTES: Final = 64 * 1024
RESERVED_META: Final = frozenset({"unique_states", "unique_key", "secret_paths", "snoozed", "cron", "batch"})
"""Keys of `meta` that jobkit writes itself and refuses from users."""


class JobState(StrEnum):
    """The seven states of a job; the text is what the `state` column holds."""

    AVAILABLE = "available"
    SCHEDULED = "scheduled"
    EXECUTING = "executing"
    RETRYABLE = "retryable"
    COMPLETED = "completed"
    DISCARDED = "discarded"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """True for the states that no job leaves by itself."""
        return self in FINAL


FINAL: Final = frozenset({JobState.COMPLETED, JobState.DISCARDED, JobState.CANCELLED})
INCOMPLETE: Final = frozenset(JobState) - FINAL


@dataclass(frozen=True, slots=True)
class Inserted:
    """What an enqueue wrote: the job's id, or the id of the unique job that was there already."""

    id: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """One claim of one job. `node` and `at` together name the claim under any clock."""

    id: int
    node: str
    at: datetime


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The job that is running, as `perform` receives it. Times are aware and UTC.

    attempt: 1 at the first run. resources: what `jobkit_lifespan` hooks opened for this process.
    """

    id: int
    worker: str
    queue: str
    attempt: int
    max_attempts: int
    priority: int
    tags: tuple[str, ...]
    meta: Mapping[str, object] = field(hash=False)
    inserted_at: datetime
    scheduled_at: datetime
    attempted_at: datetime
    resources: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    stop_flag: Callable[[], bool] = field(default=_never, compare=False, repr=False)

    def should_stop(self) -> bool:
        """True once the job was cancelled, has timed out, or its node is shutting down. Thread-safe."""
        return self.stop_flag()


class JobOptions(TypedDict, total=False):
    """What may be said of a single job when it is enqueued; what is left out comes from its worker.

    priority: 0 (first) to 9, clamped. max_attempts: clamped to 1..2^31-1. schedule_in: timedelta or seconds.
    schedule_at: an aware datetime. tags replace, meta is merged. unique: False = not unique.
    """

    queue: str
    priority: int
    max_attempts: int
    schedule_in: timedelta | float | None
    schedule_at: datetime | None
    tags: Iterable[str] | None
    meta: Mapping[str, object] | None
    unique: Unique | Literal[False] | None


_OPTIONS: Final = tuple(JobOptions.__annotations__)
_NONE_IS_ABSENT: Final = frozenset({"tags", "meta", "unique"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job that is not enqueued yet: a worker's args as JSON text, and the options. Made by `Worker.job()`.

    Every instance is valid: construction clamps, copies, or raises ArgsError.
    """

    worker: str
    args: str
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 20
    schedule_in: timedelta | None = None
    schedule_at: datetime | None = None
    tags: tuple[str, ...] = ()
    meta: Mapping[str, object] = field(default_factory=dict, hash=False)
    unique: Unique | None = None
    secret: tuple[str, ...] = ()
    # The class that can read `args`, where it is known: equal values need its types to have one unique key.
    worker_type: type[object] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        check_name(self.worker, "worker")
        check_name(self.queue, "queue")
        put(self, "priority", clamped(self.priority, 0, MAX_PRIORITY, "priority"))
        put(self, "max_attempts", clamped(self.max_attempts, 1, MAX_ATTEMPTS, "max_attempts"))
        put(self, "schedule_in", _checked_schedule_in(self.schedule_in))
        put(self, "schedule_at", _checked_schedule_at(self.schedule_at))
        if self.schedule_in is not None and self.schedule_at is not None:
            raise ArgsError("schedule_in and schedule_at: give one of them")
        put(self, "tags", check_tags(self.tags) if self.tags != () else ())
        put(self, "meta", _checked_meta(self.meta) if self.meta != {} else {})
        put(self, "unique", _checked_unique(self.unique, self.worker_type))

    def __repr__(self) -> str:
        shown = [f"worker={self.worker!r}", f"args={self.args if not self.secret else '[redacted]'}"]
        for spec in dataclasses.fields(self)[2:-2]:
            value = getattr(self, spec.name)
            if value not in (spec.default, {}):
                shown.append(f"{spec.name}={value!r}")
        return f"NewJob({', '.join(shown)})"

    def replace(self, **options: Unpack[JobOptions]) -> NewJob:
        """A copy with other options; `meta` is merged, `tags` replace. Raises ArgsError."""
        if not options:
            return self
        changes = checked_options(options)
        if "meta" in changes:
            changes["meta"] = {**self.meta, **_checked_meta(changes["meta"])}
        if changes.get("schedule_in") is not None:
            changes.setdefault("schedule_at", None)
        elif changes.get("schedule_at") is not None:
            changes.setdefault("schedule_in", None)
        return dataclasses.replace(self, **changes)

    def tag(self, *tags: str) -> NewJob:
        """A copy with these tags appended."""
        return dataclasses.replace(self, tags=(*self.tags, *tags))

    def with_meta(self, **meta: object) -> NewJob:
        """A copy with these keys merged into `meta`."""
        return self.replace(meta=meta)


class JobRow(NamedTuple):
    """One row as it will be inserted. `args`, `meta` and `tags` are JSON text.

    A tuple, since one is made for each job of a batch: a frozen dataclass takes five times as long.
    """

    state: JobState
    queue: str
    worker: str
    args: str
    meta: str
    tags: str
    max_attempts: int
    priority: int
    inserted_at: datetime
    scheduled_at: datetime
    unique_key: str | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a job's state, as `jobkit_transitions` sees it inside the transaction."""

    id: int
    worker: str
    queue: str
    attempt: int
    old: JobState
    new: JobState
    at: datetime


def checked_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Options by their names, without those that say nothing. Raises ArgsError for a name that is none."""
    for name in options:
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"options are {', '.join(_OPTIONS)}"
            raise ArgsError(f"{name!r} is no option of a job; {hint}")
    return {
        name: value for name, value in options.items() if value is not None or name not in _NONE_IS_ABSENT
    }


def _checked_schedule_in(value: object) -> timedelta | None:
    if value is None:
        return None
    if _negative(value):
        return timedelta(0)  # a time in the past means now, however it is said
    try:
        return checked_delay(value, what="schedule_in")
    except (TypeError, ValueError) as error:
        raise ArgsError(str(error)) from None
    except OverflowError:
        raise ArgsError("schedule_in: at most 100 years are allowed") from None


def _negative(value: object) -> bool:
    if isinstance(value, timedelta):
        return value < timedelta(0)
    return type(value) in (int, float) and value < 0  # type: ignore[operator]


def _checked_schedule_at(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        found = "a date" if isinstance(value, date) else type(value).__name__
        raise ArgsError(f"schedule_at: an aware datetime is expected, not {found}")
    if value.utcoffset() is None:
        raise ArgsError(f"schedule_at: {value} has no time zone; give an aware datetime")
    return value


def _checked_meta(meta: object) -> dict[str, object]:
    copy = checked_object(meta, "meta", MAX_META_BYTES)
    reserved = RESERVED_META & copy.keys()
    if reserved:
        raise ArgsError(f"meta: {', '.join(sorted(reserved))} is written by jobkit itself; take another key")
    return copy


def _checked_unique(unique: object, worker_type: Any) -> Unique | None:
    if unique is None or unique is False:
        return None
    if not isinstance(unique, Unique):
        raise ArgsError(f"unique: a Unique or False is expected, not {type(unique).__name__}")
    if unique.keys and worker_type is not None:
        names = [spec.name for spec in dataclasses.fields(worker_type)]
        for key in unique.keys:
            if key not in names:
                raise ArgsError(f"unique: {key!r} is no arg; args are {', '.join(names) or 'none'}")
    return unique
