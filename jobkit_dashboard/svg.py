"""The picture of the state machine, as data that a template draws.

Invariant: numbers and fixed words only; nothing of a job's text goes into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from jobkit.admin.views import JobDetail
from jobkit.jobs import JobState

__all__ = ["Box", "Line", "Picture", "state_picture"]

WIDTH: Final = 104
HEIGHT: Final = 30
_PLACES: Final[dict[JobState, tuple[int, int]]] = {
    JobState.SCHEDULED: (0, 0),
    JobState.AVAILABLE: (0, 60),
    JobState.EXECUTING: (150, 60),
    JobState.RETRYABLE: (150, 0),
    JobState.COMPLETED: (300, 60),
    JobState.DISCARDED: (300, 0),
    JobState.CANCELLED: (300, 120),
}
_EDGES: Final = (
    (JobState.SCHEDULED, JobState.AVAILABLE),
    (JobState.AVAILABLE, JobState.EXECUTING),
    (JobState.EXECUTING, JobState.RETRYABLE),
    (JobState.RETRYABLE, JobState.AVAILABLE),
    (JobState.EXECUTING, JobState.COMPLETED),
    (JobState.EXECUTING, JobState.DISCARDED),
    (JobState.EXECUTING, JobState.CANCELLED),
)


@dataclass(frozen=True, slots=True)
class Box:
    """One state."""

    state: str
    x: int
    y: int
    visited: bool
    current: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One transition, from edge to edge of two boxes."""

    x1: int
    y1: int
    x2: int
    y2: int
    taken: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it; `words` is the text alternative."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    words: str


def state_picture(job: JobDetail) -> Picture:
    """The machine with the way that this job took."""
    visited = _visited(job)
    current = job.job.state
    boxes = tuple(Box(s.value, x, y, s in visited, s is current) for s, (x, y) in _PLACES.items())
    lines = tuple(_line(a, b, a in visited and b in visited) for a, b in _EDGES)
    way = ", ".join(state.value for state in _PLACES if state in visited and state is not current)
    return Picture(boxes, lines, f"now {current.value}" + (f"; before that {way}" if way else ""))


def _visited(job: JobDetail) -> set[JobState]:
    s = job.job
    visited = {s.state}
    if s.attempted_at is not None or s.attempt:
        visited |= {JobState.AVAILABLE, JobState.EXECUTING}
    if job.errors and len(job.errors) + (s.state not in (JobState.DISCARDED, JobState.CANCELLED)) > 1:
        visited.add(JobState.RETRYABLE)
    if s.snoozed or (s.scheduled_at > s.inserted_at and s.attempt <= 1):
        visited.add(JobState.SCHEDULED)
    return visited


def _line(start: JobState, end: JobState, taken: bool) -> Line:
    (ax, ay), (bx, by) = _PLACES[start], _PLACES[end]
    if ax == bx:
        down = by > ay
        return Line(
            ax + WIDTH // 2,
            ay + (HEIGHT if down else 0),
            bx + WIDTH // 2,
            by + (0 if down else HEIGHT),
            taken,
        )
    x1, x2 = (ax + WIDTH, bx) if bx > ax else (ax, bx + WIDTH)
    return Line(x1, ay + HEIGHT // 2, x2, by + HEIGHT // 2, taken)
