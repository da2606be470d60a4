"""What reads return: plain frozen values, redacted, ready to be drawn or printed as JSON.

Invariant: a number says how it was counted, a time is aware UTC, a text from a job has passed the redactor;
control characters are left in, since each medium shows them in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from jobkit.admin.query import Problem
from jobkit.jobs import JobState

__all__ = [
    "ActionState",
    "AttemptView",
    "AuditEntry",
    "AuditPage",
    "Count",
    "CronRun",
    "CronView",
    "ErrorView",
    "Facet",
    "FacetValue",
    "Facets",
    "JobCount",
    "JobDetail",
    "JobPage",
    "JobSummary",
    "Marker",
    "NodeView",
    "OperationResult",
    "OperationView",
    "PluginView",
    "Precision",
    "QueueNode",
    "QueueStatus",
    "QueueView",
    "Searched",
    "SortChoice",
    "StateCounts",
    "Suggestion",
    "TimelineEvent",
    "WorkerView",
]

Precision: TypeAlias = Literal["exact", "at_least", "estimate"]
Marker: TypeAlias = Literal["orphaned", "stuck", "overdue", "snoozed", "cron", "unique", "paused"]
QueueStatus: TypeAlias = Literal["running", "paused", "part paused", "no nodes", "stopping"]


@dataclass(frozen=True, slots=True)
class Count:
    """A number and how far to trust it: all of them, at least so many, or an estimate of the database."""

    value: int
    precision: Precision = "exact"

    @property
    def text(self) -> str:
        """`12,431`, `10,000+` or `≈ 5,200,000`."""
        digits = f"{self.value:,}"
        return {"exact": digits, "at_least": f"{digits}+", "estimate": f"≈ {digits}"}[self.precision]

    def __add__(self, other: Count) -> Count:
        """The sum, no more precise than its parts."""
        order: tuple[Precision, ...] = ("exact", "at_least", "estimate")
        return Count(self.value + other.value, max(self.precision, other.precision, key=order.index))


@dataclass(frozen=True, slots=True)
class StateCounts:
    """Jobs by state (every state is a key). `of_searched`: only of the rows that were searched."""

    counts: Mapping[JobState, Count]
    at: datetime
    searched: Searched | None = None

    @property
    def total(self) -> Count:
        """All states together."""
        return sum(self.counts.values(), Count(0))


# -- jobs --


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One job as a list shows it. `args` is one redacted line of at most 120 characters."""

    id: int
    state: JobState
    queue: str
    worker: str
    args: str
    tags: tuple[str, ...]
    priority: int
    attempt: int
    max_attempts: int
    node: str | None
    error: str
    """First line of the last error; empty without one."""
    inserted_at: datetime
    scheduled_at: datetime
    attempted_at: datetime | None
    finished_at: datetime | None
    """completed_at, discarded_at or cancelled_at, whichever the state has."""
    duration: timedelta | None
    """Of the last run: until it finished, or until now while executing."""
    wait: timedelta | None
    """From being due to the last start."""
    cron: str | None
    snoozed: int
    markers: tuple[Marker, ...]

    @property
    def state_time(self) -> datetime:
        """The time that matters in this state: finished, started, or due."""
        if self.finished_at is not None:
            return self.finished_at
        if self.state is JobState.EXECUTING and self.attempted_at is not None:
            return self.attempted_at
        return self.scheduled_at


@dataclass(frozen=True, slots=True)
class Searched:
    """How far a search in slices has looked: `rows` of them, back to that job and its time of insertion."""

    rows: int
    to_id: int
    to_time: datetime | None
    complete: bool
    """True: nothing further is left to be searched."""


