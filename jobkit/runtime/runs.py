"""One run of one job, in memory.

Invariant: a run is known by its lease, never by its job's id, and ends exactly once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobkit.jobs import JobInfo, Lease
    from jobkit.runtime.producer import Producer
    from jobkit.storage.base import ClaimedJob
    from jobkit.workers import Worker

__all__ = ["Run", "StopFlag", "Why"]


class Why(StrEnum):
    """Who asked a run to end before it ended by itself."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"


class StopFlag:
    """What `JobInfo.should_stop()` reads: true once the run ought to end."""

    __slots__ = ("up",)

    def __init__(self) -> None:
        self.up = False

    def __call__(self) -> bool:
        return self.up


class Run:
    """A claimed job on its way through a runner. Owned by the event loop.

    `started` and `deadline` are monotonic seconds; None before job code runs and without a limit. `handle`
    belongs to the runner. `why` is set once, by whoever asks the run to end first; it decides what is
    recorded.
    """

    __slots__ = (
        "claimed",
        "deadline",
        "ended",
        "flag",
        "handle",
        "job",
        "lease",
        "number",
        "producer",
        "started",
        "timeout",
        "warned",
        "why",
        "worker",
    )

    def __init__(
        self,
        claimed: ClaimedJob,
        lease: Lease,
        worker: Worker,
        job: JobInfo,
        flag: StopFlag,
        producer: Producer | None,
        timeout: float | None,
    ) -> None:
        self.claimed = claimed
        self.lease = lease
        self.worker = worker
        self.job = job
        self.flag = flag
        self.producer = producer
        self.timeout = timeout
        self.number = 0
        self.started: float | None = None
        self.deadline: float | None = None
        self.why: Why | None = None
        self.handle: object = None
        self.ended = False
        self.warned = False

    def lasted(self, now: float) -> float:
        """For how many milliseconds the job has run at this monotonic time; 0 before it began."""
        return 0.0 if self.started is None else (now - self.started) * 1000

    def __repr__(self) -> str:
        return f"job {self.lease.id} ({self.claimed.worker})"
