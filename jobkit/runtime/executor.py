"""The executor: turns claimed rows into runs, keeps their deadlines, and settles what comes of them.

Invariant: every claimed job leaves exactly one `Settled`, after its code has really ended; until then its lease is held
here and its slot is taken. Owned by one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypedDict, cast

import msgspec

from jobkit._hooktypes import Runner
from jobkit.clock import Clock
from jobkit.events import JobOverrunning, JobStarted
from jobkit.jobs import JobInfo, Lease
from jobkit.outcomes import Outcome
from jobkit.runtime.logs import log, log_event
from jobkit.runtime.runners import JobRunner
from jobkit.runtime.runners.loop import LoopRunner
from jobkit.runtime.runners.thread import ThreadRunner
from jobkit.runtime.runs import Run, StopFlag, Why
from jobkit.runtime.settle import Settled, Settler
from jobkit.workers import decode

if TYPE_CHECKING:
    from jobkit._hooktable import Implementation
    from jobkit.core import Core
    from jobkit.runtime.producer import Producer
    from jobkit.storage.base import ClaimedJob
    from jobkit.workers import Worker

__all__ = ["Ended", "Executor", "ProcessRunnerFactory", "identity", "run_claimed", "told"]

SWEEP: Final = 0.5
"""Seconds between two looks at the deadlines at most; one is also set for the earliest deadline."""
PATIENCE: Final = 5.0
"""Seconds that a run which was told to end has before it is said to overrun."""
INFO: Final = 20

Deliver = Callable[[Settled, BaseException | None], None]
ProcessRunnerFactory = Callable[["Executor"], JobRunner]


class Executor:
    """The runs of one node, in the order in which they were claimed."""

    def __init__(
        self,
        core: Core,
        loop: asyncio.AbstractEventLoop,
        deliver: Deliver,
        *,
        resources: Mapping[str, object] | None = None,
        processes: ProcessRunnerFactory | None = None,
    ) -> None:
        self.core = core
        self.loop = loop
        self.runs: dict[int, Run] = {}
        self._numbers = itertools.count()
        self.resources: Mapping[str, object] = resources or {}
        self.stopping = False
        self._clock: Clock = core.clock
        self._monotonic = core.clock.monotonic
        self._deliver = deliver
        self._settler = Settler(self)
        self._base = copy_context()
        self._processes = processes
        self._kinds: dict[str, JobRunner] = {}
        self._runners: dict[type[Worker], JobRunner] = {}
        self._sweep_at = math.inf
        self._sweep: asyncio.TimerHandle | None = None

    # -- claimed rows in

    def accept(
        self, producer: Producer | None, jobs: Iterable[ClaimedJob], known: Mapping[str, type[Worker]]
    ) -> None:
        """Run the jobs; those whose args do not decode end here."""
        for claimed in jobs:
            lease = claimed.lease
            run = self._prepared(claimed, lease, known[claimed.worker], producer)
            if run is None:
                continue
            run.number = number = next(self._numbers)
            self.runs[number] = run
            try:
                self._runner(type(run.worker)).start(run)
            except Exception as exc:  # noqa: BLE001 - no thread, no child: this run's failure
                self.ended(run, exc)

    def _prepared(
        self, claimed: ClaimedJob, lease: Lease, cls: type[Worker], producer: Producer | None
    ) -> Run | None:
        flag = StopFlag()
        flag.up = self.stopping
        try:
            worker = decode(cls, claimed.args)
            job = job_info(claimed, self.resources, flag)
        except Exception as exc:  # noqa: BLE001 - __post_init__ of a worker may raise anything
            if producer is not None:
                producer.released()
            self._deliver(self._settler.refused(claimed, lease, exc), exc)
            return None
        timeout = cls.__jobkit__.timeout
        return Run(
            claimed, lease, worker, job, flag, producer, None if timeout is None else timeout.total_seconds()
        )

    def _runner(self, cls: type[Worker]) -> JobRunner:
        """Where this worker's jobs run: a hook's word, else the worker's own."""
        runner = self._runners.get(cls)
        if runner is None:
            choice = self.core.registry.first("jobkit_runner", _is_runner, worker=cls)
            if isinstance(choice, str) or choice is None:
                runner = self._kind(self._feasible(cls, choice or cls.__jobkit__.runner))
            else:
                runner = LoopRunner(self, self.loop, cast(Runner, choice))
            self._runners[cls] = runner
        return runner

    def _feasible(self, cls: type[Worker], kind: str) -> str:
        """Coroutines run on a loop; without a pool of children (in tests) their jobs run in this process."""
        if kind == "process" and self._processes is None:
            kind = "thread"
        return "loop" if kind == "thread" and cls.__jobkit__.is_async else kind

    def _kind(self, kind: str) -> JobRunner:
        runner = self._kinds.get(kind)
        if runner is None:
            if kind == "loop":
                runner = LoopRunner(self, self.loop)
            elif kind == "process":
                assert self._processes is not None
                runner = self._processes(self)
            else:
                runner = ThreadRunner(self, self.loop)
            self._kinds[kind] = runner
        return runner

    # -- what runners tell

    def begin(self, run: Run) -> bool:
        """See RunnerHost."""
        if run.why is not None:
            self.ended(run, asyncio.CancelledError("told to end before it began"))
            return False
        run.started = now = self._monotonic()
        if run.timeout is not None:
            run.deadline = deadline = now + run.timeout
            if deadline < self._sweep_at:
                self._sweep_by(deadline, now)
        if log.isEnabledFor(INFO) or self.core.registry.has("jobkit_event"):
            self._tell_start(run)
        return True

    def ended(self, run: Run, result: BaseException) -> None:
        """See RunnerHost."""
        if run.ended:
            return
        run.ended = True
        try:
            self._deliver(self._settler.settle(run, result), result)
        finally:  # were it ever to fail, the heartbeat would find the row without a lease, and give it back
            self.runs.pop(run.number, None)
            if run.producer is not None:
                run.producer.released()

    def around(self) -> Sequence[Implementation]:
        """See RunnerHost."""
        return self.core.registry.implementations("jobkit_around_job")

    def context(self, run: Run) -> Context:
        """See RunnerHost."""
        return self._base.copy()

    def enter(self, run: Run) -> None:
        """See RunnerHost."""
        self.core.enter_job(run.job)

    # -- ending runs early

    def abort(self, lease: Lease) -> None:
        """The lease is lost: end the run; nothing will be recorded."""
        for run in list(self.runs.values()):
            if run.lease == lease:
                self._stop(run, Why.CANCELLED)

    def abort_all(self) -> int:
        """All leases are lost; returns how many runs were told to end."""
        for run in list(self.runs.values()):
            self._stop(run, Why.CANCELLED)
        return len(self.runs)

    def shut_down(self) -> None:
        """Let every job see that it should stop; what has not begun ends at once, to be given back."""
        self.stopping = True
        for run in list(self.runs.values()):
            run.flag.up = True
            if run.started is None:
                self._stop(run, Why.SHUTDOWN)
            else:
                self._runner(type(run.worker)).nudge(run)

    def interrupt_all(self) -> None:
        """The grace is over: end what can be ended."""
        for run in list(self.runs.values()):
            self._stop(run, Why.SHUTDOWN)

    def leases(self) -> list[Lease]:
        """The leases of all runs; from any thread."""
        return [run.lease for run in list(self.runs.values())]

    def close(self) -> None:
        """Let go of threads and children."""
        if self._sweep is not None:
            self._sweep.cancel()
        for runner in self._all_runners():
            runner.close()

    def join(self, timeout: float) -> None:
        """After `close`: wait for children that close their lifespans. Not on the event loop."""
        for runner in self._all_runners():
            runner.join(timeout)

    def _all_runners(self) -> Iterable[JobRunner]:
        return {id(r): r for r in (*self._kinds.values(), *self._runners.values())}.values()

    def overrunning(self) -> list[Run]:
        """The runs that were told to end and have not, for some seconds now."""
        return [run for run in self.runs.values() if run.warned]

    def _stop(self, run: Run, why: Why) -> None:
        """Ask once; the first to ask decides what is recorded."""
        if run.why is not None:
            return
        run.why = why
        run.flag.up = True
        now = self._monotonic()
        run.deadline = now + PATIENCE
        if run.deadline < self._sweep_at:
            self._sweep_by(run.deadline, now)
        self._runner(type(run.worker)).stop(run)

    # -- deadlines

    def _sweep_by(self, deadline: float, now: float) -> None:
        """Look at the deadlines then; sooner where the clock is one that is moved by hand."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = deadline
        self._sweep = self.loop.call_later(max(0.0, min(deadline - now, SWEEP)), self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        self._sweep, self._sweep_at = None, math.inf
        now = self._monotonic()
        for run in list(self.runs.values()):
            if run.deadline is not None and run.deadline <= now:
                self._overdue(run, now)
        earliest = min((run.deadline for run in self.runs.values() if run.deadline is not None), default=None)
        if earliest is not None and earliest < self._sweep_at:
            self._sweep_by(earliest, now)

    def _overdue(self, run: Run, now: float) -> None:
        if run.why is None:
            self._stop(run, Why.TIMEOUT)
            return
        run.deadline = None
        run.warned = True
        log.warning("%r was told to end (%s) and has not; it keeps its slot", run, run.why)
        why = str(run.why)
        self.core.emit(
            JobOverrunning(at=self._clock.now(), why=why, running_ms=run.lasted(now), **identity(run.claimed))
        )

    # -- what settling asks

    @property
    def clock(self) -> Clock:
        """See settle.Host."""
        return self._clock

    def redact_error(self, text: str, worker: str) -> str:
        """See settle.Host."""
        return self.core.redact_error(text, worker)

    def hook_backoff(self, worker: type[Worker], attempt: int, error: BaseException) -> timedelta | None:
        """See settle.Host."""
        answer = self.core.registry.first(
            "jobkit_backoff", _is_delay, worker=worker, attempt=attempt, error=error
        )
        return cast("timedelta | None", answer)

    # -- saying so

    def _tell_start(self, run: Run) -> None:
        claimed = run.claimed
        queue_ms = (claimed.attempted_at - claimed.scheduled_at) / timedelta(milliseconds=1)
        log_event(INFO, "job.start", {**told(claimed), "queue_ms": round(queue_ms, 1)})
        self.core.emit(JobStarted(at=self._clock.now(), queue_ms=queue_ms, **identity(claimed)))


def job_info(claimed: ClaimedJob, resources: Mapping[str, object], flag: Callable[[], bool]) -> JobInfo:
    """The job as `perform` sees it. Raises where meta or tags are no JSON of the right kind."""
    meta = {} if claimed.meta in _EMPTY_OBJECT else msgspec.json.decode(claimed.meta, type=dict[str, object])
    tags = () if claimed.tags in _EMPTY_ARRAY else msgspec.json.decode(claimed.tags, type=tuple[str, ...])
    job = _Unfrozen()
    job.id, job.worker, job.queue = claimed.id, claimed.worker, claimed.queue
    job.attempt, job.max_attempts, job.priority = claimed.attempt, claimed.max_attempts, claimed.priority
    job.tags, job.meta, job.resources, job.stop_flag = tags, meta, resources, flag
    job.inserted_at, job.scheduled_at = claimed.inserted_at, claimed.scheduled_at
    job.attempted_at = claimed.attempted_at
    job.__class__ = JobInfo  # type: ignore[assignment]
    return cast(JobInfo, job)


class _Unfrozen:
    """A JobInfo in the making: a frozen dataclass's own way of filling thirteen slots takes five times as long."""

    __slots__ = JobInfo.__slots__
    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None: ...