@dataclass(frozen=True, slots=True)
class SortChoice:
    """One order of the list. Not `enabled`: no index serves it under the current filter, `reason` says
    so.
    """

    name: str
    title: str
    descending: bool
    """The direction that it has when none is given."""
    enabled: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page. `next` and `previous` are cursors, None at the ends. With problems there are no jobs."""

    jobs: tuple[JobSummary, ...]
    next: str | None
    previous: str | None
    query: str
    """The query as it was understood, printed; give this one to links and bulk actions."""
    sort: str
    descending: bool
    problems: tuple[Problem, ...] = ()
    note: str = ""
    """Why the page is another one than was asked for (a cursor of another filter)."""
    searched: Searched | None = None
    """Set where the filter had to be searched in slices; `next` then also means "keep searching"."""
    max_id: int = 0
    """The highest id there is: the frozen bound of a bulk action that starts from this page."""


@dataclass(frozen=True, slots=True)
class JobCount:
    """How many jobs match. `searched` set: only so many rows were looked at."""

    count: Count
    searched: Searched | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorView:
    """One stored failure, redacted again. `text` is the whole; `traceback` what follows the first line."""

    attempt: int
    at: datetime | None
    cls: str
    message: str
    traceback: str
    text: str


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One run: what is known of it. `started_at` and `node` are kept of the last run only."""

    attempt: int
    outcome: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    node: str | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One point of the job's story, in order of time; `gap` is the time since the event before."""

    at: datetime
    kind: str
    """inserted, scheduled, started, failed, retry, completed, discarded, cancelled, or an operator's
    action.
    """
    text: str
    gap: timedelta | None = None


@dataclass(frozen=True, slots=True)
class ActionState:
    """Whether this actor may do this to this job now. Not `permitted`: do not offer it at all."""

    action: str
    permitted: bool
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobDetail:
    """One job with all that is stored of it, redacted. Errors: newest first."""

    job: JobSummary
    args: object
    meta: object
    args_size: int
    """Bytes of JSON text as stored."""
    errors: tuple[ErrorView, ...]
    attempts: tuple[AttemptView, ...]
    timeline: tuple[TimelineEvent, ...]
    actions: Mapping[str, ActionState]
    activity: tuple[AuditEntry, ...]
    unique_key: str | None
    timeout: timedelta | None
    """The worker's, as nodes published it; None if unknown or unlimited."""


@dataclass(frozen=True, slots=True)
class FacetValue:
    """One value with how often the sample has it, and the term that filters by it."""

    value: str
    count: int
    term: str


@dataclass(frozen=True, slots=True)
class Facet:
    """One qualifier's ten most frequent values."""

    qualifier: str
    values: tuple[FacetValue, ...]


@dataclass(frozen=True, slots=True)
class Facets:
    """All facets, counted in the newest `sample` matches. `whole`: that was all of them."""

    facets: tuple[Facet, ...]
    sample: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One completion: `text` replaces the characters `start..start+length` of the query."""

    text: str
    start: int
    length: int
    kind: Literal["qualifier", "value"]
    hint: str = ""


# -- queues and nodes --


@dataclass(frozen=True, slots=True)
class QueueNode:
    """A queue on one live node. `limit` is the one in force there; `override` where the row says another."""

    node: str
    limit: int
    override: int | None
    executing: int
    paused: bool
    """The node itself was told to pause or drain."""
    started_at: datetime
    heartbeat_at: datetime


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue: its settings, what waits in it, and who works on it. Sorted by trouble where many are listed.

    `oldest_available_at`: when the longest waiting available job was due.
    """

    name: str
    status: QueueStatus
    paused: bool
    paused_until: datetime | None
    reason: str
    paused_by: str | None
    limit_override: int | None
    limit: int
    """Sum of the limits in force on live nodes that are not paused."""
    executing: int
    available: Count
    scheduled: Count
    retryable: Count
    oldest_available_at: datetime | None
    oldest_age: timedelta | None
    nodes: tuple[QueueNode, ...]
    last_node: str | None = None
    """Where no node works on it: the last known node that did."""

    @property
    def utilisation(self) -> float | None:
        """executing / limit; None without capacity."""
        return self.executing / self.limit if self.limit else None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. `stale`: its row was marked lost, or its last beat lies more than twice `dead_after` back by our
    clock.
    """

    node: str
    queues: Mapping[str, int]
    executing: int
    capacity: int
    started_at: datetime
    heartbeat_at: datetime
    heartbeat_age: timedelta
    lost_at: datetime | None
    stale: bool
    paused: bool
    draining: bool
    clock_skew: timedelta | None
    """By how much at least the node's clock is ahead of ours; None where one look cannot tell."""
    info: Mapping[str, object]
    orphans: int
    """Executing jobs that it left; 0 for live nodes."""


