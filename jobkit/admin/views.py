"""What reads return: plain frozen values, redacted, ready to be drawn or printed as JSON.

Invariant: a number says how it was counted, a time is aware UTC, a text from a job has passed the redactor;
control characters are left in, since each medium shows them in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from jobkit.admin._counts import Count, Precision
from jobkit.admin._system_views import (
    AuditEntry,
    AuditPage,
    CronRun,
    CronView,
    NodeView,
    OperationResult,
    OperationView,
    PluginView,
    QueueNode,
    QueueStatus,
    QueueView,
    WorkerFigures,
    WorkerView,
)
from jobkit.admin.query import Problem
from jobkit.jobs import JobState

__all__ = [
    "ActionState",
    "AttemptView",
    "AuditEntry",
    "AuditPage",
    "ChangeCursor",
    "ChangePage",
    "Count",
    "CronRun",
    "CronView",
    "ErrorView",
    "Facet",
    "FacetValue",
    "Facets",
    "JobChange",
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
    "WorkerFigures",
    "WorkerView",
]

Marker: TypeAlias = Literal["orphaned", "stuck", "overdue", "snoozed", "cron", "unique", "paused"]


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


ChangeCursor: TypeAlias = Mapping[str, tuple[datetime, int]]
"""How far the changes of each kind were read: the time and the job of the last one."""


@dataclass(frozen=True, slots=True)
class JobChange:
    """The last change of a job, which its state tells."""

    at: datetime
    job: JobSummary


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Changes in order of time. `next`: where to go on; None where nothing more had happened."""

    changes: tuple[JobChange, ...]
    next: ChangeCursor | None
    note: str = ""
    """What is left out, if anything is."""
