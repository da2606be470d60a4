"""From facts to what a list shows of a job, and what a page shows of it.

Invariant: redacted first, cut afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from jobkit.admin._facts import Facts, JobError, error_class
from jobkit.admin._match import Surroundings, condition
from jobkit.admin.views import (
    AttemptView,
    AuditEntry,
    ErrorView,
    JobSummary,
    Marker,
    TimelineEvent,
)
from jobkit.jobs import FINAL, JobState

__all__ = ["attempts_of", "error_view", "summary", "timeline_of"]

PREVIEW: Final = 120
"""Characters of args in a list."""
_SAME: Final = timedelta(seconds=5)
"""An action and the change that it made are dated one after the other."""
_PREVIEWED: Final = 32 * 1024
_MARKERS: Final[tuple[Marker, ...]] = ("orphaned", "stuck", "overdue", "snoozed", "cron", "unique", "paused")


def summary(job: Facts, around: Surroundings) -> JobSummary:
    """The job as a list shows it."""
    return JobSummary(
        id=job.id,
        state=job.state,
        queue=job.queue,
        worker=job.worker,
        args=_preview(job),
        tags=job.tags,
        priority=job.priority,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        node=job.node,
        error=job.error.partition("\n")[0],
        inserted_at=job.inserted_at,
        scheduled_at=job.scheduled_at,
        attempted_at=job.attempted_at,
        finished_at=job.finished_at,
        duration=job.duration,
        wait=job.wait,
        cron=job.cron,
        snoozed=job.snoozed,
        markers=tuple(marker for marker in _MARKERS if condition(marker, job, around)),
    )


def _preview(job: Facts) -> str:
    """One line of the args; a list does not redact a quarter of a megabyte to show a line of it."""
    if job.args_size > _PREVIEWED:
        return f"({job.args_size // 1024:,} KB)"
    args = job.args
    text = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"


def error_view(error: JobError) -> ErrorView:
    """One failure, taken apart."""
    first, _, rest = error.text.partition("\n")
    name, colon, message = first.partition(":")
    return ErrorView(
        attempt=error.attempt,
        at=error.at,
        cls=name.strip() if colon else "",
        message=message.strip() if colon else first,
        traceback=rest,
        text=error.text,
    )


def attempts_of(job: Facts) -> tuple[AttemptView, ...]:
    """The runs that are known: those that failed, and the last one. Newest first."""
    found = {
        error.attempt: AttemptView(error.attempt, "failed", None, error.at, None, error_class(error.text))
        for error in job.errors
        if error.attempt > 0
    }
    if job.attempted_at is not None and job.attempt > 0:
        found[job.attempt] = _last_attempt(job, found.get(job.attempt))
    return tuple(found[number] for number in sorted(found, reverse=True))


def _last_attempt(job: Facts, failure: AttemptView | None) -> AttemptView:
    running = job.state is JobState.EXECUTING
    if running:
        outcome, ended = "executing", None
    elif failure is not None:
        outcome, ended = ("failed" if job.state not in FINAL else job.state.value), failure.ended_at
    else:
        outcome = job.state.value if job.state in FINAL else "given back"
        ended = job.finished_at
    error = "" if failure is None or running else failure.error
    return AttemptView(job.attempt, outcome, job.attempted_at, ended, job.node, error)


def timeline_of(job: Facts, activity: tuple[AuditEntry, ...]) -> tuple[TimelineEvent, ...]:
    """The job's story in order of time, from its times, failures and operators' actions."""
    events = sorted(_events(job, activity), key=lambda event: event.at)
    before: datetime | None = None
    told = []
    for event in events:
        gap = None if before is None else event.at - before
        told.append(TimelineEvent(event.at, event.kind, event.text, gap))
        before = event.at
    return tuple(told)


_DONE_BY: Final = {
    "jobs.insert": "inserted",
    "jobs.insert_any": "inserted",
    "jobs.retry": "retried",
    "jobs.run_now": "made available",
    "jobs.cancel": "cancelled",
    "jobs.edit": "edited",
}
_ENDED: Final = {
    JobState.COMPLETED: "attempt {} completed",
    JobState.DISCARDED: "discarded after attempt {}: it is not tried again",
    JobState.CANCELLED: "cancelled",
}


def _events(job: Facts, activity: tuple[AuditEntry, ...]) -> Iterator[TimelineEvent]:
    acts = [entry for entry in activity if entry.result == "ok"]
    inserted = next((entry for entry in acts if entry.action.startswith("jobs.insert")), None)
    by = "" if inserted is None else _by(inserted)
    yield TimelineEvent(job.inserted_at, "inserted", f"inserted into {job.queue}{by}")
    for error in job.errors:
        if error.at is not None:
            text = f"attempt {error.attempt} failed: " + error.text.partition("\n")[0]
            yield TimelineEvent(error.at, "failed", text)
    for entry in acts:
        if entry is not inserted:
            text = f"{_DONE_BY.get(entry.action, entry.action)}{_by(entry)}"
            yield TimelineEvent(entry.at, entry.action, text)
    if job.attempted_at is not None:
        where = f" on {job.node}" if job.node else ""
        yield TimelineEvent(job.attempted_at, "started", f"attempt {job.attempt} started{where}")
    if job.finished_at is not None:
        if not (job.state is JobState.CANCELLED and _told(acts, "jobs.cancel", job.finished_at)):
            text = _ENDED[job.state].format(job.attempt)
            yield TimelineEvent(job.finished_at, job.state.value, text)
    elif job.state is JobState.RETRYABLE:
        yield TimelineEvent(job.scheduled_at, "retry", f"attempt {job.attempt + 1} is due")
    elif job.scheduled_at > job.inserted_at and job.attempt == 0:
        yield TimelineEvent(job.scheduled_at, "scheduled", "scheduled for this time")


def _by(entry: AuditEntry) -> str:
    reason = f" ({entry.reason})" if entry.reason else ""
    return f" by {entry.actor}{reason}"


def _told(acts: Iterable[AuditEntry], action: str, at: datetime) -> bool:
    """Whether an operator's act is this very change of the state."""
    return any(entry.action == action and abs(entry.at - at) < _SAME for entry in acts)