_EMPTY_OBJECT: Final = ("{}", b"{}")
_EMPTY_ARRAY: Final = ("[]", b"[]")


class Identity(TypedDict):
    """The fields that all events of a job have."""

    id: int
    worker: str
    queue: str
    attempt: int
    node: str


def identity(claimed: ClaimedJob) -> Identity:
    """The fields of a job's event."""
    return {
        "id": claimed.id,
        "worker": claimed.worker,
        "queue": claimed.queue,
        "attempt": claimed.attempt,
        "node": claimed.node,
    }


def told(claimed: ClaimedJob) -> dict[str, object]:
    """The fields of a job's log line."""
    return {
        "job_id": claimed.id,
        "worker": claimed.worker,
        "queue": claimed.queue,
        "attempt": claimed.attempt,
    }


def _is_runner(choice: object) -> bool:
    return choice in ("loop", "thread", "process") or isinstance(choice, Runner)


def _is_delay(answer: object) -> bool:
    return isinstance(answer, timedelta)


@dataclass(frozen=True, slots=True)
class Ended:
    """How one run ended: what is to be recorded, and the outcome that job code gave or the exception it raised."""

    settled: Settled
    outcome: Outcome | None
    error: BaseException | None


async def run_claimed(
    core: Core,
    claimed: ClaimedJob,
    *,
    worker: type[Worker] | None = None,
    resources: Mapping[str, object] | None = None,
) -> Ended:
    """Run one claimed job as a node would, on the running loop, and say what is to be recorded; writes nothing.

    Workers of the process runner run in this process. Cancelling this coroutine interrupts the run, which then is to be
    given back. The worker is the one given, or must be known: `core.registry.resolve`; an unknown one raises KeyError.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Ended] = loop.create_future()

    def deliver(settled: Settled, result: BaseException | None) -> None:
        if not ended.done():
            outcome = result if isinstance(result, Outcome) else None
            ended.set_result(Ended(settled, outcome, None if outcome is not None else result))

    cls = worker or core.registry.resolve(claimed.worker)
    if cls is None:
        raise KeyError(claimed.worker)
    executor = Executor(core, loop, deliver, resources=resources)
    executor.accept(None, [claimed], {claimed.worker: cls})
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        executor.interrupt_all()
        raise
    finally:
        executor.close()
