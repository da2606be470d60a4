"""Workers for tests with real processes: `jobkit run --import tests.support.chores`.

Each writes a line to the file that CHORES_LOG names when it begins and when it ends, in one write, so that a
test can tell what was performed however its process ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from datetime import timedelta

from jobkit import Done, JobInfo, Worker, worker


def tell(what: str, n: int, job: JobInfo) -> None:
    """Append one line; lines of many processes never mix."""
    line = f"{what} {n} {job.id} {job.attempt} {os.getpid()} {time.time():.6f}\n"
    fd = os.open(os.environ["CHORES_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


@worker(name="note")
async def note(n: int, job: JobInfo) -> None:
    """Nothing but the lines."""
    tell("begin", n, job)
    tell("end", n, job)


@worker(name="note_in_thread")
def note_in_thread(n: int, job: JobInfo) -> None:
    """The same in a thread."""
    tell("begin", n, job)
    tell("end", n, job)


@worker(name="plain")
async def plain(n: int) -> None:
    """Nothing at all."""


@worker(name="nap")
async def nap(n: int, seconds: float, job: JobInfo) -> None:
    """Takes its time on the loop."""
    tell("begin", n, job)
    await asyncio.sleep(seconds)
    tell("end", n, job)


@worker(name="nap_in_thread")
def nap_in_thread(n: int, seconds: float, job: JobInfo) -> None:
    """Takes its time in a thread, whatever it is told."""
    tell("begin", n, job)
    time.sleep(seconds)
    tell("end", n, job)


@worker(name="deaf", timeout=timedelta(seconds=1))
async def deaf(n: int, seconds: float, job: JobInfo) -> None:
    """Swallows every cancellation."""
    tell("begin", n, job)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(end - time.monotonic())
    tell("end", n, job)


@worker(name="eats_timeout", timeout=timedelta(seconds=1))
def eats_timeout(n: int, seconds: float, job: JobInfo) -> Done:
    """A thread that outlives its timeout and then claims to be done."""
    tell("begin", n, job)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)
    tell("end", n, job)
    return Done()


@worker(name="block", timeout=None)
async def block(n: int, seconds: float, job: JobInfo) -> None:
    """Blocks the event loop."""
    tell("begin", n, job)
    time.sleep(seconds)
    tell("end", n, job)


@worker(name="spin", timeout=None)
def spin(n: int, seconds: float, job: JobInfo) -> None:
    """Burns processor time in a thread."""
    tell("begin", n, job)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1_000))
    tell("end", n, job)


@worker(name="exits")
def exits(n: int, job: JobInfo) -> None:
    """Ends its process without a word."""
    tell("begin", n, job)
    os._exit(3)


@worker(name="kills", max_attempts=2)
async def kills(n: int, job: JobInfo) -> None:
    """Ends its process by SIGKILL."""
    tell("begin", n, job)
    os.kill(os.getpid(), signal.SIGKILL)


@worker(name="exits_in_child", runner="process", max_attempts=1)
def exits_in_child(n: int, job: JobInfo) -> None:
    """Ends its child without a word."""
    tell("begin", n, job)
    os._exit(3)


class Unprintable(Exception):
    """Cannot be turned into text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@worker(name="unprintable", max_attempts=1)
async def unprintable(n: int, job: JobInfo) -> None:
    """Raises what cannot be printed."""
    tell("begin", n, job)
    raise Unprintable(n)


class FailsOnce(Worker, name="fails_once"):
    """Fails at its first attempt, and is back at once."""

    n: int

    async def perform(self, job: JobInfo) -> None:
        tell("begin", self.n, job)
        if job.attempt == 1:
            raise ValueError(f"first attempt of {self.n}")
        tell("end", self.n, job)

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        return timedelta(milliseconds=10)


@worker(name="hog")
def hog(n: int, seconds: float, job: JobInfo) -> None:
    """Holds a connection of the app's own pool."""
    from jobkit.core import current_core

    with current_core().engine.connect() as conn:
        conn = conn.execution_options(jobkit_begin="DEFERRED")  # on SQLite it only reads
        conn.exec_driver_sql("SELECT 1")
        tell("hold", n, job)
        time.sleep(seconds)
    tell("end", n, job)


@worker(name="forks")
def forks(n: int, job: JobInfo) -> None:
    """Forks; the child enqueues one job, and then comes back out of `perform` as if it were the node."""
    from jobkit.core import current_core
    from jobkit.inserting import enqueue_with

    tell("begin", n, job)
    core = current_core()
    child = os.fork()
    if child == 0:
        enqueue_with(core, None, [note(n=n + 1000)])
        return
    os.waitpid(child, 0)
    tell("end", n, job)
