"""Plain functions: daemon threads of our own, as many as jobs run at once.

Daemon threads cannot hold up the process's exit. Invariant: exceptions cross to the loop as values, many at
a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from jobkit.outcomes import Outcome
from jobkit.runtime.body import perform_sync
from jobkit.runtime.runners import RunnerHost

if TYPE_CHECKING:
    from jobkit.runtime.runs import Run

__all__ = ["ThreadRunner", "Threads"]

Work = Callable[["Run"], BaseException]


class Threads:
    """A pool that grows with the work. `submit` and `on_end` belong to one event loop.

    A thread is started whenever more runs are under way than threads exist, so no run waits for another.
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
        self._queue: SimpleQueue[Run | None] = SimpleQueue()
        self._done: deque[tuple[Run, BaseException]] = deque()
        self._posted = False
        self._under_way = 0
        self._threads: list[threading.Thread] = []

    def submit(self, run: Run) -> None:
        """Do the work for `run` in a thread, at once."""
        self._under_way += 1
        if self._under_way > len(self._threads):
            name = f"{self._name}-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put(run)

    def close(self) -> None:
        """Idle threads end now, busy ones after their work."""
        for _ in self._threads:
            self._queue.put(None)

    def _serve(self) -> None:
        while (run := self._queue.get()) is not None:
            result: BaseException | None = self._work(run)
            if os.getpid() != self._pid:
                os._exit(1)  # a fork inside the job came back here: it must not act as this node
            assert result is not None
            self._done.append((run, result))
            result = None
            del run
            if not self._posted:
                self._posted = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: the node has ended
                    self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._posted = False
        while self._done:
            run, result = self._done.popleft()
            self._under_way -= 1
            self._on_end(run, result)


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
