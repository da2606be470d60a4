"""Jobs as values: their states, and what is asked for, written, claimed and reported.

Invariant: nothing here touches a database; each class is an immutable value that may cross threads and processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

__all__ = ["FINAL", "INCOMPLETE", "Inserted", "JobRow", "JobState", "Lease", "Transition"]


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


@dataclass(frozen=True, slots=True)
class JobRow:
    """One row as it will be inserted. `args`, `meta` and `tags` are JSON text."""

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
