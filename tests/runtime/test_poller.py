"""When a node looks for work, and how much of it it claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from jobkit.runtime.claimer import Claims, Known, Round
from jobkit.runtime.lanes import FIRST_PAUSE, LONGEST_PAUSE, pause_after
from jobkit.runtime.poller import ROOM, Poller
from jobkit.runtime.producer import Producer
from jobkit.storage.base import ClaimedJob
from jobkit.workers import Worker
from tests.runtime.support import START, HandClock, claimed


class Backlog:
    """As much of the recorder as the poller looks at."""

    unrecorded = 0


class Book:
    """Notes the rounds that are asked for, and answers them by hand."""

    def __init__(self) -> None:
        self.rounds: list[Round] = []

    def request(self, round_: Round) -> None:
        self.rounds.append(Round(list(round_.wishes), list(round_.look)))


class Desk:
    """A poller with its producers, and what reached the executor."""

    def __init__(self, **limits: int) -> None:
        self.clock = HandClock()
        self.backlog = Backlog()
        self.book = Book()
        self.accepted: list[int] = []
        self.can_record = True
        self.producers = {name: Producer(name, limit) for name, limit in limits.items()}
        self.poller = Poller(
            asyncio.get_running_loop(),
            self.producers,
            clock=self.clock,
            recorder=self.backlog,  # type: ignore[arg-type]
            accept=self.accept,
            wake_lanes=lambda: None,
            can_record=lambda: self.can_record,
        )

    def accept(self, producer: Producer, jobs: list[ClaimedJob], at: datetime) -> None:
        self.accepted += [job.id for job in jobs]

    async def turn(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def answer(self, *got: int, due: Sequence[str] = ()) -> None:
        """Answer the last round: how many jobs each wish won, which queues are due."""
        last = self.book.rounds[-1]
        for (queue, asked), count in zip(last.wishes, got, strict=True):
            jobs = [claimed(n, queue=queue) for n in range(count)]
            self.poller.claimed(queue, asked, count == asked, START, jobs, over=False)
        if last.look:
            self.poller.looked(due)
        else:
            self.poller.round_over()
        await self.turn()

    def start(self) -> None:
        self.poller.start(self.book)  # type: ignore[arg-type]


def scenario(test: Callable[[], object]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_the_first_round_claims_for_every_free_slot() -> None:
    async def test() -> None:
        desk = Desk(a=3, b=5)
        desk.start()
        assert sorted(desk.book.rounds[0].wishes) == [("a", 3), ("b", 5)]

    scenario(test)


def test_a_node_never_asks_for_more_than_its_free_slots() -> None:
    async def test() -> None:
        desk = Desk(a=4)
        desk.start()
        await desk.answer(4)
        assert len(desk.book.rounds) == 1
        desk.producers["a"].released()
        desk.poller.pulse()
        await desk.turn()
        assert desk.book.rounds[-1].wishes == [("a", 1)]
        desk.producers["a"].released()
        desk.producers["a"].released()
        desk.poller.pulse()
        await desk.turn()
        assert len(desk.book.rounds) == 2
        await desk.answer(1)
        assert desk.book.rounds[-1].wishes == [("a", 2)]

    scenario(test)


def test_an_empty_answer_cools_a_queue_down_until_a_hint_or_a_look() -> None:
    async def test() -> None:
        desk = Desk(a=4)
        desk.start()
        await desk.answer(1)
        assert len(desk.book.rounds) == 1 or desk.book.rounds[-1].wishes == []
        desk.poller.wake(["other", "a"])
        await desk.turn()
        if desk.book.rounds[-1].look:
            await desk.answer()
        assert desk.book.rounds[-1].wishes == [("a", 3)]

    scenario(test)


def test_a_hint_during_a_claim_keeps_the_queue_hot() -> None:
    async def test() -> None:
        desk = Desk(a=4)
        desk.start()
        desk.poller.wake(["a"])
        await desk.turn()
        await desk.answer(0)
        assert desk.book.rounds[-1].wishes == [("a", 4)]

    scenario(test)


def test_a_look_wakes_only_the_queues_that_are_due() -> None:
    async def test() -> None:
        desk = Desk(a=2, b=2)
        desk.start()
        await desk.answer(0, 0)
        desk.poller.look()
        await desk.turn()
        last = desk.book.rounds[-1]
        assert last.wishes == []
        assert sorted(last.look) == ["a", "b"]
        await desk.answer(due=["b"])
        assert desk.book.rounds[-1].wishes == [("b", 2)]

    scenario(test)


def test_RT5_polls_are_jittered_by_a_fifth() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        for random, expected in ((0.0, 0.8), (0.999999, 1.2)):
            desk = Desk(a=1)
            desk.clock.random = lambda random=random: random  # type: ignore[method-assign]
            desk.start()
            assert desk.poller._timer is not None
            assert abs(desk.poller._timer.when() - loop.time() - expected) < 0.1
            desk.poller.stop()

    scenario(test)


def test_with_a_healthy_listener_polls_are_rare() -> None:
    async def test() -> None:
        desk = Desk(a=1)
        desk.poller.informed = lambda: True
        desk.start()
        assert desk.poller._timer is not None
        assert desk.poller._timer.when() - asyncio.get_running_loop().time() > 3.9

    scenario(test)


def test_QU7_a_failing_queue_holds_up_no_other_and_is_tried_again() -> None:
    async def test() -> None:
        desk = Desk(a=1, b=1)
        desk.start()
        desk.poller.claim_failed("a", 1, START)
        desk.poller.claimed("b", 1, True, START, [claimed(1)], over=False)
        desk.poller.round_over()
        await desk.turn()
        desk.producers["b"].released()
        desk.poller.pulse()
        await desk.turn()
        assert desk.book.rounds[-1].wishes == [("b", 1)]
        await desk.answer(0)
        desk.clock.advance(1)
        desk.poller.pulse()
        await desk.turn()
        assert desk.book.rounds[-1].wishes == [("a", 1)]

    scenario(test)


def test_ML2_a_node_that_cannot_record_claims_nothing() -> None:
    async def test() -> None:
        desk = Desk(a=10)
        desk.can_record = False
        desk.start()
        assert desk.book.rounds == []
        assert desk.poller.starved
        desk.can_record = True
        desk.backlog.unrecorded = 10 + ROOM
        desk.poller.pulse()
        await desk.turn()
        assert desk.book.rounds == []
        desk.backlog.unrecorded = 8 + ROOM
        desk.poller.pulse()
        await desk.turn()
        assert desk.book.rounds[-1].wishes == [("a", 2)]

    scenario(test)


def test_paused_queues_and_queues_of_limit_zero_are_left_alone() -> None:
    async def test() -> None:
        desk = Desk(a=2, b=2, c=2)
        desk.producers["a"].paused = True
        desk.producers["b"].limit = 0
        desk.start()
        assert desk.book.rounds[0].wishes == [("c", 2)]

    scenario(test)


def test_QU3_each_round_begins_with_another_queue() -> None:
    async def test() -> None:
        desk = Desk(a=1, b=1, c=1)
        first = []
        desk.start()
        for _ in range(6):
            first.append(desk.book.rounds[-1].wishes[0][0])
            await desk.answer(1, 1, 1)
            for producer in desk.producers.values():
                producer.released()
            desk.poller.pulse()
            await desk.turn()
        assert set(first) == {"a", "b", "c"}

    scenario(test)


def test_a_stopped_poller_hands_over_what_still_arrives() -> None:
    async def test() -> None:
        desk = Desk(a=3)
        desk.start()
        desk.poller.stop()
        assert not desk.poller.idle
        await desk.answer(2)
        assert desk.accepted == [0, 1]
        assert desk.poller.idle
        assert len(desk.book.rounds) == 1

    scenario(test)


def test_claims_are_named_by_ascending_instants_under_any_clock() -> None:
    clock = HandClock()
    claims = Claims(clock)
    first, second = claims.next(), claims.next()
    clock.advance(-60)
    third = claims.next()
    assert first < second < third
    claims.landed(second)
    assert claims.in_flight() == {first, third}


def test_known_workers_are_looked_up_once_and_unknown_ones_told_once() -> None:
    class Plain(Worker, name="plain"):
        def perform(self, job: object) -> None: ...  # type: ignore[override]

    asked: list[str] = []
    told: list[tuple[str, str]] = []

    class Registry:
        def resolve(self, name: str) -> type[Worker] | None:
            asked.append(name)
            if name == "broken":
                raise ImportError("no module")
            return Plain if name == "plain" else None

    known = Known(Registry(), lambda name, error: told.append((name, error)))
    assert known.knows("plain")
    assert known.knows("plain")
    assert not known.knows("gone")
    assert not known.knows("gone")
    assert not known.knows("broken")
    assert asked.count("plain") == 1
    assert told == [("gone", ""), ("broken", "ImportError: no module")]
    assert known.skip == {"gone", "broken"}
    assert known.reconsider(lambda name: name == "gone")
    assert known.skip == {"broken"}
    assert not known.reconsider(lambda name: False)


def test_RT5_pauses_after_failures_grow_and_are_jittered() -> None:
    assert pause_after(1, 0.0) == FIRST_PAUSE
    assert pause_after(1, 1.0) == FIRST_PAUSE / 2
    assert pause_after(4, 0.0) == FIRST_PAUSE * 8
    assert pause_after(10_000, 0.0) == LONGEST_PAUSE
