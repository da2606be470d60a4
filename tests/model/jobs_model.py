"""A plain model of the queue: what the engine must agree with, in dictionaries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from jobkit.jobs import FINAL, JobState, Lease

SKEW = timedelta(seconds=1)


@dataclass(slots=True)
class ModelJob:
    """One job as it should stand in the database."""

    id: int
    state: JobState
    max_attempts: int
    priority: int
    scheduled_at: datetime
    key: str | None
    states: str
    """Which states hold the key: "incomplete" or "all"."""
    attempt: int = 0
    lease: Lease | None = None
    holds_key: bool = False
    snoozed: int = 0
    errors: int = 0
    final_at: datetime | None = None

    def finish(self, state: JobState, at: datetime) -> None:
        """Enter a final state: an `incomplete` key is released."""
        self.state, self.final_at, self.lease = state, at, None
        if self.states != "all":
            self.holds_key = False

    def reopen(self, state: JobState, at: datetime | None = None) -> None:
        """Go back to a state in which the job will run."""
        self.state, self.final_at, self.lease = state, None, None
        if at is not None:
            self.scheduled_at = at


@dataclass(slots=True)
class Model:
    """All jobs, and which nodes live."""

    jobs: dict[int, ModelJob] = field(default_factory=dict)
    live: dict[str, str] = field(default_factory=dict)
    """name of a machine -> the id of its node."""
    paused: bool = False

    def holder(self, key: str) -> ModelJob | None:
        """The job that holds a unique key."""
        return next((job for job in self.jobs.values() if job.holds_key and job.key == key), None)

    def executing(self, lease: Lease) -> ModelJob | None:
        """The job that this lease still holds."""
        job = self.jobs.get(lease.id)
        return job if job is not None and job.state is JobState.EXECUTING and job.lease == lease else None

    def claimable(self, at: datetime, limit: int) -> list[ModelJob]:
        """What a claim must win, in order."""
        due = [j for j in self.jobs.values() if j.state is JobState.AVAILABLE and j.scheduled_at <= at + SKEW]
        return sorted(due, key=lambda j: (j.priority, j.scheduled_at, j.id))[:limit]

    def stageable(self, now: datetime) -> list[ModelJob]:
        """What staging must make available."""
        waiting = (JobState.SCHEDULED, JobState.RETRYABLE)
        return [j for j in self.jobs.values() if j.state in waiting and j.scheduled_at <= now]

    def orphans(self) -> list[ModelJob]:
        """Executing jobs whose node is dead."""
        alive = set(self.live.values())
        running = [j for j in self.jobs.values() if j.state is JobState.EXECUTING]
        return [j for j in running if j.lease is not None and j.lease.node not in alive]

    def prunable(self, before: datetime) -> list[ModelJob]:
        """Final jobs that became so long enough ago."""
        return [
            j
            for j in self.jobs.values()
            if j.state in FINAL and j.final_at is not None and j.final_at < before
        ]
