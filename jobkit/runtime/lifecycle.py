"""How a node begins and ends.

Invariants: it claims only between the first round of its outer services (heartbeat) and its stop; it stays registered
and beating until its last job has ended and is recorded; and whatever the database does, `stop` ends in bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from jobkit.events import NodeStarted, NodeStopped, NodeStopping
from jobkit.runtime.detached import detached
from jobkit.runtime.facts import named
from jobkit.runtime.failures import brief
from jobkit.runtime.lanes import OUT_OF_REACH, pause_after
from jobkit.runtime.lifespans import Lifespans
from jobkit.runtime.listener import Hints
from jobkit.runtime.logs import log, log_event
from jobkit.runtime.settle import given_back
from jobkit.storage.engine import classify, node_connection
from jobkit.storage.migrations import check
from jobkit.wakeup import waker_of

if TYPE_CHECKING:
    from jobkit.runtime.node import NodeRuntime
    from jobkit.runtime.runs import Run
    from jobkit.runtime.services import ServiceThread

__all__ = ["Lifecycle"]

FLUSH: Final = 5.0
"""Seconds that results may take to be recorded at the end."""
AFTERMATH: Final = 1.0
"""Seconds that cancelled coroutines and killed children have to end."""
ANSWER: Final = 2.0
"""Seconds that a claim in flight has to be answered, so that what it won can be given back."""
LEAVE: Final = 2.0
"""Seconds that idle children have to close their lifespans."""
DEREGISTER: Final = 2.0
REMIND: Final = 30.0
LOOK: Final = 0.05
INFO: Final = 20


class Lifecycle:
    """The start and the stop of one node. Everything here runs on its event loop."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self.wants_end = asyncio.Event()
        self._news = asyncio.Event()
        self._tried = asyncio.Event()
        self._lifespans: Lifespans | None = None
        self._hints: Hints | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self._starting: asyncio.Task[None] | None = None
        self._stop: asyncio.Task[int] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._registered = False
        self._was_open = False

    # -- the beginning

    async def start(self) -> None:
        """Bring the node up; where the database is away, return after the first try and go on in the background."""
        node = self._node
        if not node.outer:
            log.warning("node %s has no heartbeat: others will take it for dead", node.id)
        node.watch.start()
        self._lifespans = Lifespans(node.core)
        try:
            await self._lifespans.open()
            node.executor.resources = self._lifespans.resources
            self._starting = asyncio.create_task(self._bring_up(), name="jobkit-start")
            tried = asyncio.create_task(self._tried.wait())
            await asyncio.wait({self._starting, tried}, return_when=asyncio.FIRST_COMPLETED)
            tried.cancel()
            if self._starting.done():
                self._starting.result()
            else:
                self._starting.add_done_callback(self._started_late)
        except BaseException:
            await self._clear_away()
            raise

    async def _bring_up(self) -> None:
        node = self._node
        await self._prepare()
        node.room.start()
        for thread in node.outer:
            thread.start()
        while not await detached(lambda: all(thread.wait_first(0.2) for thread in node.outer)):
            if any(entry.failures for thread in node.outer for entry in thread.entries):
                self._tried.set()
        self._open()

    async def _prepare(self) -> None:
        """Check the tables, make the queues' rows, register. Raises what waiting cannot mend."""
        failures = 0
        while True:
            try:
                return await detached(self._prepare_once, name="jobkit-start")
            except Exception as exc:
                if (fault := classify(exc)) not in OUT_OF_REACH:
                    raise
                failures += 1
                self._node.outage.failed("start", brief(exc), fault)
            self._tried.set()
            await asyncio.sleep(pause_after(failures + 2, self._node.core.clock.random()))

    def _prepare_once(self) -> None:
        node = self._node
        node.core.ready()
        with node_connection(node.core.engine, autocommit=False) as conn:
            check(conn, node.core.tables)
            node.core.storage.ensure_queues(conn, node.defaults, now=node.core.clock.now())
        node.register()
        self._registered = True

    def _open(self) -> None:
        """The queues' rows were read: claim."""
        node = self._node
        if node.stopping:
            return
        self._was_open = True
        self._unsubscribe = waker_of(node.core).subscribe(node.poller.wake)
        self._hints = node.room.hints(node.poller, node.id, node.listener_lost, node.listener_restored)
        if self._hints is not None:
            hints = self._hints
            hints.start()
            node.poller.informed = lambda: hints.healthy
        node.poller.quiet = self._nothing_due
        node.poller.start(node.claimer)
        for thread in node.services:
            thread.start()
        limits = ",".join(f"{name}:{limit}" for name, limit in node.queues.items())
        log_event(INFO, "node.start", {"node": node.id, "queues": limits})
        node.core.emit(NodeStarted(at=node.core.clock.now(), node=node.id, queues=tuple(node.producers)))
        self._spawn(detached(lambda: node.core.registry.observe("jobkit_node_started", node=node)))

    def _started_late(self, task: asyncio.Task[None]) -> None:
        """The database came back, and then the start failed for good: say so and ask for the end."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the node cannot start: %s", brief(error))
            self.wants_end.set()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- reasons to end

    def commanded(self, paused: bool, drain: bool) -> None:
        """The node's own row says so."""
        node = self._node
        node.poller.held = paused or drain
        node.draining = drain
        log.info("node %s: %s", node.id, "draining" if drain else "paused" if paused else "running")
        node.poller.wake("*")
        self.run_ended()

    def run_ended(self) -> None:
        """A run has ended, or something else that `stop` and the reasons to end look at."""
        node = self._node
        self._news.set()
        if node.draining or node.options.drain or node.poller.left is not None:
            node.loop.call_soon(self._look_for_end)

    def _look_for_end(self) -> None:
        node = self._node
        if node.executor.runs or node.stopping:
            return
        if node.draining or node.poller.left == 0:
            self._want_end()
        elif node.options.drain:
            node.poller.look()

    def _nothing_due(self) -> None:
        """A look into all cold queues with free slots has found nothing."""
        node = self._node
        busy = node.executor.runs or node.recorder.unrecorded
        if node.options.drain and not busy and not any(p.expects for p in node.producers.values()):
            self._want_end()

    def _want_end(self) -> None:
        self.wants_end.set()
        if self._node.draining and not self._node.options.leaving:
            self._spawn(self.stop(None))

    # -- the end

    async def stop(self, grace: float | None) -> int:
        """See NodeRuntime.stop; a second call waits for the first."""
        if self._stop is None:
            self._stop = asyncio.create_task(self._stopped(grace), name="jobkit-stop")
        return await asyncio.shield(self._stop)

    async def _stopped(self, grace: float | None) -> int:
        node = self._node
        node.stopping = True
        seconds = node.grace if grace is None else grace
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        if self._starting is not None:
            self._starting.cancel()
        self._unsubscribe()
        node.poller.stop()
        self._say_stopping(seconds)
        for thread in node.services:
            thread.stop()
        if self._hints is not None:
            self._hints.stop()
        node.executor.shut_down()
        await self._until(lambda: node.poller.idle, loop.time() + ANSWER)
        await self._until(self._nothing_runs, deadline)
        return await self._after_grace()

    def _say_stopping(self, seconds: float) -> None:
        node = self._node
        running = len(node.executor.runs)
        log_event(INFO, "node.stopping", {"node": node.id, "running": running, "grace": seconds})
        if self._was_open:
            node.core.emit(NodeStopping(at=node.core.clock.now(), node=node.id, grace=seconds))
            self._spawn(detached(lambda: node.core.registry.observe("jobkit_node_stopping", node=node)))

    async def _after_grace(self) -> int:
        """End what can be ended; what cannot is given back as the last act, or kept alive for."""
        node, loop = self._node, asyncio.get_running_loop()
        if node.executor.runs:
            node.executor.interrupt_all()
            await self._until(self._nothing_runs, loop.time() + AFTERMATH)
        left = list(node.executor.runs.values())
        if left:
            log.warning("still running after the grace: %s", named(left))
        if left and not node.options.leaving:
            self._spawn(self._linger())
            return len(left)
        self._give_up(left)
        await self._finish()
        return len(left)

    def _give_up(self, left: Sequence[Run]) -> None:
        """Give back what still runs; whatever its code still returns comes too late."""
        node = self._node
        now, monotonic = node.core.clock.now(), node.core.clock.monotonic()
        for run in left:
            run.ended = True
            node.recorder.add(given_back(run.claimed, run.lease, now, "interrupted", run.lasted(monotonic)))
            node.given_back += 1
        node.executor.runs.clear()

    def abandon(self) -> None:
        """The last act of a process whose loop is blocked for good; from another thread, in bounded time."""
        node = self._node
        left = list(node.executor.runs.values())
        log.error("the event loop is blocked by %s; leaving without it", node.blocked_by() or named(left))
        self._give_up(left)
        node.room.wake()
        node.recorder.wait_empty(FLUSH)
        for thread in (*node.services, *node.outer):
            thread.stop()
        for thread in node.outer:
            thread.join(AFTERMATH)
        worker = threading.Thread(target=self._remove_row, daemon=True)
        worker.start()
        worker.join(DEREGISTER)

    async def _linger(self) -> None:
        """Stay registered and beating for threads that nobody can end; then finish after all."""
        node, loop = self._node, asyncio.get_running_loop()
        while not await self._until(self._nothing_runs, loop.time() + REMIND):
            log.warning("node %s waits for %s", node.id, named(node.executor.runs.values()))
        await self._finish()

    async def _finish(self) -> None:
        """The last record, then the last beat, then no row: in this order."""
        node = self._node
        node.room.wake()
        if not await detached(lambda: node.recorder.wait_empty(FLUSH)):
            log.error("%d results could not be recorded before the end", node.recorder.unrecorded)
        if node.given_back:
            await detached(lambda: waker_of(node.core).flush(AFTERMATH))
        await self._clear_away()
        log_event(INFO, "node.stop", {"node": node.id, "given_back": node.given_back})
        node.core.emit(NodeStopped(at=node.core.clock.now(), node=node.id, given_back=node.given_back))

    async def _clear_away(self) -> None:
        node = self._node
        node.executor.close()
        if self._lifespans is not None:
            await self._lifespans.close()
        await detached(lambda: node.executor.join(LEAVE))
        await detached(self._end_services)
        if self._registered:
            await self._deregister()
        await detached(lambda: node.room.stop(AFTERMATH))
        node.watch.stop()

    def _end_services(self) -> None:
        """Wait a little for the threads; what is stuck in the database is left behind, as a daemon thread."""
        node = self._node
        threads: list[ServiceThread | Hints] = [*node.services, *node.outer]
        if self._hints is not None:
            threads.append(self._hints)
        deadline = time.monotonic() + AFTERMATH
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join(deadline - time.monotonic())

    async def _deregister(self) -> None:
        node = self._node
        node.gone = True
        try:
            await detached(self._remove_row, timeout=DEREGISTER)
        except Exception as exc:  # noqa: BLE001 - the end goes on
            why = brief(exc)
            log.warning("node %s could not be deregistered (%s); others will see it die", node.id, why)

    def _remove_row(self) -> None:
        node = self._node
        with node_connection(node.core.engine, autocommit=False) as conn:
            node.core.storage.remove_node(conn, node.id)

    def _nothing_runs(self) -> bool:
        return not self._node.executor.runs

    async def _until(self, fulfilled: Callable[[], bool], deadline: float) -> bool:
        """Wait until it is so, or until the loop's clock shows `deadline`."""
        loop = asyncio.get_running_loop()
        while not fulfilled():
            left = deadline - loop.time()
            if left <= 0:
                return False
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left, LOOK))
        return True
