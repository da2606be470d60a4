"""Workers for whole nodes: what they saw is in `SEEN`, and they wait at gates."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

from jobkit import Cancel, Discard, JobInfo, Outcome, Snooze, Worker

GATES: dict[str, threading.Event] = {}
SEEN: list[object] = []


def gate(name: str) -> threading.Event:
    return GATES.setdefault(name, threading.Event())


class Act(Worker, name="act", max_attempts=3):
    what: str = ""

    async def perform(self, job: JobInfo) -> Outcome | None:
        SEEN.append(job.id)
        return outcome(self.what)


class Block(Worker, name="block"):
    """Waits in a thread until its gate opens."""

    gate: str = "gate"

    def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)
        gate(self.gate).wait(30)


class Wait(Worker, name="wait"):
    """Waits on the loop until its gate opens or it is cancelled."""

    gate: str = "gate"

    async def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)
        while not gate(self.gate).is_set():
            await asyncio.sleep(0.005)


class Stubborn(Worker, name="stubborn"):
    """Ignores its cancellation until its gate opens."""

    async def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)
        while not gate("gate").is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)


class Busy(Worker, name="busy"):
    """Blocks the loop."""

    seconds: float

    async def perform(self, job: JobInfo) -> None:
        SEEN.append(job.id)
        time.sleep(self.seconds)


class Tally(Worker, name="tally"):
    """Counts how many of its kind run at once."""

    running = 0
    most = 0

    async def perform(self, job: JobInfo) -> None:
        Tally.running += 1  # type: ignore[misc]
        Tally.most = max(Tally.most, Tally.running)  # type: ignore[misc]
        await asyncio.sleep(0.002)
        Tally.running -= 1  # type: ignore[misc]
        SEEN.append(job.id)


def outcome(what: str) -> Outcome | None:
    if what == "fail":
        raise ValueError("wrong")
    if what == "exit":
        raise SystemExit(0)
    return {"snooze": Snooze(60), "cancel": Cancel("gone"), "discard": Discard("bad")}.get(what)


WORKERS = [Act, Block, Wait, Stubborn, Busy, Tally]


class Newer(Worker, name="newer"):
    async def perform(self, job: JobInfo) -> None:
        SEEN.append(("newer", job.id))
