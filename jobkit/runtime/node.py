"""A node: everything that runs jobs in one process, wired together, as hooks and services see it.

Invariant: what a service asks of the node, from whatever thread, is done on the node's event loop, in order; what it
reads is a copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from jobkit._forks import in_children
from jobkit.config import QueueConfig, QueueSpec, parse_queues
from jobkit.events import DatabaseLost, DatabaseRestored, ListenerLost, ListenerRestored, NodeFenced
from jobkit.jobs import JobState, Lease
from jobkit.runtime.claimer import Claimer, Claims, Known, unknown_worker
from jobkit.runtime.engine_room import EngineRoom
from jobkit.runtime.executor import Executor
from jobkit.runtime.facts import memory_bytes, node_id, process_facts
from jobkit.runtime.lifecycle import Lifecycle
from jobkit.runtime.logs import Outage, log
from jobkit.runtime.options import NodeOptions
from jobkit.runtime.poller import Poller
from jobkit.runtime.producer import Producer
from jobkit.runtime.recorder import Recorder
from jobkit.runtime.reports import Reporter
from jobkit.runtime.runners import JobRunner
from jobkit.runtime.runners.process import ProcessRunner, hello
from jobkit.runtime.services import Entry, threads_for
from jobkit.runtime.settle import Settled, given_back
from jobkit.runtime.watchdog import LoopWatch
from jobkit.storage.base import ClaimedJob
from jobkit.storage.engine import node_connection
from jobkit.wakeup import waker_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from jobkit.core import Core
    from jobkit.storage.base import Change

__all__ = ["NodeRuntime"]

NO_OPTIONS: Final = NodeOptions()


class NodeRuntime:
    """One running node; the `Node` of hooks and services, and an async context manager.

    `async with` starts it on the running loop and stops it at the end of the block. It touches neither signal handlers
    nor the loop policy. Raises ConfigError, ScheduleError or NotMigrated on entry; a database that cannot be reached is
    waited for in the background.
    """

    def __init__(
        self, core: Core, queues: QueueSpec | None = None, options: NodeOptions = NO_OPTIONS
    ) -> None:
        self.core: Final = core
        self.options: Final = options
        self._given = None if queues is None else parse_queues(queues)
        self._id = node_id(options.name)
        self._clock = core.clock
        self._last_beat: float | None = None
        self._commanded = (False, False)
        self._claims = Claims(core.clock)
        self.outage: Final = Outage(
            core.clock.monotonic, lost=self._database_lost, restored=self._database_restored
        )
        self.producers: dict[str, Producer] = {}
        self.defaults: dict[str, QueueConfig] = {}
        self._built = False
        self.draining = False
        self.gone = False
        self.stopping = False
        self.given_back = 0
        self._lifecycle = Lifecycle(self)

    async def __aenter__(self) -> NodeRuntime:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Register and begin to claim; returns once that is so, or once the database turned out to be away."""
        if self._built:
            raise RuntimeError("a node is started once; make another one")
        self._built = True
        self._build(asyncio.get_running_loop())
        await self._lifecycle.start()

    async def stop(self, grace: float | None = None) -> int:
        """Claim nothing any more, give running jobs `grace` seconds, record, give back, deregister.

        Returns how many jobs still live (threads, coroutines that ignore their cancellation). Unless the process is to
        leave, the node then stays registered and beating until they have ended.
        """
        return await self._lifecycle.stop(grace)

    def abandon(self) -> None:
        """Give everything back and deregister without the loop, which is blocked for good; the process must leave."""
        self._lifecycle.abandon()

    @property
    def grace(self) -> float:
        """Seconds that running jobs have at the end."""
        given = self.options.grace
        return (self.core.config.shutdown_grace if given is None else given).total_seconds()

    @property
    def ended(self) -> asyncio.Event:
        """Set where the node wants to be stopped: drained, commanded so, or `max_jobs` reached."""
        return self._lifecycle.wants_end

    def _build(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the parts; nothing runs yet."""
        core, clock = self.core, self._clock
        self.loop: asyncio.AbstractEventLoop = loop
        self.defaults = dict(self._given) if self._given is not None else core.registry.queues()
        self.producers.update(
            (name, Producer(name, config.limit, config.paused)) for name, config in self.defaults.items()
        )
        self.watch = LoopWatch(loop)
        self._reporter = Reporter(core)
        self.recorder = Recorder(core.storage, clock=clock, outage=self.outage, recorded=self._recorded)
        self.known = Known(core.registry, self._unknown)
        self.executor = Executor(core, loop, self._deliver, processes=self._process_runner)
        self.poller = Poller(
            loop,
            self.producers,
            clock=clock,
            recorder=self.recorder,
            accept=self._accept,
            wake_lanes=lambda: self.room.wake(),
            can_record=lambda: self.room.can_record,
        )
        self.poller.left = self.options.max_jobs
        self.claimer = Claimer(
            core.storage,
            self.poller,
            claims=self._claims,
            known=self.known,
            recorder=self.recorder,
            outage=self.outage,
            clock=clock,
            node_id=lambda: self._id,
        )
        self.room = EngineRoom(core, self.recorder, self.claimer, self.outage)
        self.outer, self.services = threads_for(
            core, core.registry.services(core, self), self.outage, self.options.keeps
        )
        in_children(self, _forget)

    # -- jobs on their way, on the loop

    def _accept(self, producer: Producer, jobs: list[ClaimedJob], at: datetime) -> None:
        """A claim was answered: run what it won, or give it back where the node is stopping."""
        if self.stopping:
            for job in jobs:
                producer.released()
                self._deliver(given_back(job, job.lease, self._clock.now(), "interrupted"), None)
        elif jobs and jobs[0].node != self._id:
            for _ in jobs:
                producer.released()  # claimed by the node that was declared dead: not ours any more
        else:
            self.executor.accept(producer, jobs, self.known.classes)
        self._claims.landed(at)

    def _deliver(self, settled: Settled, result: BaseException | None) -> None:
        """A run has ended: hand its result to the recorder and see what its slot is good for."""
        if settled.outcome == "interrupted":
            self.given_back += 1
        self.recorder.add(settled)
        self.poller.pulse()
        self._lifecycle.run_ended()

    def _process_runner(self, executor: Executor) -> JobRunner:
        core = self.core
        modules = [
            state.place
            for state in core.registry.plugins
            if state.kind == "given" and state.status == "active"
        ]
        greeting = hello(core.config.to_plain(), core.config.app, modules)
        return ProcessRunner(executor, self.loop, core.config.process, greeting)

    # -- what the database threads tell

    def _recorded(self, batch: Sequence[Settled], landed: Sequence[Change]) -> None:
        try:
            self._reporter.recorded(batch, landed)
        except Exception:  # noqa: BLE001 - a log handler may raise anything; recording goes on
            log.exception("results could not be reported")
        there = {change.lease for change in landed if change.to is JobState.AVAILABLE}
        if there:  # somebody else may run at once what was given back here
            queues = {settled.claimed.queue for settled in batch if settled.lease in there}
            waker_of(self.core).wake(queues)
        if self.poller.starved:
            self.post(self.poller.pulse)

    def _unknown(self, name: str, error: str) -> None:
        error = self.core.redact_error(error, name)[:500]
        self.core.emit(unknown_worker(self._id, name, error, self._clock.now()))

    def _database_lost(self, error: str) -> None:
        self.core.emit(DatabaseLost(at=self._clock.now(), node=self._id, error=error))

    def _database_restored(self, seconds: float) -> None:
        self.core.emit(DatabaseRestored(at=self._clock.now(), node=self._id, seconds=seconds))

    def listener_lost(self, error: str) -> None:
        """The listener cannot be relied on; the poller keeps its faster pace."""
        self.core.emit(ListenerLost(at=self._clock.now(), node=self._id, error=error))

    def listener_restored(self) -> None:
        """The listener hears itself again."""
        self.core.emit(ListenerRestored(at=self._clock.now(), node=self._id))

    def post(self, fn: Callable[..., object], *args: object) -> None:
        """Do this on the loop, unless it has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(fn, *args)

    # -- the Node of hooks and services, from any thread

    @property
    def id(self) -> str:
        """See hookspecs.Node."""
        return self._id

    @property
    def queues(self) -> Mapping[str, int]:
        """See hookspecs.Node."""
        return {name: producer.limit for name, producer in self.producers.items()}

    def leases(self) -> frozenset[Lease]:
        """See hookspecs.Node. Runs come first: a run joins the recorder's before it leaves the executor's."""
        running = self.executor.leases()
        return frozenset([*running, *self.recorder.leases()])

    def in_flight(self) -> frozenset[datetime]:
        """See hookspecs.Node."""
        return self._claims.in_flight()

    def abort(self, lease: Lease) -> None:
        """See hookspecs.Node."""
        self.post(self.executor.abort, lease)

    def wake(self, queue: str) -> None:
        """See hookspecs.Node."""
        self.poller.wake([queue])

    def set_queue(self, name: str, paused: bool, limit: int) -> None:
        """See hookspecs.Node."""
        producer = self.producers.get(name)
        if producer is not None and (producer.paused, producer.limit) != (paused, limit):
            self.post(self._set_queue, producer, paused, limit)

    def _set_queue(self, producer: Producer, paused: bool, limit: int) -> None:
        if producer.paused and not paused:
            producer.wake()
        if producer.paused != paused or producer.limit != limit:
            log.info("queue %s: %s, limit %d", producer.name, "paused" if paused else "running", limit)
        producer.paused, producer.limit = paused, max(0, limit)
        self.poller.pulse()

    def command(self, paused: bool, drain: bool) -> None:
        """See hookspecs.Node."""
        if self._commanded != (paused, drain):
            self._commanded = (paused, drain)
            self.post(self._lifecycle.commanded, paused, drain)

    def renew(self) -> None:
        """See hookspecs.Node. The old runs are aborted before anything can be claimed under the new id."""
        if self.gone:  # a late beat of a node that has deregistered
            return
        old, self._id = self._id, node_id(self.options.name)
        self.post(self._fence, old)
        self.register()

    def _fence(self, old: str) -> None:
        aborted = self.executor.abort_all()
        self.core.emit(NodeFenced(at=self._clock.now(), node=old, renewed=self._id, aborted=aborted))
        self.poller.wake("*")

    def register(self) -> None:
        """Write this node's row, on a connection of its own."""
        with node_connection(self.core.engine, autocommit=False) as conn:
            self.core.storage.register_node(
                conn, self._id, now=self._clock.now(), queues=self.queues, info=self.info()
            )

    def beat(self, ok: bool) -> None:
        """See hookspecs.Node."""
        if ok:
            self._last_beat = self._clock.monotonic()
            self.outage.succeeded()
            if self.known.reconsider(self._can_import):
                self.poller.wake("*")

    def _can_import(self, name: str) -> bool:
        entry = self.core.registry.workers.get(name)
        return entry is not None and not entry.error

    @property
    def last_beat(self) -> float | None:
        """See hookspecs.Node."""
        return self._last_beat

    def loop_lag(self) -> float:
        """See hookspecs.Node."""
        return self.watch.lag()

    def blocked_by(self) -> str:
        """See hookspecs.Node."""
        return self.watch.blocked_by(self.executor.runs.copy().values())

    def info(self) -> Mapping[str, object]:
        """See hookspecs.Node."""
        return {
            **process_facts(),
            "pid": os.getpid(),
            "memory": memory_bytes(),
            "clock": self._clock.now().isoformat(),
            "running": {name: producer.running for name, producer in self.producers.items()},
            "unrecorded": self.recorder.unrecorded,
            "overrunning": [run.lease.id for run in self.executor.overrunning()][:50],
            "skipped_workers": sorted(self.known.skip)[:50],
            "stopping": self.stopping,
            "services": {entry.label: _service_facts(entry) for entry in self._entries()},
        }

    def _entries(self) -> list[Entry]:
        return [entry for thread in (*self.outer, *self.services) for entry in thread.entries]


def _service_facts(entry: Entry) -> dict[str, object]:
    return {
        "ticked_at": entry.ticked_at.isoformat() if entry.ticked_at else None,
        "failures": entry.failures,
        "error": entry.last_error,
    }


def _forget(node: NodeRuntime) -> None:
    """A process made by fork must not act as this node: it claims, runs and records nothing."""
    node.poller.open = False
    node.executor.runs.clear()
