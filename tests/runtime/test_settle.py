"""The table of results: what each way of ending makes of a row."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

import pytest

from jobkit import Cancel, Discard, Done, JobInfo, JobState, Snooze, Worker
from jobkit.clock import Clock
from jobkit.runtime.runs import Run, StopFlag, Why
from jobkit.runtime.settle import Settled, Settler
from tests.runtime.support import START, HandClock, claimed


class Plain(Worker, name="plain"):
    def perform(self, job: JobInfo) -> None: ...


class Patient(Worker, name="patient"):
    def perform(self, job: JobInfo) -> None: ...

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        return timedelta(seconds=100 * attempt)


class Broken(Worker, name="broken"):
    def perform(self, job: JobInfo) -> None: ...

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        raise ValueError("no idea")


class Endless(Worker, name="endless"):
    def perform(self, job: JobInfo) -> None: ...

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        return timedelta.max


class Backwards(Worker, name="backwards"):
    def perform(self, job: JobInfo) -> None: ...

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        return timedelta(days=-1)


class Host:
    def __init__(self) -> None:
        self.hand = HandClock()
        self.answer: timedelta | None = None
        self.asked: list[tuple[int, BaseException]] = []

    @property
    def clock(self) -> Clock:
        return self.hand

    def redact_error(self, text: str, worker: str) -> str:
        return text.replace("hunter2", "[redacted]")

    def hook_backoff(self, worker: type[Worker], attempt: int, error: BaseException) -> timedelta | None:
        self.asked.append((attempt, error))
        return self.answer


def settle(
    result: BaseException,
    *,
    worker: Worker | None = None,
    why: Why | None = None,
    attempt: int = 1,
    max_attempts: int = 20,
    timeout: float | None = 300.0,
    host: Host | None = None,
) -> Settled:
    job = claimed(attempt=attempt, max_attempts=max_attempts)
    info = JobInfo(1, "probe", "default", attempt, max_attempts, 0, (), {}, START, START, START)
    run = Run(job, job.lease, worker or Plain(), info, StopFlag(), None, timeout)
    host = host or Host()
    run.started = host.hand.monotonic()
    run.why = why
    host.hand.advance(2)
    return Settler(host).settle(run, result)


NOW = START + timedelta(seconds=2)


def test_done_completes() -> None:
    settled = settle(Done())
    assert settled.change is not None
    assert (settled.change.to, settled.change.at, settled.outcome) == (JobState.COMPLETED, NOW, "completed")
    assert settled.change.error is None
    assert settled.duration_ms == 2_000


def test_RT2_a_snooze_takes_its_attempt_back_and_is_counted() -> None:
    change = settle(Snooze(60), attempt=3).change
    assert change is not None
    assert change.to is JobState.SCHEDULED
    assert change.scheduled_at == NOW + timedelta(seconds=60)
    assert (change.attempt_delta, change.snoozed, change.error) == (-1, True, None)


def test_a_cancel_of_the_job_itself_keeps_its_reason() -> None:
    settled = settle(Cancel("gone"))
    assert settled.change is not None
    assert settled.change.error is not None
    assert (settled.change.to, settled.change.error.error) == (JobState.CANCELLED, "Cancel: gone")
    assert not settled.failed


def test_a_discard_is_final_whatever_attempts_are_left() -> None:
    settled = settle(Discard("bad input"))
    assert settled.change is not None
    assert settled.change.error is not None
    assert (settled.change.to, settled.change.error.error) == (JobState.DISCARDED, "Discard: bad input")
    assert settled.level == logging.ERROR


def test_a_failure_is_retried_after_the_backoff() -> None:
    settled = settle(ValueError("wrong"), attempt=2)
    assert settled.change is not None
    assert settled.change.to is JobState.RETRYABLE
    assert settled.change.scheduled_at == NOW + timedelta(seconds=2**4 + 15 + 30)
    assert settled.change.error is not None
    assert (settled.change.error.attempt, settled.change.error.at) == (2, NOW)
    assert settled.change.error.error.startswith("ValueError: wrong")
    assert settled.level == logging.WARNING


def test_the_last_failure_discards() -> None:
    settled = settle(ValueError("wrong"), attempt=20)
    assert settled.change is not None
    assert settled.change.to is JobState.DISCARDED
    assert settled.level == logging.ERROR


@pytest.mark.parametrize(
    "raised", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), MemoryError()]
)
def test_ER6_whatever_job_code_raises_is_a_failure(raised: BaseException) -> None:
    change = settle(raised).change
    assert change is not None
    assert change.to is JobState.RETRYABLE


def test_a_timeout_is_a_failure_whatever_the_job_returned() -> None:
    for result in (Done(), asyncio.CancelledError(), ValueError("late")):
        change = settle(result, why=Why.TIMEOUT, timeout=0.5).change
        assert change is not None
        assert change.error is not None
        assert change.to is JobState.RETRYABLE
        assert change.error.error.startswith("TimeoutError: timed out after 0.5 s")


def test_a_jobs_own_timeout_error_is_an_ordinary_failure() -> None:
    change = settle(TimeoutError("upstream")).change
    assert change is not None
    assert change.error is not None
    assert change.error.error.startswith("TimeoutError: upstream")


def test_a_cancelled_lease_records_nothing() -> None:
    settled = settle(Done(), why=Why.CANCELLED)
    assert settled.change is None
    assert settled.outcome == "lost"


@pytest.mark.parametrize("result", [asyncio.CancelledError(), RuntimeError("broken off")])
def test_SD4_an_interruption_by_shutdown_uses_no_attempt(result: BaseException) -> None:
    settled = settle(result, why=Why.SHUTDOWN, attempt=20)
    assert settled.change is not None
    assert (settled.change.to, settled.change.attempt_delta) == (JobState.AVAILABLE, -1)
    assert settled.outcome == "interrupted"


def test_SD5_an_outcome_reached_during_shutdown_counts() -> None:
    change = settle(Done(), why=Why.SHUTDOWN).change
    assert change is not None
    assert change.to is JobState.COMPLETED


def test_a_workers_own_backoff_wins_and_no_hook_is_asked() -> None:
    host = Host()
    host.answer = timedelta(seconds=1)
    change = settle(ValueError(), worker=Patient(), attempt=3, host=host).change
    assert change is not None
    assert change.scheduled_at == NOW + timedelta(seconds=300)
    assert host.asked == []


def test_a_hooks_backoff_counts_where_the_worker_has_none() -> None:
    host, error = Host(), ValueError()
    host.answer = timedelta(seconds=7)
    change = settle(error, attempt=3, host=host).change
    assert change is not None
    assert change.scheduled_at == NOW + timedelta(seconds=7)
    assert host.asked == [(3, error)]


def test_a_backoff_that_fails_gives_the_default() -> None:
    change = settle(ValueError(), worker=Broken(), attempt=1).change
    assert change is not None
    assert change.scheduled_at == NOW + timedelta(seconds=1 + 15 + 15)


@pytest.mark.parametrize("attempt", [1, 1_000, 2**31 - 2])
@pytest.mark.parametrize("worker", [Plain(), Endless(), Backwards()])
def test_RT1_a_backoff_is_capped_and_never_negative(worker: Worker, attempt: int) -> None:
    change = settle(ValueError(), worker=worker, attempt=attempt, max_attempts=2**31 - 1).change
    assert change is not None
    assert change.scheduled_at is not None
    assert NOW <= change.scheduled_at <= NOW + timedelta(days=36_525)


def test_RT1_a_delay_beyond_the_calendar_is_cut_to_its_end() -> None:
    host = Host()
    host.hand.time = datetime.max.replace(tzinfo=START.tzinfo) - timedelta(days=1)
    change = settle(Snooze(timedelta(days=30_000)), host=host).change
    assert change is not None
    assert change.scheduled_at == datetime.max.replace(tzinfo=START.tzinfo)


def test_ER5_errors_are_redacted_before_they_are_stored() -> None:
    for result in (ValueError("hunter2"), Cancel("hunter2"), Discard("hunter2")):
        settled = settle(result)
        assert settled.change is not None
        assert settled.change.error is not None
        assert "hunter2" not in settled.change.error.error
        assert "hunter2" not in (settled.error or "")
