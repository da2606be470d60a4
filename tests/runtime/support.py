"""What the runtime's tests share: claimed jobs as values, and waiting for a condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from jobkit.jobs import Lease
from jobkit.storage.base import ClaimedJob

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class HandClock:
    """A clock that moves by hand; `random` is always one half."""

    def __init__(self) -> None:
        self.time = START
        self.seconds = 1_000.0

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.seconds

    def random(self) -> float:
        return 0.5

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.seconds += seconds


def claimed(
    id: int = 1,
    worker: str = "probe",
    *,
    args: str = "{}",
    attempt: int = 1,
    max_attempts: int = 20,
    queue: str = "default",
    meta: str = "{}",
    tags: str = "[]",
) -> ClaimedJob:
    """A job as a claim returns it."""
    return ClaimedJob(
        id=id,
        worker=worker,
        queue=queue,
        args=args,
        meta=meta,
        tags=tags,
        attempt=attempt,
        max_attempts=max_attempts,
        priority=0,
        inserted_at=START,
        scheduled_at=START,
        node="host:1:abc",
        attempted_at=START,
    )


def lease(id: int = 1) -> Lease:
    return Lease(id, "host:1:abc", START)


async def until(fulfilled: Callable[[], object], timeout: float = 10.0) -> None:
    """Wait until it is so; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not fulfilled():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)


def wait_until(fulfilled: Callable[[], object], timeout: float = 10.0) -> None:
    """`until` for tests without a loop."""
    deadline = time.monotonic() + timeout
    pause = __import__("threading").Event()
    while not fulfilled():
        assert time.monotonic() < deadline, "waited in vain"
        pause.wait(0.005)
