"""The poller: decides, on the event loop, when to look for work and how much of it to claim.

Producers do not poll. One poller per node knows which queues may have due jobs (`hot`) and have free slots,
and sends one round at a time to the claimer; queues that are cold are looked into together, in one
statement, when a timer or a hint says so. Invariant: a node never claims more than it has free slots for,
nor while it cannot record.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from jobkit.clock import Clock
from jobkit.runtime.claimer import Claimer, Round
from jobkit.runtime.lanes import pause_after
from jobkit.runtime.producer import Producer
from jobkit.storage.base import ClaimedJob

if TYPE_CHECKING:
    from jobkit.runtime.recorder import Recorder

__all__ = ["Poller"]

SLOW: Final = 5.0
"""Seconds between looks where a healthy listener brings the news."""
FAST: Final = 1.0
"""Seconds between looks without one: the most that a job waits for a node that has a free slot."""
GATHER: Final = 0.001
"""Seconds after an answer in which less than half of a queue's slots are not claimed: where jobs are brief, the others
come free at once, and one claim takes them all.
"""
LIVELY: Final = 1.0
"""Seconds after a job in which the next is waited for with more attention."""
MANY: Final = 8
"""How many slots are worth gathering."""
ROOM: Final = 200
"""Results that may wait for the recorder besides one for each slot."""

Accept = Callable[[Producer, list[ClaimedJob], datetime], None]


class Poller:
    """Owned by the event loop; `wake` and the claimer's answers may come from any thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        producers: Mapping[str, Producer],
        *,
        clock: Clock,
        recorder: Recorder,
        accept: Accept,
        wake_lanes: Callable[[], None],
        can_record: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._producers = producers
        self._clock = clock
        self._recorder = recorder
        self._accept = accept
        self._wake_lanes = wake_lanes
        self._can_record = can_record
        self._claimer: Claimer | None = None
        self._lock = threading.Lock()
        self._hints: set[str] = set()
        self._posted = False
        self._pulsing = False
        self._in_round = False
        self._look = True
        self._won_at = -LIVELY
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self.open = False
        self.held = False
        self.informed: Callable[[], bool] = lambda: False
        self.quiet: Callable[[], None] = lambda: None
        self.left: int | None = None
        self.starved = False

    # -- the node's side, on the loop

    def start(self, claimer: Claimer) -> None:
        """Begin to claim."""
        self._claimer = claimer
        self.open = True
        self._tick()

    def stop(self) -> None:
        """Claim nothing any more; a claim in flight is still handed over."""
        self.open = False
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()

    def pulse(self) -> None:
        """Something has changed (a slot is free, a result waits, a limit is new): act at the end of this
        turn.
        """
        if not self._pulsing:
            self._pulsing = True
            self._loop.call_soon(self._act)

    @property
    def idle(self) -> bool:
        """True where no claim is under way."""
        return not self._in_round

    # -- hints, from any thread

    def wake(self, queues: Iterable[str]) -> None:
        """There may be due jobs in these queues (`*`: in any)."""
        with self._lock:
            self._hints.update(queues)
            if self._posted or not self._hints:
                return
            self._posted = True
        self._post(self._woken)

    def look(self) -> None:
        """Something was written: look into the cold queues."""
        self._post(self._look_now)

    def lively(self) -> bool:
        """Whether jobs came a moment ago and there are no more, so that the next are waited for; from any thread."""
        recent = self._clock.monotonic() - self._won_at < LIVELY
        return recent and not any(producer.hot for producer in self._producers.values())

    # -- the claimer's answers, from its thread

    def claimed(
        self, queue: str, asked: int, full: bool, at: datetime, jobs: list[ClaimedJob], *, over: bool
    ) -> None:
        """See Desk."""
        self._post(self._claimed, self._producers[queue], asked, full, at, jobs, over)

    def claim_failed(self, queue: str, asked: int, at: datetime) -> None:
        """See Desk."""
        self._post(self._claim_failed, self._producers[queue], asked, at)

    def looked(self, due: Sequence[str]) -> None:
        """See Desk."""
        self._post(self._found, due)

    def round_over(self) -> None:
        """See Desk."""
        self._post(self._round_over)

    # -- on the loop

    def _post(self, fn: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to care
            self._loop.call_soon_threadsafe(fn, *args)

    def _woken(self) -> None:
        with self._lock:
            hints, self._hints = self._hints, set()
            self._posted = False
        everything = "*" in hints
        for name, producer in self._producers.items():
            if everything or name in hints:
                producer.wake()
        self._act()

    def _look_now(self) -> None:
        self._look = True
        self._act()

    def _tick(self) -> None:
        """The periodic look, jittered by a fifth; the guarantee behind all hints."""
        if not self.open:
            return
        pause = SLOW if self.informed() else FAST
        self._timer = self._loop.call_later(pause * (0.8 + 0.4 * self._clock.random()), self._tick)
        self._look_now()

    def _claimed(
        self,
        producer: Producer,
        asked: int,
        full: bool,
        at: datetime,
        jobs: list[ClaimedJob],
        over: bool,
    ) -> None:
        producer.answered(asked, len(jobs), full)
        if jobs:
            self._won_at = self._clock.monotonic()
        producer.gather_until = self._loop.time() + GATHER
        if self.left is not None:
            self.left -= len(jobs)
        if over:
            self._round_over()  # the next claim is under way while these jobs run
        self._accept(producer, jobs, at)

    def _claim_failed(self, producer: Producer, asked: int, at: datetime) -> None:
        pause = pause_after(producer.failures + 1, self._clock.random())
        producer.failed(asked, self._clock.monotonic() + pause)
        self._accept(producer, [], at)

    def _found(self, due: Sequence[str]) -> None:
        for name in due:
            self._producers[name].wake()
        try:
            if not due:
                self.quiet()
        finally:
            self._round_over()

    def _round_over(self) -> None:
        self._in_round = False
        self._act()

    def _act(self) -> None:
        """Send the next round, where there is a reason for one, and let the lanes see to what waits."""
        self._pulsing = False
        if self.open and not self.held and not self._in_round and self._claimer is not None:
            round_ = self._next_round()
            if round_.wishes or round_.look:
                self._in_round = True
                self._claimer.request(round_)
        self._wake_lanes()

    def _next_round(self) -> Round:
        room = self._room()
        round_ = Round()
        cold = []
        now = self._clock.monotonic()
        for producer in self._in_turn():
            count = min(producer.free, room)
            if count <= 0:
                continue
            if producer.retry_at > now:
                self._retry_later(producer.retry_at - now)
            elif producer.hot and self._gathers(producer, count):
                continue
            elif producer.hot:
                producer.asked(count)
                room -= count
                round_.wishes.append((producer.name, count))
            else:
                cold.append(producer.name)
        if self._look:
            self._look = False
            round_.look = cold
            if not cold:
                self._loop.call_soon(self.quiet)
        return round_

    def _in_turn(self) -> list[Producer]:
        """All producers, beginning with another one each time, so that none is always last."""
        producers = list(self._producers.values())
        self._turn = (self._turn + 1) % len(producers) if producers else 0
        return producers[self._turn :] + producers[: self._turn]

    def _room(self) -> int:
        """How many more jobs may be claimed before the recorder has to catch up; none while it fails."""
        slots = sum(producer.limit for producer in self._producers.values())
        room = slots + ROOM - self._recorder.unrecorded if self._can_record() else 0
        self.starved = room <= 0
        return room if self.left is None else min(room, self.left)

    def _gathers(self, producer: Producer, count: int) -> bool:
        """Whether to wait for more of its slots than these; if so, not for long."""
        if 2 * count >= producer.limit or producer.limit < MANY:
            return False
        delay = producer.gather_until - self._loop.time()
        if delay > 0:
            self._retry_later(delay)
        return delay > 0

    def _retry_later(self, delay: float) -> None:
        if self._retry is None or self._retry.cancelled() or self._retry.when() <= self._loop.time():
            self._retry = self._loop.call_later(delay + 0.001, self.pulse)
