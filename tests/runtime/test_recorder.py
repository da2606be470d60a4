"""The recorder: nothing is lost, whatever the database says."""

from __future__ import annotations

import dataclasses
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import cast

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from jobkit import JobInfo, JobState, Worker
from jobkit.jobs import Lease
from jobkit.runtime.logs import Outage
from jobkit.runtime.recorder import BATCH, Recorder
from jobkit.runtime.settle import Settled
from jobkit.storage.base import Change, ClaimedJob, ErrorEntry, Storage
from jobkit.storage.engine import node_connection
from tests.runtime.nodes import App
from tests.runtime.support import HandClock


class Plain(Worker, name="plain"):
    async def perform(self, job: JobInfo) -> None: ...


class Refusing:
    """The real storage, which refuses what it is told to."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.refuse: Callable[[Sequence[Change]], Exception | None] = lambda changes: None
        self.swallow_reply = False
        self.batches: list[int] = []

    def made(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        return self.storage.made(conn, changes)

    def transition(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        self.batches.append(len(changes))
        if (error := self.refuse(changes)) is not None:
            raise error
        landed = self.storage.transition(conn, changes)
        if self.swallow_reply:
            self.swallow_reply = False
            raise lost(changes)
        return landed


class Bench:
    """A recorder on a real database, with jobs that a node has claimed."""

    def __init__(self, url: str) -> None:
        self.app = App(url, [Plain])
        self.clock = HandClock()
        self.storage = Refusing(self.app.core.storage)
        self.reported: list[tuple[int, bool]] = []
        self.recorder = Recorder(
            cast(Storage, self.storage),
            clock=self.clock,
            outage=Outage(self.clock.monotonic),
            recorded=self._recorded,
        )
        self.conn = node_connection(self.app.core.engine, autocommit=True)

    def _recorded(self, batch: Sequence[Settled], landed: Sequence[Change]) -> None:
        there = {change.lease for change in landed}
        self.reported += [(settled.lease.id, settled.lease in there) for settled in batch]

    def results(self, count: int, error: str | None = None) -> list[Settled]:
        """Claim so many jobs and hold their results."""
        self.app.enqueue(*[Plain() for _ in range(count)])
        now = datetime.now(UTC)
        storage = self.app.core.storage
        storage.register_node(self.conn, "n", now=now, queues={}, info={})
        jobs = storage.claim(self.conn, "default", count, node="n", at=now)
        results = [self._settled(job, error) for job in jobs]
        for settled in results:
            self.recorder.add(settled)
        return results

    def _settled(self, job: ClaimedJob, error: str | None) -> Settled:
        at = datetime.now(UTC)
        change = Change(lease=job.lease, to=JobState.COMPLETED, at=at)
        if error is not None:
            entry = ErrorEntry(attempt=1, at=at, error=error)
            change = Change(lease=job.lease, to=JobState.DISCARDED, at=at, error=entry)
        return Settled(job, job.lease, change, "completed", at, 1.0)

    def round(self) -> None:
        """One round of the recording thread."""
        while batch := self.recorder.take():
            self.recorder.store(self.conn, batch)


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    made = Bench(database_url)
    yield made
    made.conn.close()
    made.app.core.close()


def lost(changes: Sequence[Change]) -> Exception:
    return OperationalError("UPDATE", {}, Exception("gone"), connection_invalidated=True)


def test_what_piled_up_is_recorded_in_one_statement(bench: Bench) -> None:
    results = bench.results(40)
    bench.round()
    assert bench.storage.batches == [40]
    assert bench.app.states() == ["completed"] * 40
    assert bench.recorder.unrecorded == 0
    assert bench.reported == [(settled.lease.id, True) for settled in results]


def test_DB1_results_whose_reply_was_lost_are_no_lost_leases(bench: Bench) -> None:
    results = bench.results(4)
    stolen = results[0].lease.id
    bench.storage.swallow_reply = True
    with pytest.raises(OperationalError):
        bench.round()
    bench.app.change(stolen, state="executing", attempted_by="another")
    assert bench.recorder.unrecorded == 4
    bench.round()
    assert bench.reported == [(settled.lease.id, settled.lease.id != stolen) for settled in results]
    assert bench.recorder.unrecorded == 0


def test_DB1_faults_that_pass_keep_the_batch_in_order(bench: Bench) -> None:
    results = bench.results(5)
    bench.storage.refuse = lost
    with pytest.raises(OperationalError):
        bench.round()
    assert bench.recorder.unrecorded == 5
    assert bench.recorder.leases() == [settled.lease for settled in results]
    bench.storage.refuse = lambda changes: None
    bench.round()
    assert bench.app.states() == ["completed"] * 5
    assert [id for id, _ in bench.reported] == [settled.lease.id for settled in results]


def test_a_fault_in_the_middle_keeps_only_what_is_left(bench: Bench) -> None:
    results = bench.results(8)
    bad = results[6].lease

    def refuse(changes: Sequence[Change]) -> Exception | None:
        if len(changes) == 8:
            return ValueError("data")
        return lost(changes) if any(change.lease == bad for change in changes) else None

    bench.storage.refuse = refuse
    with pytest.raises(OperationalError):
        bench.round()
    assert bench.recorder.unrecorded == 4
    bench.storage.refuse = lambda changes: None
    bench.round()
    assert bench.app.states() == ["completed"] * 8
    assert sorted(bench.reported) == [(settled.lease.id, True) for settled in results]


def test_ER3_a_row_whose_details_cannot_be_stored_is_recorded_without_them(bench: Bench) -> None:
    results = bench.results(8, error="ValueError: x")
    bad = results[3]

    def refuse(changes: Sequence[Change]) -> Exception | None:
        hit = any(c.lease == bad.lease and c.error and c.error.error == "ValueError: x" for c in changes)
        return ValueError("this text") if hit else None

    bench.storage.refuse = refuse
    bench.round()
    assert bench.app.states() == ["discarded"] * 8
    errors = [bench.app.row(settled.lease.id).errors[0]["error"] for settled in results]
    assert errors.count("ValueError: x") == 7
    assert errors[3] == "ValueError: the error could not be stored"
    assert max(bench.storage.batches) == 8
    assert len(bench.storage.batches) < 10


def test_a_row_that_is_refused_altogether_is_tried_again_later_and_holds_up_nobody(bench: Bench) -> None:
    results = bench.results(4)
    bad = results[0].lease
    refusing = True
    bench.storage.refuse = lambda changes: (
        ValueError("hook") if refusing and any(c.lease == bad for c in changes) else None
    )
    bench.round()
    assert bench.app.states() == ["executing", "completed", "completed", "completed"]
    assert bench.recorder.leases() == [bad]
    due = bench.recorder.next_due()
    assert due is not None
    assert 0 < due <= 2
    bench.round()
    assert bench.app.states()[0] == "executing"
    refusing = False
    bench.clock.advance(due + 0.01)
    bench.round()
    assert bench.app.states() == ["completed"] * 4
    assert bench.recorder.unrecorded == 0
    assert bench.recorder.next_due() is None


def test_pauses_before_further_tries_grow(bench: Bench) -> None:
    bench.results(1)
    bench.storage.refuse = lambda changes: ValueError("hook")
    pauses = []
    for _ in range(12):
        bench.round()
        due = bench.recorder.next_due()
        assert due is not None
        pauses.append(due)
        bench.clock.advance(due)
    assert pauses[0] < 1
    assert all(later >= earlier for earlier, later in itertools.pairwise(pauses))
    assert pauses[-1] <= 60


def test_DB9_a_statement_timeout_makes_smaller_batches(bench: Bench) -> None:
    bench.results(64)

    class Cancelled(Exception):
        sqlstate = "57014"

    bench.storage.refuse = lambda changes: Cancelled() if len(changes) > 10 else None
    bench.round()
    assert bench.app.states() == ["completed"] * 64


def test_a_result_whose_lease_was_lost_is_reported_as_such_and_writes_nothing(bench: Bench) -> None:
    first, second = bench.results(2)
    bench.app.change(first.lease.id, state="cancelled")
    bench.round()
    assert bench.app.states() == ["cancelled", "completed"]
    assert bench.reported == [(first.lease.id, False), (second.lease.id, True)]


def test_a_result_without_a_change_is_only_reported(bench: Bench) -> None:
    [settled] = bench.results(1)
    bench.round()
    bench.recorder.add(dataclasses.replace(settled, change=None))
    bench.round()
    assert bench.storage.batches == [1]
    assert bench.reported[-1] == (settled.lease.id, False)


def test_a_batch_has_an_upper_size(bench: Bench) -> None:
    job = ClaimedJob(1, "w", "q", "{}", "{}", "[]", 1, 1, 0, *[datetime.now(UTC)] * 2, "n", datetime.now(UTC))
    for number in range(BATCH + 5):
        change = Change(
            lease=Lease(number + 1, "n", job.attempted_at), to=JobState.COMPLETED, at=job.attempted_at
        )
        assert change.lease is not None
        bench.recorder.add(Settled(job, change.lease, change, "completed", job.attempted_at, 0.0))
    bench.round()
    assert bench.storage.batches == [BATCH, 5]


def test_ML1_what_was_recorded_is_let_go(bench: Bench) -> None:
    def held() -> int:
        gc.collect()
        return sum(1 for thing in gc.get_objects() if isinstance(thing, Settled))

    before = held()
    for _ in range(3):
        bench.results(20)
        bench.round()
    assert held() <= before
