"""Claiming: in order, once, only by a live node."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection

from jobkit.storage.base import ClaimWish
from jobkit.storage.engine import node_connection
from jobkit.storage.portable import PortableStorage
from tests.storage.support import NOW, SECOND, Database


def test_a_claim_takes_the_job_and_carries_all_that_a_run_needs(db: Database, conn: Connection) -> None:
    node = db.node()
    job_id = db.add(args={"n": 1}, meta={"m": "ü"}, tags=["t"], attempt=2, max_attempts=7, priority=3)

    [job] = db.storage.claim(conn, "default", 5, node=node, at=NOW)

    assert (job.id, job.worker, job.queue, job.attempt, job.max_attempts, job.priority) == (
        job_id, "echo", "default", 3, 7, 3,
    )  # fmt: skip
    assert (job.inserted_at, job.scheduled_at, job.attempted_at) == (NOW, NOW, NOW)
    assert job.inserted_at.tzinfo is UTC
    assert isinstance(job.args, str | bytes)
    row = db.row(job_id)
    assert (row.state, row.attempt, row.attempted_by, row.attempted_at) == ("executing", 3, node, NOW)


def test_QU3_a_claim_follows_priority_then_time_then_id(db: Database, conn: Connection) -> None:
    node = db.node()
    late = db.add(scheduled_at=NOW)
    early = db.add(scheduled_at=NOW - SECOND)
    urgent = db.add(priority=0, scheduled_at=NOW - SECOND)
    low = db.add(priority=9, scheduled_at=NOW - 9 * SECOND)

    first = db.storage.claim(conn, "default", 3, node=node, at=NOW)
    second = db.storage.claim(conn, "default", 3, node=node, at=NOW + SECOND)

    assert [job.id for job in first] == [early, urgent, late]
    assert [job.id for job in second] == [low]


def test_a_claim_tolerates_a_clock_that_is_a_second_ahead(db: Database, conn: Connection) -> None:
    node = db.node()
    ahead = db.add(scheduled_at=NOW + SECOND)
    db.add(scheduled_at=NOW + SECOND + timedelta(microseconds=1))

    assert [job.id for job in db.storage.claim(conn, "default", 9, node=node, at=NOW)] == [ahead]


def test_a_claim_skips_workers_and_other_queues_and_states(db: Database, conn: Connection) -> None:
    node = db.node()
    db.add(worker="unknown")
    db.add(queue="mail")
    db.add(state="scheduled")
    wanted = db.add()

    jobs = db.storage.claim(conn, "default", 9, node=node, at=NOW, skip={"unknown", "other"})

    assert [job.id for job in jobs] == [wanted]
    assert db.storage.due_queues(conn, ["default", "mail"], now=NOW, skip={"echo"}) == ["default"]


def test_a_node_without_a_live_row_claims_nothing(db: Database, conn: Connection) -> None:
    db.add()
    db.node("lost")
    db.storage.rescue(conn, {"lost": 0}, now=NOW, limit=9, error_text="orphaned")

    assert db.storage.claim(conn, "default", 9, node="lost", at=NOW) == []
    assert db.storage.claim(conn, "default", 9, node="never-there", at=NOW) == []


def test_due_queues_names_queues_with_a_claimable_row(db: Database, conn: Connection) -> None:
    db.add(queue="due")
    db.add(queue="later", scheduled_at=NOW + 5 * SECOND)
    db.add(queue="done", state="completed")

    found = db.storage.due_queues(conn, ["due", "later", "done", "empty"], now=NOW)

    assert found == ["due"]
    assert db.storage.due_queues(conn, [], now=NOW) == []


def test_DB14_ids_beyond_32_bits_are_claimed_and_recorded(db: Database, conn: Connection) -> None:
    node = db.node()
    big = 2**53 + 1
    db.add(id=big)

    [job] = db.storage.claim(conn, "default", 9, node=node, at=NOW)

    assert job.id == big
    assert db.storage.give_back(conn, [job.lease], now=NOW) == [job.lease]
    assert db.storage.visible(conn, [big, 1]) == {big}


def test_racing_claims_take_each_job_exactly_once(db: Database) -> None:
    ids = [db.add() for _ in range(120)]
    taken: list[int] = []
    errors: list[BaseException] = []

    def drain(name: str) -> None:
        try:
            with node_connection(db.engine, autocommit=True) as conn:
                db.storage.register_node(conn, name, now=NOW, queues={}, info={})
                at = NOW
                misses = 0
                while misses < 3:
                    at += timedelta(microseconds=1)
                    jobs = db.storage.claim(conn, "default", 7, node=name, at=at)
                    misses = 0 if jobs else misses + 1
                    taken.extend(job.id for job in jobs)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=drain, args=(f"n{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert sorted(taken) == ids
    assert {db.row(job_id).attempt for job_id in ids} == {1}


@pytest.mark.parametrize("arm", ["portable"])
def test_a_claim_that_lost_some_rows_to_a_rival_looks_again_at_once(
    db: Database, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [db.add() for _ in range(8)]
    node, rival = db.node(), db.node("rival")
    look, rivals = PortableStorage._due_ids, [3, 1]

    def overtaken(self: PortableStorage, conn: Connection, wish: ClaimWish, at: datetime) -> list[int]:
        found = look(self, conn, wish, at)
        if rivals and conn is not db.conn:
            db.claim(rivals.pop(0), node=rival)
        return found

    monkeypatch.setattr(PortableStorage, "_due_ids", overtaken)
    jobs = db.storage.claim(conn, "default", 4, node=node, at=NOW + SECOND)

    assert len(jobs) == 4
    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert {job.lease.at for job in jobs} == {NOW + SECOND}
    assert sorted(db.states()[id] for id in ids) == ["executing"] * 8


def test_an_exchange_records_and_claims(db: Database, conn: Connection) -> None:
    from jobkit.jobs import JobState
    from jobkit.storage.base import Change

    node = db.node()
    db.add()
    [first] = db.storage.claim(conn, "default", 1, node=node, at=NOW)
    second, mail = db.add(), db.add(queue="mail")
    wishes = [ClaimWish("default", 5), ClaimWish("mail", 5), ClaimWish("empty", 5)]

    exchanged = db.storage.exchange(
        conn, [Change(JobState.COMPLETED, NOW, first.lease)], wishes, node=node, at=NOW + SECOND
    )

    assert [change.job_id for change in exchanged.landed] == [first.id]
    assert Counter(job.id for job in exchanged.claimed) == Counter([second, mail])
    assert db.row(first.id).state == "completed"
