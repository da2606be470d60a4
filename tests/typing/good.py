# pyright: strict
"""What users write; both type checkers accept every line of it in their strict modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from jobkit.jobs import JobInfo, NewJob, Unique
from jobkit.outcomes import Cancel, Done, Outcome, Snooze
from jobkit.workers import Worker, worker, worker_of


@dataclass(frozen=True)
class Card:
    number: str


class SendWelcomeEmail(
    Worker,
    name="send_welcome_email",
    queue="mailers",
    max_attempts=10,
    timeout=timedelta(minutes=2),
    unique=Unique.args(period=timedelta(hours=24)),
    secret=("card.number",),
):
    user_id: int
    card: Card | None = None
    notes: list[str] = field(default_factory=list[str])

    async def perform(self, job: JobInfo) -> Outcome | None:
        if job.should_stop():
            return Snooze(5)
        return Done() if self.user_id else None

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        return timedelta(seconds=attempt)


class Plain(Worker, timeout=None, runner="process"):
    name: str
    queue: str = "an arg"

    def perform(self, job: JobInfo) -> Cancel | None:
        return Cancel("late") if job.attempt > 3 else None


class Silent(Worker):
    def perform(self, job: JobInfo) -> None:
        print(job.id)


@worker
def resize(image_id: int, width: int = 800) -> int:
    return image_id * width


@worker(queue="media", unique=Unique.worker(), timeout=timedelta(seconds=1.5))
async def fetch(url: str, *, headers: Mapping[str, str] | None = None) -> None:
    print(url, headers)


@worker
def with_job(job: JobInfo, image_id: int) -> Outcome:
    return Snooze(timedelta(minutes=1)) if job.attempt == image_id else Done()


@worker(queue="media")
def with_job_too(job: JobInfo, image_id: int) -> None:
    print(job.attempt, image_id)


jobs: list[Worker] = [
    SendWelcomeEmail(user_id=1),
    SendWelcomeEmail(2, card=Card("4")),
    Plain("a", queue="b"),
    Silent(),
    resize(1),
    resize(image_id=1, width=2),
    fetch("https://example.org", headers={}),
    with_job(image_id=1),
    with_job(1),
    with_job_too(image_id=1),
]
asked: NewJob = SendWelcomeEmail(user_id=1).job(
    queue="digests",
    priority=3,
    schedule_in=timedelta(hours=1),
    max_attempts=5,
    tags=["digest", "user:42"],
    meta={"source": "settings"},
    unique=Unique.args("user_id", period=60),
)
asked = asked.replace(unique=False, schedule_at=datetime.now(UTC)).tag("a", "b").with_meta(a=1)
assert_type(resize.fn(1), int)
assert_type(SendWelcomeEmail(1).user_id, int)
classes: list[type[Worker]] = [resize.worker, worker_of(resize), worker_of(Plain)]
loose: dict[str, Any] = {}
