"""The typed events that observers of `jobkit_event` receive.

Invariant: an event says what has happened and is never a way to change it. Fields are plain values; text
that may quote user data (`error`) is redacted already, durations are milliseconds, `at` is an aware UTC
instant. New events and new fields with defaults may come with any release; none is taken away.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from jobkit.jobs import JobState

__all__ = [
    "CronFailed",
    "CronInserted",
    "CronSkipped",
    "DatabaseLost",
    "DatabaseRestored",
    "Event",
    "JobEvent",
    "JobFailed",
    "JobGivenBack",
    "JobLeaseLost",
    "JobOverrunning",
    "JobStarted",
    "JobStopped",
    "JobsRescued",
    "ListenerLost",
    "ListenerRestored",
    "LoopBlocked",
    "NodeEvent",
    "NodeFenced",
    "NodeLost",
    "NodeStarted",
    "NodeStopped",
    "NodeStopping",
    "PluginFailed",
    "PluginTicked",
    "WakeFailed",
    "WakeSent",
    "WorkerUnknown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events: when it happened. `name` is its dotted name in logs (`job.start`)."""

    name: ClassVar[str] = "event"
    at: datetime

    def as_dict(self) -> dict[str, object]:
        """The fields by name, in order, values untouched."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


# -- jobs --


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(Event):
    """Base of what happens to one run of one job. `attempt` counts from 1."""

    id: int
    worker: str
    queue: str
    attempt: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(JobEvent):
    """`perform` is about to run. `queue_ms`: from scheduled_at to the claim."""

    name: ClassVar[str] = "job.start"
    queue_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStopped(JobEvent):
    """A run ended without an error and its result stands in the database.

    `outcome`: `completed`, `snoozed`, `cancelled` or `interrupted` (given back by a shutdown).
    """

    name: ClassVar[str] = "job.stop"
    outcome: str
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(JobEvent):
    """A run ended with an error and its result stands in the database.

    `state` is `retryable` (then `retry_at` says when) or `discarded`; `error` is the stored text.
    """

    name: ClassVar[str] = "job.exception"
    state: JobState
    error: str
    duration_ms: float
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLeaseLost(JobEvent):
    """A run ended after its lease was lost (cancelled, rescued, deleted): its result was not written."""

    name: ClassVar[str] = "job.lease_lost"
    outcome: str
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOverrunning(JobEvent):
    """A run was told to stop (`why`: `timeout`, `cancelled`, `shutdown`) and has not: row and slot stay."""

    name: ClassVar[str] = "job.overrunning"
    why: str
    running_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGivenBack(JobEvent):
    """A claim was undone; the attempt does not count. `why`: `unknown_worker`, `shutdown`, `stray`."""

    name: ClassVar[str] = "job.given_back"
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRescued(Event):
    """Executing jobs without a live owner were taken back: `available` run again, `discarded` could not."""

    name: ClassVar[str] = "jobs.rescued"
    available: int
    discarded: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUnknown(Event):
    """This node met a worker name that it does not know, or cannot import (`error`); it skips the name."""

    name: ClassVar[str] = "worker.unknown"
    worker: str
    node: str
    error: str = ""


# -- plugins --


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTicked(Event):
    """A service finished a round and changed `count` rows; rounds that changed none send no event."""

    name: ClassVar[str] = "plugin.tick"
    plugin: str
    service: str
    count: int
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFailed(Event):
    """A plugin's service or hook raised. `where` is the service's or the hook's name."""

    name: ClassVar[str] = "plugin.failed"
    plugin: str
    where: str
    error: str


# -- nodes --


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent(Event):
    """Base of what happens to a node."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted(NodeEvent):
    """The node is registered and its producers claim."""

    name: ClassVar[str] = "node.start"
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStopping(NodeEvent):
    """The node claims nothing any more; running jobs have `grace` seconds."""

    name: ClassVar[str] = "node.stopping"
    grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStopped(NodeEvent):
    """The node has recorded what it ran and given back what it did not."""

    name: ClassVar[str] = "node.stop"
    given_back: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(NodeEvent):
    """Another node's row had not changed for too long: it was declared dead here."""

    name: ClassVar[str] = "node.lost"
    silent_for: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFenced(NodeEvent):
    """This node found itself declared dead: its runs were aborted and it goes on as `renewed`."""

    name: ClassVar[str] = "node.fenced"
    renewed: str
    aborted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(NodeEvent):
    """The node's event loop has not turned for `seconds`; `job` names what blocks it, if known."""

    name: ClassVar[str] = "node.loop_blocked"
    seconds: float
    job: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLost(NodeEvent):
    """The node cannot reach the database: jobs run on, results wait, nothing is claimed."""

    name: ClassVar[str] = "node.database_lost"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseRestored(NodeEvent):
    """The node reaches the database again, after `seconds`."""

    name: ClassVar[str] = "node.database_restored"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLost(NodeEvent):
    """The notification connection is gone or half-open; polling goes on at its faster pace."""

    name: ClassVar[str] = "listener.lost"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerRestored(NodeEvent):
    """Notifications arrive again."""

    name: ClassVar[str] = "listener.restored"


# -- cron and waking --


@dataclass(frozen=True, slots=True, kw_only=True)
class CronInserted(Event):
    """A due run was recorded and its job inserted; `duplicate`: a unique job was there already."""

    name: ClassVar[str] = "cron.inserted"
    key: str
    run_at: datetime
    job_id: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSkipped(Event):
    """`missed` due runs of an entry lay too far back to be caught up, the last one at `run_at`."""

    name: ClassVar[str] = "cron.skipped"
    key: str
    run_at: datetime
    missed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CronFailed(Event):
    """An entry's run could not be inserted (`error`); nothing was recorded for it and it is tried again."""

    name: ClassVar[str] = "cron.failed"
    key: str
    run_at: datetime
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeSent(Event):
    """Queues have committed work: local producers woke and, where `notified`, other processes were told."""

    name: ClassVar[str] = "wake.sent"
    queues: tuple[str, ...]
    notified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeFailed(Event):
    """A wake-up could not be confirmed or sent; polling will find the rows."""

    name: ClassVar[str] = "wake.failed"
    error: str
