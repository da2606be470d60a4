"""Workers that the tests of the command line enqueue and run."""

from __future__ import annotations

import time
from datetime import timedelta

from jobkit import Discard, JobInfo, Outcome, Unique, Worker, worker


@worker
def add(a: int, b: int = 0) -> None:
    """Add two numbers."""


@worker(queue="mail", max_attempts=3)
def send(to: str, body: str = "") -> None:
    """Send a letter."""


@worker(max_attempts=1)
def fail(text: str = "boom") -> None:
    """Fail, with that text."""
    raise RuntimeError(text)


class Once(Worker, name="once", unique=Unique.args(), secret=("pin",)):
    """Unique by its args; one of them is secret."""

    key: str
    pin: str = ""

    def perform(self, job: JobInfo) -> Outcome | None:
        """End at once."""
        return Discard("enough")


@worker(timeout=timedelta(minutes=5))
def doze(seconds: float = 30.0) -> None:
    """Sleep in a thread that cannot be interrupted."""
    time.sleep(seconds)


@worker
async def adoze(job: JobInfo, seconds: float = 30.0) -> None:
    """Sleep on the loop."""
    import asyncio

    await asyncio.sleep(seconds)
