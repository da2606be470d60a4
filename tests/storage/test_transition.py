"""Recording: every shape of change, fenced by lease or by state."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from jobkit.jobs import FINAL, JobState, Lease, Transition
from jobkit.storage.base import Change, ErrorEntry, Observers
from jobkit.storage.choice import make_storage
from tests.storage.support import NOW, SECOND, Database

LATER = NOW + 60 * SECOND


def test_done_completes_the_job_and_releases_its_key(db: Database, conn: Connection) -> None:
    db.node()
    lease = db.claimed(unique_key="k", meta={"unique_states": "incomplete"})
    change = Change(JobState.COMPLETED, LATER, lease)

    assert db.storage.transition(conn, [change]) == [change]

    row = db.row(lease.id)
    assert (row.state, row.completed_at, row.unique_key, row.attempt) == ("completed", LATER, None, 1)


@pytest.mark.parametrize("to", sorted(FINAL))
def test_UQ6_every_final_state_releases_an_incomplete_key_and_keeps_an_all_key(
    db: Database, conn: Connection, to: JobState
) -> None:
    db.node()
    released = db.claimed(unique_key="a")
    kept = db.claimed(unique_key="b", meta={"unique_states": "all"})

    db.storage.transition(conn, [Change(to, LATER, released), Change(to, LATER, kept)])

    assert (db.row(released.id).unique_key, db.row(kept.id).unique_key) == (None, "b")
    assert getattr(db.row(kept.id), f"{to}_at") == LATER


def test_RT2_a_snooze_gives_the_attempt_back_counts_itself_and_keeps_the_key(
    db: Database, conn: Connection
) -> None:
    db.node()
    lease = db.claimed(unique_key="k", meta={"a": 1, "snoozed": 2})

    db.storage.transition(
        conn,
        [Change(JobState.SCHEDULED, NOW, lease, scheduled_at=LATER, attempt_delta=-1, snoozed=True)],
    )

    row = db.row(lease.id)
    assert (row.state, row.scheduled_at, row.attempt, row.unique_key) == ("scheduled", LATER, 0, "k")
    assert json.loads(row.meta) == {"a": 1, "snoozed": 3}


def test_a_failure_becomes_retryable_with_its_error_appended(db: Database, conn: Connection) -> None:
    db.node()
    old = {"attempt": 0, "at": "2026-01-01T00:00:00.000000Z", "error": "old"}
    lease = db.claimed(errors=[old], unique_key="k")
    text = "ValueError: ü \"quoted\" \\ 'x' %s :name {jobs}\nline"

    db.storage.transition(
        conn, [Change(JobState.RETRYABLE, NOW, lease, scheduled_at=LATER, error=ErrorEntry(1, NOW, text))]
    )

    row = db.row(lease.id)
    assert (row.state, row.scheduled_at, row.unique_key) == ("retryable", LATER, "k")
    assert json.loads(row.errors) == [
        old,
        {"attempt": 1, "at": "2026-06-01T12:00:00.123456Z", "error": text},
    ]


def test_ER4_only_the_newest_twenty_errors_are_kept(db: Database, conn: Connection) -> None:
    db.node()
    errors = [{"attempt": n, "at": "x", "error": str(n)} for n in range(20)]
    lease = db.claimed(errors=errors)

    db.storage.transition(conn, [Change(JobState.DISCARDED, NOW, lease, error=ErrorEntry(20, NOW, "last"))])

    kept = json.loads(db.row(lease.id).errors)
    assert [entry["attempt"] for entry in kept] == list(range(1, 21))


def test_an_attempt_never_falls_below_zero(db: Database, conn: Connection) -> None:
    db.node()
    lease = db.claimed()
    db.set(lease.id, attempt=0)

    assert db.storage.give_back(conn, [lease], now=NOW) == [lease]

    assert (db.row(lease.id).state, db.row(lease.id).attempt) == ("available", 0)


def test_a_run_that_lost_its_lease_writes_nothing(db: Database, conn: Connection) -> None:
    db.node()
    lease = db.claimed()
    stale = [
        Change(JobState.COMPLETED, NOW, Lease(lease.id, "b", lease.at)),
        Change(JobState.COMPLETED, NOW, Lease(lease.id, "a", lease.at - timedelta(microseconds=1))),
        Change(JobState.COMPLETED, NOW, Lease(lease.id + 1, "a", lease.at)),
    ]
    good = Change(JobState.COMPLETED, LATER, lease)

    assert db.storage.transition(conn, [*stale, good]) == [good]
    assert db.storage.transition(conn, [good]) == []
    assert db.row(lease.id).completed_at == LATER


def test_a_batch_of_many_shapes_lands_in_order(db: Database, conn: Connection) -> None:
    db.node()
    leases = [db.claimed() for _ in range(8)]
    shapes = [
        lambda lease: Change(JobState.COMPLETED, NOW, lease),
        lambda lease: Change(
            JobState.RETRYABLE, NOW, lease, scheduled_at=LATER, error=ErrorEntry(1, NOW, "e")
        ),
        lambda lease: Change(JobState.CANCELLED, NOW, lease, error=ErrorEntry(1, NOW, "c")),
        lambda lease: Change(JobState.AVAILABLE, NOW, lease, attempt_delta=-1),
    ]
    changes = [shapes[n % 4](lease) for n, lease in enumerate(leases)]

    assert db.storage.transition(conn, changes) == changes

    assert list(db.states().values()) == ["completed", "retryable", "cancelled", "available"] * 2


def test_a_large_batch_lands_whole(db: Database, conn: Connection) -> None:
    db.node()
    ids = [db.add() for _ in range(700)]
    jobs = db.storage.claim(conn, "default", 1_000, node="a", at=NOW)
    assert [job.id for job in jobs] == ids

    landed = db.storage.transition(conn, [Change(JobState.COMPLETED, NOW, job.lease) for job in jobs])

    assert len(landed) == 700
    assert set(db.states().values()) == {"completed"}


def test_a_change_by_state_lands_only_in_the_states_expected(db: Database, conn: Connection) -> None:
    waiting, done = db.add(state="scheduled"), db.add(state="completed")
    expect = frozenset({JobState.AVAILABLE, JobState.SCHEDULED, JobState.RETRYABLE, JobState.EXECUTING})
    changes = [Change(JobState.CANCELLED, NOW, id=job_id, expect=expect) for job_id in (done, waiting)]

    assert db.storage.transition(conn, changes) == [changes[1]]

    assert db.states() == {waiting: "cancelled", done: "completed"}


def test_a_retry_leaves_the_final_state_clean(db: Database, conn: Connection) -> None:
    job_id = db.add(state="discarded", discarded_at=NOW, attempt=20, max_attempts=20)
    change = Change(
        JobState.AVAILABLE, LATER, id=job_id, expect=FINAL, scheduled_at=LATER, spare_attempt=True
    )

    assert db.storage.transition(conn, [change]) == [change]

    row = db.row(job_id)
    assert (row.state, row.discarded_at, row.max_attempts, row.scheduled_at) == ("available", None, 21, LATER)


def test_an_edit_changes_values_and_leaves_the_state(db: Database, conn: Connection) -> None:
    job_id = db.add(state="retryable")
    change = Change(
        None, NOW, id=job_id, expect=frozenset({JobState.RETRYABLE}), queue="mail", priority=7,
        max_attempts=3, tags='["a","ü"]', scheduled_at=LATER,
    )  # fmt: skip

    assert db.storage.transition(conn, [change]) == [change]

    row = db.row(job_id)
    assert (row.state, row.queue, row.priority, row.max_attempts) == ("retryable", "mail", 7, 3)
    assert (json.loads(row.tags), row.scheduled_at) == (["a", "ü"], LATER)


def test_nothing_but_a_claim_makes_a_job_executing(db: Database, conn: Connection) -> None:
    change = Change(JobState.EXECUTING, NOW, id=1, expect=frozenset({JobState.AVAILABLE}))
    with pytest.raises(ValueError, match="claim"):
        db.storage.transition(conn, [change])
    with pytest.raises(ValueError, match="fenced"):
        db.storage.transition(conn, [Change(JobState.AVAILABLE, NOW)])


def test_observers_see_each_change_with_its_old_state(db: Database, conn: Connection, arm: str) -> None:
    seen: list[Transition] = []
    observers = Observers(transitions=lambda _, moves: seen.extend(moves))
    storage = make_storage(db.engine.dialect.name, db.tables, arm=arm, observers=observers)  # type: ignore[arg-type]
    db.node()
    first = db.claimed()
    second, third = db.add(state="retryable"), db.add(state="scheduled", attempt=4)
    expect = frozenset({JobState.SCHEDULED, JobState.RETRYABLE, JobState.AVAILABLE})
    changes = [
        Change(JobState.COMPLETED, NOW, first),
        Change(JobState.CANCELLED, NOW, id=third, expect=expect),
        Change(JobState.CANCELLED, NOW, id=second, expect=expect),
        Change(None, NOW, id=second, expect=frozenset({JobState.CANCELLED}), priority=1),
    ]

    assert storage.observed
    assert storage.transition(conn, changes) == changes

    moves = {(move.id, move.old, move.new, move.attempt) for move in seen}
    assert moves == {
        (first.id, JobState.EXECUTING, JobState.COMPLETED, 1),
        (second, JobState.RETRYABLE, JobState.CANCELLED, 0),
        (third, JobState.SCHEDULED, JobState.CANCELLED, 4),
    }
    seen.clear()
    fourth = db.add(state="scheduled", scheduled_at=NOW)
    storage.stage(conn, now=NOW, limit=5)
    storage.claim(conn, "default", 5, node="a", at=LATER)
    assert [(move.id, move.old, move.new) for move in seen] == [
        (fourth, JobState.SCHEDULED, JobState.AVAILABLE),
        (fourth, JobState.AVAILABLE, JobState.EXECUTING),
    ]


def test_an_observer_that_raises_rolls_the_change_back(db: Database, conn: Connection, arm: str) -> None:
    def refuse(_: Connection, moves: list[Transition]) -> None:
        raise RuntimeError("no")

    storage = make_storage(
        db.engine.dialect.name,
        db.tables,
        arm=arm,  # type: ignore[arg-type]
        observers=Observers(transitions=refuse),
    )
    db.node()
    lease = db.claimed()
    waiting = db.add(state="scheduled")

    with pytest.raises(RuntimeError):
        storage.transition(conn, [Change(JobState.COMPLETED, NOW, lease)])
    with pytest.raises(RuntimeError):
        storage.stage(conn, now=NOW, limit=5)

    assert db.states() == {lease.id: "executing", waiting: "scheduled"}


def test_a_change_joins_the_callers_transaction(db: Database) -> None:
    db.node()
    lease = db.claimed()

    with db.engine.connect() as conn:
        transaction = conn.begin()
        assert db.storage.transition(conn, [Change(JobState.COMPLETED, NOW, lease)])
        transaction.rollback()

    assert db.states() == {lease.id: "executing"}
