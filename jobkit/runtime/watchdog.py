"""Whether the event loop turns, and which job keeps it from turning.

Invariant: read from any thread, at any time, without the loop's help.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobkit.runtime.runs import Run

__all__ = ["LoopWatch"]

EVERY: Final = 0.25


class LoopWatch:
    """A callback that comes round four times a second. Real time: a loop knows no other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._turned = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to watch; call it on the loop."""
        self._turn()

    def stop(self) -> None:
        """The node has ended; the loop counts as ended, too."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _turn(self) -> None:
        self._turned = time.monotonic()
        if not self._stopped:
            self._timer = self._loop.call_later(EVERY, self._turn)

    def lag(self) -> float:
        """For how many seconds the loop has not turned; infinite once it has ended."""
        if self._stopped or self._loop.is_closed() or not self._loop.is_running():
            return math.inf
        return max(0.0, time.monotonic() - self._turned - EVERY)

    def blocked_by(self, runs: Iterable[Run]) -> str:
        """The job whose code the loop is in, with the place in it; an empty text where it is in no job's."""
        try:
            task = asyncio.current_task(self._loop)
        except RuntimeError:
            return ""
        frame = sys._current_frames().get(self._thread)
        if task is None or frame is None:
            return ""
        place = _place(frame)
        for run in list(runs):
            if run.handle is task:
                return f"{run!r} at {place}"
        return f"task {task.get_name()} at {place}"


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
