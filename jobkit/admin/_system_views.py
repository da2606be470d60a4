"""What reads return of queues, nodes, recurring entries, workers, plugins, operations and the audit.

Public under `jobkit.admin.views`, whose invariant holds here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from jobkit.admin._counts import Count
from jobkit.jobs import JobState

__all__ = [
    "AuditEntry",
    "AuditPage",
    "CronRun",
    "CronView",
    "NodeView",
    "OperationResult",
    "OperationView",
    "PluginView",
    "QueueNode",
    "QueueStatus",
    "QueueView",
    "WorkerView",
]

QueueStatus: TypeAlias = Literal["running", "paused", "part paused", "no nodes", "stopping"]


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
class WorkerFigures:
    """How many jobs of a worker became final within a time."""

    completed: Count
    discarded: Count
    cancelled: Count


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
