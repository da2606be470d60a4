"""From a run's result to what is recorded: the table of results.

Invariant: pure of any database; each run becomes exactly one `Settled`, whose change is fenced by the run's
lease, or has none where the lease is known to be lost.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from jobkit.clock import Clock
from jobkit.jobs import JobState, Lease
from jobkit.outcomes import MAX_DELAY, Cancel, Discard, Done, Outcome, Snooze
from jobkit.runtime.failures import Failure, describe, stored_text
from jobkit.runtime.logs import log
from jobkit.runtime.runs import Why
from jobkit.storage.base import Change, ClaimedJob, ErrorEntry
from jobkit.workers import Worker, backoff_of, default_backoff

if TYPE_CHECKING:
    from jobkit.runtime.runs import Run

__all__ = ["Settled", "Settler", "given_back"]

COMPLETED: Final = JobState.COMPLETED


@dataclass(slots=True)
class Settled:
    """One run's result: what to record (`change`), and what to say about it.

    `outcome`: completed, snoozed, cancelled, discarded, retryable, interrupted, unknown_worker or lost.
    `error` is the text as stored. `level` is that of the log line.
    """

    claimed: ClaimedJob
    lease: Lease
    change: Change | None
    outcome: str
    at: datetime
    duration_ms: float
    error: str | None = None
    retry_at: datetime | None = None
    level: int = logging.INFO

    @property
    def failed(self) -> bool:
        """True where the log says job.exception."""
        return self.level > logging.INFO


class Host(Protocol):
    """What settling needs of the outside."""

    @property
    def clock(self) -> Clock: ...
    def redact_error(self, text: str, worker: str) -> str: ...
    def hook_backoff(self, worker: type[Worker], attempt: int, error: BaseException) -> timedelta | None: ...


class Settler:
    """Turns results into records, with one app's clock, redaction and backoff hooks."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def settle(self, run: Run, result: BaseException) -> Settled:
        """The record of `run`, which returned or raised `result` (an Outcome or any other exception)."""
        now = self._host.clock.now()
        claimed, lease = run.claimed, run.lease
        duration = run.lasted(self._host.clock.monotonic())
        if run.why is None:
            if type(result) is Done:
                return Settled(
                    claimed, lease, Change(lease=lease, to=COMPLETED, at=now), "completed", now, duration
                )
        elif run.why is Why.CANCELLED:
            return Settled(claimed, lease, None, "lost", now, duration)
        elif run.why is Why.TIMEOUT:
            return self._failure(
                claimed, lease, timed_out(run.timeout, result), type(run.worker), now, duration
            )
        elif not isinstance(result, Outcome):
            return given_back(claimed, lease, now, "interrupted", duration)
        if isinstance(result, Outcome):
            return self._outcome(claimed, lease, result, now, duration)
        return self._failure(claimed, lease, result, type(run.worker), now, duration)

    def refused(self, claimed: ClaimedJob, lease: Lease, reason: BaseException) -> Settled:
        """The record of a job whose args, meta or tags do not decode: discarded, whatever attempts are
        left.
        """
        now = self._host.clock.now()
        return self._discard(claimed, lease, describe(reason), now, 0.0)

    def _outcome(
        self, claimed: ClaimedJob, lease: Lease, outcome: Outcome, now: datetime, duration: float
    ) -> Settled:
        if isinstance(outcome, Snooze):
            change = Change(
                lease=lease,
                to=JobState.SCHEDULED,
                at=now,
                scheduled_at=later(now, outcome.delay),
                attempt_delta=-1,
                snoozed=True,
            )
            return Settled(claimed, lease, change, "snoozed", now, duration)
        if isinstance(outcome, Discard):
            return self._discard(claimed, lease, _reason(outcome), now, duration)
        if isinstance(outcome, Cancel):
            text = self._stored(_reason(outcome), claimed)
            change = Change(lease=lease, to=JobState.CANCELLED, at=now, error=_entry(claimed, now, text))
            return Settled(claimed, lease, change, "cancelled", now, duration, error=text)
        return Settled(claimed, lease, Change(lease=lease, to=COMPLETED, at=now), "completed", now, duration)

    def _discard(
        self, claimed: ClaimedJob, lease: Lease, reason: str, now: datetime, duration: float
    ) -> Settled:
        text = self._stored(reason, claimed)
        change = Change(lease=lease, to=JobState.DISCARDED, at=now, error=_entry(claimed, now, text))
        return Settled(claimed, lease, change, "discarded", now, duration, error=text, level=logging.ERROR)

    def _failure(
        self,
        claimed: ClaimedJob,
        lease: Lease,
        error: BaseException,
        worker: type[Worker],
        now: datetime,
        duration: float,
    ) -> Settled:
        if claimed.attempt >= claimed.max_attempts:
            return self._discard(claimed, lease, describe(error), now, duration)
        text = self._stored(describe(error), claimed)
        retry_at = later(now, self._backoff(worker, claimed.attempt, error))
        change = Change(
            lease=lease,
            to=JobState.RETRYABLE,
            at=now,
            scheduled_at=retry_at,
            error=_entry(claimed, now, text),
        )
        return Settled(
            claimed,
            lease,
            change,
            "retryable",
            now,
            duration,
            error=text,
            retry_at=retry_at,
            level=logging.WARNING,
        )

    def _stored(self, text: str, claimed: ClaimedJob) -> str:
        return stored_text(text, lambda whole: self._host.redact_error(whole, claimed.worker))

    def _backoff(self, worker: type[Worker], attempt: int, error: BaseException) -> timedelta:
        """The worker's own word, else the first hook's, else the default; a wrong answer is logged and passed over."""
        attempt, fraction = max(attempt, 1), self._host.clock.random()
        if worker.__jobkit__.has_backoff:
            try:
                return backoff_of(worker, attempt, fraction)
            except Exception as exc:  # noqa: BLE001 - job code
                log.warning(
                    "backoff of %s raised %s; the default is used", worker.__name__, type(exc).__name__
                )
        elif (delay := self._host.hook_backoff(worker, attempt, error)) is not None:
            return min(max(delay, timedelta(0)), MAX_DELAY)
        return default_backoff(attempt, fraction)


def given_back(claimed: ClaimedJob, lease: Lease, now: datetime, why: str, duration: float = 0.0) -> Settled:
    """The claim is undone: available again, and the attempt does not count."""
    change = Change(lease=lease, to=JobState.AVAILABLE, at=now, attempt_delta=-1)
    return Settled(claimed, lease, change, why, now, duration)


def timed_out(timeout: float | None, result: BaseException) -> Failure:
    """The failure of a run that was told to stop after `timeout` seconds, with the place where it was."""
    text = f"TimeoutError: timed out after {timeout:g} s"
    if isinstance(result, asyncio.CancelledError) or not isinstance(result, Outcome | Failure):
        _, newline, stack = describe(result).partition("\n")
        text += newline + stack
    return Failure(text, "TimeoutError")


def later(now: datetime, delay: timedelta) -> datetime:
    """`now + delay`, or the end of the calendar."""
    try:
        return now + delay
    except OverflowError:
        return datetime.max.replace(tzinfo=now.tzinfo)


def _reason(outcome: Cancel | Discard) -> str:
    name = type(outcome).__name__
    return f"{name}: {outcome.reason}" if outcome.reason else name


def _entry(claimed: ClaimedJob, now: datetime, text: str) -> ErrorEntry:
    return ErrorEntry(attempt=claimed.attempt, at=now, error=text)
