"""What actions take and return.

Invariant: each job that was asked for has exactly one result, in words that may be shown as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from jobkit.admin.views import Count, JobSummary
from jobkit.jobs import JobState

__all__ = [
    "ActionResult",
    "CronChange",
    "Ids",
    "InsertPreview",
    "InsertRequest",
    "InsertResult",
    "JobAction",
    "JobEdit",
    "JobResult",
    "Matching",
    "NodeChange",
    "Outcome",
    "Preview",
    "QueueChange",
    "Selection",
    "Skip",
]

JobAction: TypeAlias = Literal["retry", "run_now", "cancel", "delete", "edit"]
Outcome: TypeAlias = Literal["done", "skipped", "conflict", "missing", "denied", "failed"]
"""skipped: the state does not allow it, or there is nothing to do; conflict: it changed, or a unique key is
held; missing: no such job (or none that the actor may see); denied: a policy forbids it for this job;
failed: what was asked for cannot be done to it.
"""


@dataclass(frozen=True, slots=True)
class Ids:
    """Exactly these jobs."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """All jobs that match, up to `max_id` (None: the highest id at this moment), whatever is inserted
    later.
    """

    query: str
    max_id: int | None = None


Selection: TypeAlias = Ids | Matching


@dataclass(frozen=True, slots=True)
class JobResult:
    """What happened to one job, as in `job 7 is already completed; nothing done`."""

    id: int
    result: Outcome
    text: str
    before: JobState | None = None
    after: JobState | None = None


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action on jobs by id, in the order of the ids."""

    action: str
    results: tuple[JobResult, ...]

    def count(self, *outcomes: Outcome) -> int:
        """How many jobs had one of these outcomes."""
        return sum(result.result in outcomes for result in self.results)

    @property
    def done(self) -> int:
        """Jobs that were changed."""
        return self.count("done")

    @property
    def ok(self) -> bool:
        """Whether every job was changed."""
        return self.done == len(self.results)


@dataclass(frozen=True, slots=True)
class JobEdit:
    """What to change; None leaves a field. `tags` replaces all; `add_tags` and `remove_tags` change some."""

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    scheduled_at: datetime | None = None
    tags: tuple[str, ...] | None = None
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertRequest:
    """A job to insert by worker name. `args` is JSON text of an object; None takes the worker's own
    default.

    `unique`: None = as the worker says, where this process knows it; False = not unique.
    """

    worker: str
    args: str = "{}"
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    scheduled_at: datetime | None = None
    schedule_in: timedelta | None = None
    tags: tuple[str, ...] = ()
    meta: Mapping[str, object] = field(default_factory=dict)
    unique: bool | None = None


@dataclass(frozen=True, slots=True)
class InsertPreview:
    """The row that would be written (redacted), and the job that already holds its unique key, if any."""

    worker: str
    queue: str
    state: JobState
    args: object
    meta: object
    tags: tuple[str, ...]
    priority: int
    max_attempts: int
    scheduled_at: datetime
    duplicate_of: int | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InsertResult:
    """The new job's id, or the one of the unique job that was there already."""

    id: int
    duplicate: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skip:
    """Why some of the selected jobs would be left alone: `212 are already completed`."""

    state: JobState | None
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would do (a dry run; nothing is written).

    `total` is all that match, `will_change` those whose state allows the action. Splits and samples come
    from the first 10,000 matches. `type_count`: ask for the count to be typed before going on.
    """

    action: JobAction
    query: str | None
    max_id: int
    total: Count
    will_change: Count
    by_state: Mapping[JobState, int]
    by_queue: Mapping[str, int]
    by_worker: Mapping[str, int]
    skips: tuple[Skip, ...]
    samples: tuple[JobSummary, ...]
    type_count: bool
    words: str
    """The action in words: `retry 412 jobs: each becomes available now`."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """A queue's settings before and after: paused, paused_until, reason, limit_override, node_limits."""

    name: str
    before: Mapping[str, object]
    after: Mapping[str, object]
    capacity_before: int
    capacity_after: int
    text: str


@dataclass(frozen=True, slots=True)
class CronChange:
    """What was done to a recurring entry; `job_id` where it was run."""

    key: str
    text: str
    job_id: int | None = None
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What was asked of a node; it obeys at its next heartbeat."""

    node: str
    text: str
