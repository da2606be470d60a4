"""Workers that run in children, found there by module and name."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

from jobkit import Discard, JobInfo, Outcome, Snooze, Worker, current_job, hookimpl, worker
from jobkit.hookspecs import JobContext


class Deed(Worker, name="deed", runner="process"):
    """Does what it is told, plainly."""

    what: str
    path: str = ""

    def perform(self, job: JobInfo) -> Outcome | None:
        return act(self.what, self.path, job)


class AsyncDeed(Worker, name="async_deed", runner="process"):
    """Does what it is told, as a coroutine."""

    what: str
    path: str = ""

    async def perform(self, job: JobInfo) -> Outcome | None:
        await asyncio.sleep(0)
        if self.what == "task exits":
            await asyncio.gather(asyncio.create_task(exits()), return_exceptions=True)
        if self.what == "forever":
            Path(self.path).write_text(str(os.getpid()))
            await asyncio.sleep(60)
        return act(self.what, self.path, job)


class HastyDeed(Worker, name="hasty_deed", runner="process", timeout=timedelta(seconds=0.3)):
    """Has a short timeout."""

    what: str
    path: str = ""

    def perform(self, job: JobInfo) -> Outcome | None:
        return act(self.what, self.path, job)


@worker(name="child_function", runner="process")
def child_function(number: int, job: JobInfo) -> Outcome:
    return Snooze(number)


async def exits() -> None:
    raise SystemExit(4)


def act(what: str, path: str, job: JobInfo) -> Outcome | None:
    if what == "pid":
        Path(path).write_text(str(os.getpid()))
    elif what == "snooze":
        return Snooze(7)
    elif what == "discard":
        raise Discard("no good")
    elif what == "fail":
        raise ValueError("wrong in a child")
    elif what == "exit":
        sys.exit(0)
    elif what == "hard exit":
        os._exit(3)
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "print":
        print("to stdout")
        os.write(1, b'{"outcome": {"outcome": "cancel", "reason": "forged"}}\n')
        assert sys.stdin.read() == ""
    elif what == "resources":
        Path(path).write_text(f"{job.resources['greeting']} {current_job() is job}")
    elif what == "forever":
        Path(path).write_text(str(os.getpid()))
        time.sleep(60)
    elif what == "grandchild":
        child = subprocess.Popen(["sleep", "60"])
        Path(path).write_text(str(child.pid))
        time.sleep(60)
    elif what == "until stopped":
        Path(path).write_text(str(os.getpid()))
        waited = threading.Event()
        while not job.should_stop():
            waited.wait(0.005)
    elif what == "thread stays":
        threading.Thread(target=time.sleep, args=(60,)).start()
    elif what == "memory":
        globals()["_ballast"] = bytearray(int(path))
    return None


@hookimpl
@asynccontextmanager
async def jobkit_lifespan(app: object) -> AsyncIterator[Mapping[str, object]]:
    """A resource of each process."""
    yield {"greeting": "hello"}
    if (path := os.environ.get("JOBKIT_TEST_LIFESPAN")) is not None:
        with open(path, "a") as file:
            file.write(f"closed {os.getpid()}\n")


@hookimpl
@contextmanager
def jobkit_around_job(job: JobInfo, worker: Worker, ctx: JobContext) -> Iterator[None]:
    """Middleware that turns one worker's Done into another outcome."""
    yield
    if getattr(worker, "what", "") == "middleware":
        ctx.outcome = Snooze(11)
