"""A program that runs a node: `python -m tests.runtime.runs_node URL FILE [option=value ...]`."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from datetime import timedelta

from jobkit import JobInfo, Worker
from jobkit.config import Config
from jobkit.core import Core
from jobkit.runtime.main import leave, run_node
from jobkit.runtime.options import NodeOptions

NOTES = sys.argv[2] if len(sys.argv) > 2 else ""


def note(text: str) -> None:
    with open(NOTES, "a") as file:
        file.write(text + "\n")


class Quick(Worker, name="quick"):
    async def perform(self, job: JobInfo) -> None:
        note(f"ran {job.id}")


class Sleeper(Worker, name="sleeper"):
    seconds: float

    async def perform(self, job: JobInfo) -> None:
        note(f"began {job.id}")
        await asyncio.sleep(self.seconds)


class Thread(Worker, name="thread"):
    seconds: float

    def perform(self, job: JobInfo) -> None:
        note(f"began {job.id}")
        threading.Event().wait(self.seconds)


class Blocker(Worker, name="blocker"):
    seconds: float

    async def perform(self, job: JobInfo) -> None:
        note(f"began {job.id}")
        time.sleep(self.seconds)


class Leaver(Worker, name="leaver"):
    async def perform(self, job: JobInfo) -> None:
        note(f"began {job.id}")
        sys.exit(0)


class Spawner(Worker, name="spawner"):
    async def perform(self, job: JobInfo) -> None:
        async def exits() -> None:
            sys.exit(5)

        note(f"began {job.id}")
        task = asyncio.create_task(exits())
        while not task.done():
            await asyncio.sleep(0.001)


class Executor(Worker, name="executor"):
    """Leaves a thread of asyncio's own pool behind, which an interpreter waits for at its end."""

    async def perform(self, job: JobInfo) -> None:
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 30)
        note(f"began {job.id}")
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass


WORKERS = [Quick, Sleeper, Thread, Blocker, Leaver, Spawner, Executor]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(created)f %(levelname)s %(message)s")
    given = dict(argument.split("=") for argument in sys.argv[3:])
    core = Core(Config(database_url=sys.argv[1], queues="default:10"), workers=WORKERS)
    options = NodeOptions(
        grace=timedelta(seconds=float(given.get("grace", 10))),
        drain="drain" in given,
        max_jobs=int(given["max_jobs"]) if "max_jobs" in given else None,
    )
    code = run_node(core, None, options, started=lambda node: note("up"))
    note(f"code {code}")
    if code:
        leave(code)


if __name__ == "__main__":
    main()
