"""Plain functions: daemon threads of our own, as many as jobs run at once.

Daemon threads cannot hold up the process's exit. Invariant: exceptions cross to the loop as values, many at
a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from jobkit.outcomes import Outcome
from jobkit.runtime.body import perform_sync
from jobkit.runtime.runners import RunnerHost

if TYPE_CHECKING:
    from jobkit.runtime.runs import Run

__all__ = ["ThreadRunner", "Threads"]

Work = Callable[["Run"], BaseException]

BRIEF: Final = 0.001
"""Seconds that a run may wait behind others in one thread before all that wait get threads of their own."""


class Threads:
    """A pool that grows with the work. `submit` and `close` belong to one event loop.

    Waking a thread costs more than a brief job, so runs that come together are begun by one thread, one after the
    other, and their results go back together. A run that is not brief holds nobody up: after `BRIEF` seconds every
    run that still waits has a thread, and where the last run was not brief they have them at once. Every run that waits
    is followed by a thread that was woken or by the timer, and each thread that finds nothing more hands over what is
    done.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        work: Work,
        on_end: Callable[[Run, BaseException], None],
    ) -> None:
        self._loop = loop
        self._name = name
        self._work = work
        self._on_end = on_end
        self._pid = os.getpid()
        self._waiting: deque[Run] = deque()
        self._done: deque[tuple[Run, BaseException]] = deque()
        self._idle: deque[threading.Lock] = deque()
        self._started = 0
        self._calling = False
        self._timer: asyncio.TimerHandle | None = None
        self._posted = False
        self._brief = True
        self._closed = False

    def submit(self, run: Run) -> None:
        """Do the work for `run` in a thread, soon."""
        self._waiting.append(run)
        if not self._calling:
            self._calling = True
            self._loop.call_soon(self._call)

    def close(self) -> None:
        """Idle threads end now, busy ones after their work."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._idle:
            self._idle.pop().release()

    # -- on the loop

    def _call(self) -> None:
        """All runs of this turn have come: one thread for them, and a look at what it has left over."""
        self._calling = False
        came = len(self._waiting)  # counted first: the one that is woken takes its own at once
        woken = 1 if self._brief else came
        self._wake(woken)
        if self._timer is None and came > woken:
            self._timer = self._loop.call_later(BRIEF, self._spread)

    def _spread(self) -> None:
        self._timer = None
        self._deliver()
        self._wake(len(self._waiting))

    def _wake(self, count: int) -> None:
        for _ in range(count):
            try:
                self._idle.pop().release()
            except IndexError:
                self._start()

    def _start(self) -> None:
        self._started += 1
        name = f"{self._name}-{self._started}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _deliver(self) -> None:
        self._posted = False
        while self._done:
            self._on_end(*self._done.popleft())

    # -- in a thread

    def _serve(self) -> None:
        bed = threading.Lock()
        bed.acquire()
        while True:
            self._drain()
            self._idle.append(bed)
            self._post()
            if self._closed:
                return
            bed.acquire()

    def _drain(self) -> None:
        """Run what waits, one after the other."""
        while self._waiting:
            try:
                run = self._waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            began = time.monotonic()
            result = self._work(run)
            if os.getpid() != self._pid:
                os._exit(1)  # a fork inside the job came back here: it must not act as this node
            self._brief = time.monotonic() - began < BRIEF
            self._done.append((run, result))
            del run, result

    def _post(self) -> None:
        if self._done and not self._posted:
            self._posted = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: the node has ended
                self._loop.call_soon_threadsafe(self._deliver)


class ThreadRunner:
    """Runs `def perform`. A thread cannot be killed: `stop` relies on `should_stop()`."""

    def __init__(self, host: RunnerHost, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._threads = Threads(loop, "jobkit-job", self._work, host.ended)

    def start(self, run: Run) -> None:
        """See JobRunner."""
        if self._host.begin(run):
            self._threads.submit(run)

    def stop(self, run: Run) -> None:
        """The flag is up already; the rest is the job's."""

    def nudge(self, run: Run) -> None:
        """See JobRunner; the flag is seen as it is."""

    def close(self) -> None:
        """See JobRunner."""
        self._threads.close()

    def join(self, timeout: float) -> None:
        """See JobRunner; daemon threads are not waited for."""

    def _work(self, run: Run) -> BaseException:
        if run.why is not None:
            return asyncio.CancelledError("told to end before it began")
        try:
            return self._host.context(run).run(self._perform, run)
        except Outcome as outcome:
            return outcome
        except BaseException as exc:  # noqa: BLE001 - it is this job's failure only
            return exc

    def _perform(self, run: Run) -> Outcome:
        self._host.enter(run)
        return perform_sync(run.worker, run.job, self._host.around())
