"""The workers of the kernel's tests: each does one thing that a job can do."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from jobkit import Cancel, Discard, JobInfo, Outcome, Snooze, Unique, Worker, worker
from tests.testing.support import Journal

journal = Journal()
started, dropped = threading.Event(), threading.Event()


@worker
def ok(job: JobInfo, n: int = 0) -> None:
    journal.note(n)


@worker(max_attempts=3)
def fail(job: JobInfo) -> None:
    raise ValueError(f"attempt {job.attempt} failed")


class Patient(Worker, name="patient", max_attempts=3):
    """Fails with a backoff of its own."""

    def perform(self, job: JobInfo) -> None:
        raise ValueError("not yet")

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        return timedelta(minutes=attempt)


@worker
def snooze(job: JobInfo) -> Outcome | None:
    journal.note(job.attempt)
    return Snooze(60) if len(journal.entries) < 3 else None


@worker
async def cancel() -> Outcome:
    return Cancel("post 42 deleted")


@worker
def discard() -> Outcome:
    return Discard("no such address")


@worker(max_attempts=1)
async def panic(how: str = "exception") -> None:
    raise {"exception": RuntimeError("boom"), "exit": SystemExit(3), "interrupt": KeyboardInterrupt()}[how]


@worker(timeout=timedelta(milliseconds=50), max_attempts=1)
async def hang() -> None:
    await asyncio.Event().wait()


@worker(timeout=None)
async def hold() -> None:
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        dropped.set()


@worker
def leak() -> None:
    raise ConnectionError(
        "connect to https://deploy:not-a-password@api.example.com/v1/charges?token=not-a-token timed out"
    )


@worker
def shout(size: int) -> None:
    raise ValueError("word " * size)


@worker(unique=Unique.args())
def unique_args(user_id: int, note: str = "") -> None:
    journal.note(user_id)


@worker(unique=Unique.args("user_id"))
def unique_user(user_id: int, note: str = "") -> None:
    journal.note(user_id)


@worker(unique=Unique.worker())
def unique_worker(n: int = 0) -> None:
    journal.note(n)


@worker(unique=Unique.args(states="all"))
def unique_for_ever(n: int = 0) -> None:
    journal.note(n)


@worker(unique=Unique.args(period=timedelta(hours=1)))
def unique_hour(n: int = 0) -> None:
    journal.note(n)


@worker
def stranger() -> None:
    """Never given to the app."""


KNOWN = (
    *(ok, fail, Patient, snooze, cancel, discard, panic, hang, hold, leak, shout),
    *(unique_args, unique_user, unique_worker, unique_for_ever, unique_hour),
)
