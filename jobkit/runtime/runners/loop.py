"""Async jobs: one task each, on the node's own loop.

Invariant: a task always ends normally; whatever job code raises, SystemExit included, becomes the run's
result. Where Python can (3.12), a task takes its first step at once: a job that never waits costs no turn of the loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from jobkit._hooktypes import Runner
from jobkit.runtime.body import perform_async
from jobkit.runtime.runners import RunnerHost

if TYPE_CHECKING:
    from jobkit.runtime.runs import Run

__all__ = ["LoopRunner"]


class LoopRunner:
    """Runs `async def perform`, or a plugin's own `Runner`, as a task."""

    def __init__(
        self, host: RunnerHost, loop: asyncio.AbstractEventLoop, runner: Runner | None = None
    ) -> None:
        self._host = host
        self._loop = loop
        self._runner = runner
        self._pid = os.getpid()
        self._task = _task_maker(loop)

    def start(self, run: Run) -> None:
        """See JobRunner."""
        run.handle = self._task(self._drive(run), context=self._host.context(run))

    def stop(self, run: Run) -> None:
        """Cancel the task; one that has not begun is ended where it begins (a task cancelled earlier never
        begins).
        """
        if run.started is not None and isinstance(run.handle, asyncio.Task):
            run.handle.cancel()

    def nudge(self, run: Run) -> None:
        """See JobRunner; the flag is seen as it is."""

    def close(self) -> None:
        """See JobRunner; tasks belong to the loop."""

    def join(self, timeout: float) -> None:
        """See JobRunner."""

    async def _drive(self, run: Run) -> None:
        host = self._host
        run.handle = asyncio.current_task()  # its first step may be on its way before `start` has it
        if not host.begin(run):
            return
        host.enter(run)
        result: BaseException | None
        try:
            result = await perform_async(run.worker, run.job, host.around(), self._runner)
        except BaseException as exc:  # noqa: BLE001 - it is this job's failure only
            result = exc
        if os.getpid() != self._pid:
            os._exit(1)  # a fork inside the job came back here: it must not act as this node
        host.ended(run, result)
        result = None  # the traceback refers to this frame: leave no circle behind


def _task_maker(loop: asyncio.AbstractEventLoop) -> Any:
    """What makes a task of a coroutine; a loop with a factory of its own is not passed over."""
    if sys.version_info >= (3, 12) and loop.get_task_factory() is None:
        return partial(asyncio.Task[None], loop=loop, eager_start=True)
    return loop.create_task