# -- cron, workers, plugins --


@dataclass(frozen=True, slots=True)
class CronRun:
    """One recorded run. `state` is None where the job is gone or none was made."""

    run_at: datetime
    inserted_at: datetime
    job_id: int | None
    state: JobState | None
    duration: timedelta | None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def lateness(self) -> timedelta:
        """How long after its time it was enqueued."""
        return self.inserted_at - self.run_at


@dataclass(frozen=True, slots=True)
class CronView:
    """A recurring entry. `next_runs` is empty where it is paused, invalid, or has no further run."""

    key: str
    cron: str
    timezone: str
    words: str
    worker: str
    status: Literal["active", "paused", "missed", "invalid"]
    since: datetime
    paused_reason: str
    paused_by: str | None
    last_run_at: datetime | None
    last_run: CronRun | None
    next_runs: tuple[datetime, ...]
    missed_at: datetime | None
    """The due instant that has no run."""
    problem: str
    """What is wrong with the expression or zone."""
    history: tuple[CronRun, ...]
    """Newest first."""
    origin: str | None
    """Which code declares it; None where this process knows none."""

    @property
    def next_run(self) -> datetime | None:
        """The first of `next_runs`."""
        return self.next_runs[0] if self.next_runs else None


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker by name: what nodes publish of it, and whether this process registers it.

    `live`: published within the last two minutes. `config`: queue, max_attempts, timeout, ..., as published.
    """

    name: str
    seen_at: datetime | None
    live: bool
    registered: bool
    config: Mapping[str, object]
    missing: bool = False
    """Jobs wait for it, but no live node publishes it."""
    error: str = ""
    """Why this process cannot import it."""


@dataclass(frozen=True, slots=True)
class PluginView:
    """A plugin as this process found it, and its last ticks on each live node."""

    name: str
    distribution: str | None
    version: str | None
    status: str
    error: str
    hooks: tuple[str, ...]
    settings: Mapping[str, object]
    ticks: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """node -> service -> what the node says of it (`ticked_at`, `failures`, `error`)."""


# -- operations and audit --


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What a bulk operation says of one job that it left alone."""

    id: int
    result: str
    text: str


@dataclass(frozen=True, slots=True)
class OperationView:
    """A bulk operation. `total` is what matched when it began. `results`: the first 100 skipped or
    failed.
    """

    id: int
    actor: str
    action: str
    params: Mapping[str, object]
    query: str | None
    max_id: int | None
    state: Literal["pending", "running", "done", "cancelled", "failed"]
    total: Count | None
    done: int
    skipped: int
    failed: int
    results: tuple[OperationResult, ...]
    skips: Mapping[str, int]
    """Why jobs were skipped, with how often."""
    error: str
    cancel_requested: bool
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    @property
    def handled(self) -> int:
        """Jobs looked at so far."""
        return self.done + self.skipped + self.failed

    @property
    def open(self) -> bool:
        """Whether there is still something to do."""
        return self.state in ("pending", "running")

    @property
    def rate(self) -> float | None:
        """Jobs a second so far."""
        seconds = ((self.finished_at or self.updated_at) - self.created_at).total_seconds()
        return self.handled / seconds if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One audit row."""

    id: int
    at: datetime
    actor: str
    via: str
    action: str
    target_kind: str
    ids: tuple[str, ...]
    count: int
    query: str | None
    before: Mapping[str, object]
    after: Mapping[str, object]
    result: str
    reason: str
    operation_id: int | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Audit rows, newest first; `next` is the id to continue below, None at the end."""

    entries: tuple[AuditEntry, ...]
    next: int | None
