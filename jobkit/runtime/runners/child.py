"""The other side of the process runner: `python -m jobkit.runtime.runners.child`.

A fresh interpreter that loads the parent's configuration, opens the lifespans, and runs one job at a time. The protocol
is JSON lines over what were stdin and stdout; job code gets an empty stdin, and its prints go to stderr. Invariant: the
process ends within a second of its parent, whatever job code does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import multiprocessing.spawn
import os
import sys
import threading
from collections.abc import Mapping
from contextvars import copy_context
from datetime import datetime
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final

from jobkit.runtime.failures import describe
from jobkit.runtime.ownloop import run_on_own_loop

if TYPE_CHECKING:
    from jobkit.core import Core
    from jobkit.storage.base import ClaimedJob
    from jobkit.workers import Worker

__all__ = ["main"]

LOOK: Final = 0.5
"""Seconds between two looks at who the parent is."""

Message = dict[str, Any]


def main() -> None:
    """Speak with the parent until it says, or shows, that this is over."""
    line = Line()
    greeting = line.read()
    if greeting is None:
        return
    try:
        core = load(greeting)
    except BaseException as exc:  # noqa: BLE001 - told to the parent, who reports it
        line.write({"failed": describe(exc)})
        return
    run_on_own_loop(lambda: serve(core, line))
    leave(0)


def leave(code: int) -> None:
    """End the process; job code may have left threads behind that would never end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


class Line:
    """The pipe to the parent, moved out of the way of job code."""

    def __init__(self) -> None:
        self._in: IO[bytes] = os.fdopen(os.dup(0), "rb")
        self._out: IO[bytes] = os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def read(self) -> Message | None:
        """The next message; None once the parent has closed its end."""
        line = self._in.readline()
        if not line.endswith(b"\n"):
            return None
        message: Message = json.loads(line)
        return message

    def write(self, message: Mapping[str, object]) -> None:
        """Send a message."""
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            self._out.write(data)
            self._out.flush()


def load(greeting: Message) -> Core:
    """The parent's app, or one made of its configuration; job modules are found as the parent finds them."""
    sys.path[:] = greeting["sys_path"]
    if greeting["log_level"] is not None:
        logging.basicConfig(
            level=greeting["log_level"], format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
    _load_main(greeting)
    from jobkit.config import Config
    from jobkit.core import Core, core_named, set_current

    config = Config.from_plain(greeting["config"])
    if greeting["app"]:
        core = core_named(greeting["app"])
    else:
        plugins = [import_module(name) for name in greeting["plugins"]]
        core = Core(config, plugins=plugins)
    set_current(core)
    core.registry.load()
    return core


def _load_main(greeting: Message) -> None:
    """The parent's script, under another name, so that workers defined in it can be found."""
    data: dict[str, object] = {}
    if greeting["main_name"] and not greeting["main_name"].startswith("jobkit."):
        data = {"init_main_from_name": greeting["main_name"]}
    elif greeting["main_path"] and greeting["main_path"].endswith(".py"):
        data = {"init_main_from_path": greeting["main_path"]}
    multiprocessing.spawn.prepare(data)


async def serve(core: Core, line: Line) -> None:
    """Open the lifespans, then run what comes, until the parent says that it was the last."""
    from jobkit.runtime.lifespans import Lifespans

    lifespans = Lifespans(core)
    try:
        await lifespans.open()
    except BaseException as exc:  # noqa: BLE001 - told to the parent, who reports it
        line.write({"failed": describe(exc)})
        return
    inbox = Inbox(line)
    inbox.start()
    line.write({"ready": True})
    while (message := await inbox.next()) is not None:
        answer = await Assignment(core, message, lifespans.resources, inbox).answer()
        line.write(answer)
    await lifespans.close()


class Inbox:
    """Reads messages in a thread: the next job, and the wish that the running one should stop."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self._running = False
        self.stop = False

    def start(self) -> None:
        """Start reading, and watching the parent."""
        threading.Thread(target=self._read, name="jobkit-inbox", daemon=True).start()
        threading.Thread(target=self._watch, args=(os.getppid(),), name="jobkit-parent", daemon=True).start()

    async def next(self) -> Message | None:
        """The next job; None where there will be none."""
        self._running = False
        message = await self._queue.get()
        self._running = message is not None
        return message

    def _read(self) -> None:
        while (message := self._line.read()) is not None:
            if "job" in message:
                self.stop = bool(message.get("stop"))
                self._loop.call_soon_threadsafe(self._queue.put_nowait, message)
            else:
                self.stop = True
        if self._running:
            os._exit(1)
        self._loop.call_soon_threadsafe(self._queue.put_nowait, None)

    def _watch(self, parent: int) -> None:
        """Another process may hold the parent's end of the pipe open: a new parent says the same."""
        never = threading.Event()
        while not never.wait(LOOK):
            if os.getppid() != parent:
                os._exit(1)


class Assignment:
    """One job, from the parent's message to the answer."""

    def __init__(self, core: Core, message: Message, resources: Mapping[str, object], inbox: Inbox) -> None:
        self._core = core
        self._message = message
        self._resources = resources
        self._inbox = inbox

    async def answer(self) -> Message:
        """Run the job; the answer has its outcome, or its error as text."""
        from jobkit.outcomes import Outcome
        from jobkit.runtime.facts import memory_bytes

        result = await self._result()
        if isinstance(result, Outcome):
            return {"outcome": result.to_json(), "memory": memory_bytes()}
        return {"error": describe(result), "kind": type(result).__name__, "memory": memory_bytes()}

    async def _result(self) -> BaseException:
        from jobkit.runtime.body import perform_async, perform_sync
        from jobkit.runtime.executor import job_info
        from jobkit.workers import decode

        try:
            claimed = _claimed(self._message["job"])
            worker = decode(self._worker(claimed.worker), claimed.args)
            job = job_info(claimed, self._resources, lambda: self._inbox.stop)
            around = self._core.registry.implementations("jobkit_around_job")
            context = copy_context()
            context.run(self._core.enter_job, job)
            if type(worker).__jobkit__.is_async:
                task = asyncio.get_running_loop().create_task(
                    _caught(perform_async(worker, job, around)), context=context
                )
                return await task
            return context.run(perform_sync, worker, job, around)
        except BaseException as exc:  # noqa: BLE001 - whatever job code raises is its answer
            return exc

    def _worker(self, name: str) -> type[Worker]:
        """By the registry, else by the place that the parent knows it from."""
        found = self._core.registry.resolve(name)
        if found is not None:
            return found
        from jobkit.workers import worker_of

        module = self._message["module"]
        thing: Any = import_module("__mp_main__" if module == "__main__" else module)
        for part in self._message["qualname"].split("."):
            thing = getattr(thing, part)
        cls = worker_of(thing)
        self._core.registry.add_worker(cls)
        return cls


async def _caught(work: Any) -> BaseException:
    """What the coroutine returns or raises, as a value: a task that raised SystemExit would end the loop."""
    try:
        result: BaseException = await work
    except BaseException as exc:  # noqa: BLE001 - see above
        return exc
    return result


def _claimed(job: Message) -> ClaimedJob:
    from jobkit.storage.base import ClaimedJob

    times = {
        name: datetime.fromisoformat(job[name]) for name in ("inserted_at", "scheduled_at", "attempted_at")
    }
    return ClaimedJob(**{**job, **times})


if __name__ == "__main__":
    main()
