"""`jobkit run`: a node as a process of its own.

Invariants: the first SIGINT or SIGTERM begins a graceful stop, the second ends the process at once with 128 + its
number; both work while a job blocks the loop; and no job's thread can hold up the exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from jobkit.runtime.logs import log
from jobkit.runtime.node import NodeRuntime
from jobkit.runtime.options import NodeOptions
from jobkit.runtime.ownloop import run_on_own_loop

if TYPE_CHECKING:
    from jobkit.config import QueueSpec
    from jobkit.core import Core

__all__ = ["LEFT_RUNNING", "leave", "run", "run_node"]

LEFT_RUNNING: Final = 11
"""Exit code: the grace was over and jobs still ran; they were given back."""
LAST_FLUSH: Final = 1.0
LAST_WORDS: Final = 0.5
BLOCKED: Final = 1.5
"""Seconds without a turn of the loop after which, once the grace is over, it counts as blocked for good."""

NO_OPTIONS: Final = NodeOptions()
Started = Callable[[NodeRuntime], None]


def run(core: Core, queues: QueueSpec | None = None) -> None:
    """Run a node until a signal, then return; raises SystemExit(11) where jobs could not be ended."""
    code = run_node(core, queues)
    if code:
        leave(code)


def run_node(
    core: Core,
    queues: QueueSpec | None = None,
    options: NodeOptions = NO_OPTIONS,
    *,
    started: Started = lambda node: None,
) -> int:
    """Run a node until a signal, a command, or what `options` say; returns the exit code (0 or 11).

    `started` is called on the loop once the node has been brought up, or waits for its database. Raises ConfigError,
    ScheduleError, NotMigrated, and what a lifespan raises.
    """
    leaving = dataclasses.replace(options, leaving=True)
    return run_on_own_loop(lambda: _main(NodeRuntime(core, queues, leaving), started))


def leave(code: int) -> NoReturn:
    """End the process now, whatever threads job code has left: flush, then exit without waiting for anyone."""
    flusher = threading.Thread(target=_flush, daemon=True)  # a lock that a job holds must not hold this up
    flusher.start()
    flusher.join(LAST_WORDS)
    os._exit(code)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


async def _main(node: NodeRuntime, started: Started) -> int:
    told = asyncio.Event()
    with _Signals(node, told).installed():
        start = asyncio.create_task(_start(node, started))
        stop = asyncio.create_task(told.wait())
        await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            ended = asyncio.create_task(node.ended.wait())
            await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        left = await node.stop()
    return LEFT_RUNNING if left else 0


async def _start(node: NodeRuntime, started: Started) -> None:
    await node.start()
    started(node)


class _Signals:
    """The two signals. Handlers run between two bytecodes of the main thread, so a busy loop does not hold them up."""

    def __init__(self, node: NodeRuntime, told: asyncio.Event) -> None:
        self._node = node
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._first = True

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM, where this is the main thread; put the old handlers back afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._first:
            self._first = False
            self._loop.call_soon_threadsafe(self._begin_stop, name)
            threading.Thread(target=self._outlast, name="jobkit-outlast", daemon=True).start()
            return
        last = threading.Thread(target=self._last_words, args=(name,), daemon=True)
        last.start()
        last.join(LAST_FLUSH + LAST_WORDS)
        leave(128 + number)

    def _begin_stop(self, name: str) -> None:
        log.info("%s: stopping; once more to leave at once", name)
        self._told.set()

    def _last_words(self, name: str) -> None:
        log.warning("%s again: leaving at once", name)
        self._node.recorder.wait_empty(LAST_FLUSH)

    def _outlast(self) -> None:
        """A job that blocks the loop for good must not hold up the exit: without the loop, then."""
        never = threading.Event()
        never.wait(self._node.grace + BLOCKED)
        while not BLOCKED < self._node.loop_lag() < math.inf:
            never.wait(BLOCKED)
        with contextlib.suppress(Exception):
            self._node.abandon()
        leave(LEFT_RUNNING)
