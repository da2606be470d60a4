"""What goes along with a node of `jobkit run`: health, the countdown, memory limit, the tie to a supervisor.

Invariant: nothing here touches a job; all it can do to the node is ask it to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from jobkit.cli.health import Health, HealthServer
from jobkit.cli.output import Output
from jobkit.runtime.facts import memory_bytes
from jobkit.runtime.logs import log

if TYPE_CHECKING:
    from jobkit.core import Core
    from jobkit.runtime.node import NodeRuntime

__all__ = ["READY", "RECYCLE", "SUPERVISED", "Companion", "is_first"]

SUPERVISED: Final = "JOBKIT_SUPERVISED"
"""`DESCRIPTOR:NUMBER`: where a supervised node says what it does, and which one it is; its stdin ends with the
supervisor.
"""
READY: Final = b"ready\n"
RECYCLE: Final = b"recycle\n"
LOOP_LIMIT: Final = 30.0
"""Seconds of a blocked loop after which the process no longer counts as alive."""
MEMORY_PAUSE: Final = 2.0
COUNTDOWN: Final = 1.0


def is_first() -> bool:
    """Whether this is the only node process, or the first of several; asked before a `Companion` is made."""
    return os.environ.get(SUPERVISED, "").partition(":")[2] in ("", "1")


class Companion:
    """Goes along with one node; `started` is called on its loop once it has been brought up."""

    def __init__(
        self, core: Core, out: Output, *, max_memory: int | None, health: tuple[str, int] | None
    ) -> None:
        self._core = core
        self._out = out
        self._max_memory = max_memory
        self._node: NodeRuntime | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        descriptor = os.environ.pop(SUPERVISED, "").partition(":")[0]
        self._supervisor = int(descriptor) if descriptor.isdigit() else None
        self._server = HealthServer(health, self.look) if health is not None else None
        if self._server is not None:
            log.info("health at http://%s:%d", *self._server.address)

    def started(self, node: NodeRuntime) -> None:
        """The node is up, or waits for its database."""
        self._node = node
        for work in (self._watch_memory(), self._say_ready(), self._count_down()):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._supervisor is not None:
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._watch_supervisor, args=(node, loop), daemon=True).start()

    def close(self) -> None:
        """The node has stopped."""
        node = self._node
        if self._server is not None:
            self._server.close()
        if node is not None and node.options.max_jobs is not None and node.poller.left == 0:
            self._tell(RECYCLE)

    # -- health

    def look(self) -> Health:
        """The node as probes see it."""
        node = self._node
        if node is None:
            return Health(live=True, ready=False, facts={"state": "starting"})
        lag, beat = node.loop_lag(), node.last_beat
        age = math.inf if beat is None else self._core.clock.monotonic() - beat
        beating = age < self._core.config.dead_after.total_seconds()
        state = "stopping" if node.stopping else "running" if beating else "waiting for the database"
        facts = {
            "state": state,
            "node": node.id,
            "beat_age": None if beat is None else round(age, 1),
            "loop_lag": None if math.isinf(lag) else round(lag, 3),
            "running": len(node.executor.runs),
            "unrecorded": node.recorder.unrecorded,
        }
        live = lag < LOOP_LIMIT
        return Health(live=live, ready=live and beating and not node.stopping, facts=facts)

    # -- on the loop

    async def _watch_memory(self) -> None:
        node, limit = self._node, self._max_memory
        while node is not None and limit is not None and not node.stopping:
            found = memory_bytes()
            if found > limit:
                log.info("%d MB of memory, more than %d MB: stopping", found // 10**6, limit // 10**6)
                self._tell(RECYCLE)
                node.ended.set()
                return
            await asyncio.sleep(MEMORY_PAUSE)

    async def _say_ready(self) -> None:
        node = self._node
        while node is not None and self._supervisor is not None and not node.stopping:
            if node.last_beat is not None:
                self._tell(READY)
                return
            await asyncio.sleep(0.05)

    async def _count_down(self) -> None:
        """While the node stops: how many jobs still run, for people."""
        node = self._node
        if node is None or not sys.stderr.isatty():
            return
        while not node.stopping:
            await asyncio.sleep(0.1)
        deadline = asyncio.get_running_loop().time() + self._core.config.shutdown_grace.total_seconds()
        while node.executor.runs:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            self._out.note(
                f"waiting for {len(node.executor.runs)} running jobs, {left:.0f} s left; Ctrl-C ends at once"
            )
            await asyncio.sleep(COUNTDOWN)

    # -- the supervisor

    def _tell(self, word: bytes) -> None:
        if self._supervisor is not None:
            with contextlib.suppress(OSError):
                os.write(self._supervisor, word)

    def _watch_supervisor(self, node: NodeRuntime, loop: asyncio.AbstractEventLoop) -> None:
        """Stop when the supervisor is gone: its end of our stdin closes."""
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(node.ended.set)
