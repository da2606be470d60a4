"""What is said of a run once its result stands in the database: job.stop, job.exception, and their events.

Invariant: nothing is reported as done that was not written; a run that had lost its lease says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobkit.events import Event, JobFailed, JobGivenBack, JobLeaseLost, JobStopped
from jobkit.runtime.executor import identity, told
from jobkit.runtime.logs import log, log_event
from jobkit.runtime.settle import Settled
from jobkit.storage.base import Change

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["Reporter"]


class Reporter:
    """Logs and tells observers, on the recording thread."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def recorded(self, batch: Sequence[Settled], landed: Sequence[Change]) -> None:
        """These results were written, as far as their changes are among `landed`."""
        observed = self._core.registry.has("jobkit_event")
        talks = observed or log.isEnabledFor(logging.INFO) or len(landed) < len(batch)
        if not talks and not any(settled.failed for settled in batch):
            return
        there = {change.lease for change in landed}
        for settled in batch:
            lost = settled.lease not in there
            self._log(settled, lost)
            if observed:
                self._core.emit(_event(settled, lost))

    def _log(self, settled: Settled, lost: bool) -> None:
        fields = told(settled.claimed)
        duration = round(settled.duration_ms, 1)
        if lost:
            log_event(logging.INFO, "job.stop", {**fields, "outcome": "lost", "duration_ms": duration})
        elif not settled.failed:
            log_event(
                logging.INFO, "job.stop", {**fields, "outcome": settled.outcome, "duration_ms": duration}
            )
        else:
            more = {"state": settled.outcome, "duration_ms": duration}
            log_event(settled.level, "job.exception", {**fields, **more}, detail=settled.error or "")


def _event(settled: Settled, lost: bool) -> Event:
    who, at, duration = identity(settled.claimed), settled.at, settled.duration_ms
    if lost:
        return JobLeaseLost(at=at, outcome=settled.outcome, duration_ms=duration, **who)
    if settled.outcome == "unknown_worker":
        return JobGivenBack(at=at, why="unknown_worker", **who)
    if settled.outcome == "interrupted" and duration == 0.0:
        return JobGivenBack(at=at, why="shutdown", **who)
    if not settled.failed:
        return JobStopped(at=at, outcome=settled.outcome, duration_ms=duration, **who)
    assert settled.change is not None
    assert settled.change.to is not None
    return JobFailed(
        at=at,
        state=settled.change.to,
        error=settled.error or "",
        duration_ms=duration,
        retry_at=settled.retry_at,
        **who,
    )
