"""Async jobs: one task each, on the node's own loop.

Invariant: a task always ends normally; whatever job code raises, SystemExit included, becomes the run's
result.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

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

    def start(self, run: Run) -> None:
        """See JobRunner."""
        run.handle = self._loop.create_task(self._drive(run), context=self._host.context(run))

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
