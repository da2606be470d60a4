"""Staging, rescue, unknown workers, pruning."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from jobkit.jobs import JobState
from jobkit.storage.base import Change, Rescued
from jobkit.storage.engine import node_connection
from jobkit.storage.upkeep import Upkeep
from tests.storage.support import NOW, SECOND, Database


def refuse_changes_of(db: Database, *job_ids: int) -> None:
    """A rule of the database that some rows break, as a user's own trigger may."""
    ids = ", ".join(map(str, job_ids))
    table = db.tables.jobs.name
    if db.engine.dialect.name == "sqlite":
        db.conn.exec_driver_sql(
            f"CREATE TRIGGER refuse BEFORE UPDATE ON {table} WHEN old.id IN ({ids}) "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
        return
    db.conn.exec_driver_sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF OLD.id IN ({ids}) THEN RAISE EXCEPTION 'refused'; END IF; RETURN NEW; END $$"
    )
    db.conn.exec_driver_sql(
        f"CREATE TRIGGER refuse BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
    )


# --- staging


def test_due_rows_become_available_and_name_their_queues(db: Database, conn: Connection) -> None:
    due = db.add(state="scheduled", queue="a")
    retry = db.add(state="retryable", queue="b")
    later = db.add(state="scheduled", scheduled_at=NOW + SECOND)

    staged = db.storage.stage(conn, now=NOW, limit=100)

    assert (staged.count, staged.queues) == (2, {"a", "b"})
    assert db.states() == {due: "available", retry: "available", later: "scheduled"}
    assert db.storage.stage(conn, now=NOW, limit=100).count == 0


def test_staging_works_in_bounded_batches_oldest_first(db: Database, conn: Connection) -> None:
    ids = [db.add(state="scheduled", scheduled_at=NOW - n * SECOND) for n in range(5)]

    assert db.storage.stage(conn, now=NOW, limit=2).count == 2

    assert [job for job, state in db.states().items() if state == "available"] == ids[-2:]


def test_SC8_a_row_that_cannot_be_promoted_does_not_block_others(db: Database, conn: Connection) -> None:
    ids = [db.add(state="scheduled") for _ in range(7)]
    refuse_changes_of(db, ids[2])

    staged = db.storage.stage(conn, now=NOW, limit=100)

    assert staged.count == 6
    assert [job for job, state in db.states().items() if state == "scheduled"] == [ids[2]]


def test_SC8_a_whole_batch_that_cannot_be_promoted_does_not_block_others(
    db: Database, conn: Connection
) -> None:
    ids = [db.add(state="scheduled") for _ in range(6)]
    refuse_changes_of(db, *ids[:4])

    assert db.storage.stage(conn, now=NOW, limit=2).count == 2

    assert [job for job, state in db.states().items() if state == "scheduled"] == ids[:4]


def test_SC8_a_locked_row_does_not_block_others(db: Database, conn: Connection) -> None:
    if db.engine.dialect.name == "sqlite":
        return  # there are no row locks
    ids = [db.add(state="scheduled") for _ in range(3)]
    with db.engine.begin() as holder:
        holder.execute(text(f"SELECT 1 FROM {db.tables.jobs.name} WHERE id = {ids[0]} FOR UPDATE"))
        assert db.storage.stage(conn, now=NOW, limit=100).count == 2


# --- rescue


def rescue(db: Database, conn: Connection, nodes: dict[str, int] | None = None, limit: int = 100) -> Rescued:
    return db.storage.rescue(
        conn, nodes or {}, now=NOW + 60 * SECOND, limit=limit, error_text="orphaned: its node died"
    )


def test_a_dead_nodes_jobs_run_again(db: Database, conn: Connection) -> None:
    db.node("dead")
    db.node("alive")
    orphan, other = db.claimed(node="dead"), db.claimed(node="alive")

    rescued = rescue(db, conn, {"dead": 0})

    assert (rescued.available, rescued.discarded, rescued.nodes) == (1, 0, {"dead"})
    assert rescued.queues == {"default"}
    assert db.states() == {orphan.id: "available", other.id: "executing"}
    assert db.row(orphan.id).attempt == 1
    assert [node.node for node in db.storage.live_nodes(conn)] == ["alive"]


def test_CW6_a_crash_counts_as_an_attempt_and_the_last_one_discards(db: Database, conn: Connection) -> None:
    db.node("dead")
    lease = db.claimed(node="dead", max_attempts=1, unique_key="k")

    rescued = rescue(db, conn, {"dead": 0})

    row = db.row(lease.id)
    assert (rescued.available, rescued.discarded) == (0, 1)
    assert (row.state, row.unique_key, row.discarded_at) == ("discarded", None, NOW + 60 * SECOND)
    assert json.loads(row.errors)[0]["error"] == "orphaned: its node died"


def test_a_node_that_beat_again_is_not_marked_lost(db: Database, conn: Connection) -> None:
    db.node("slow")
    lease = db.claimed(node="slow")
    assert db.storage.beat(conn, "slow", now=NOW, queues={}, info={}) is not None

    assert rescue(db, conn, {"slow": 0}).available == 0

    assert db.states() == {lease.id: "executing"}
    assert db.storage.beat(conn, "slow", now=NOW, queues={}, info={}) is not None


def test_rows_of_owners_without_a_row_are_rescued_at_every_tick(db: Database, conn: Connection) -> None:
    db.node("gone")
    lease = db.claimed(node="gone")
    nameless = db.add(state="executing")
    assert db.storage.remove_node(conn, "gone")

    assert rescue(db, conn).available == 2

    assert db.states() == {lease.id: "available", nameless: "available"}


def test_CW3_after_a_rescue_the_old_run_records_nothing(db: Database, conn: Connection) -> None:
    db.node("dead")
    lease = db.claimed(node="dead")
    rescue(db, conn, {"dead": 0})

    assert db.storage.transition(conn, [Change(JobState.COMPLETED, NOW, lease)]) == []
    assert db.storage.beat(conn, "dead", now=NOW, queues={}, info={}) is None


def test_CW4_a_recorded_outcome_is_not_rescued(db: Database, conn: Connection) -> None:
    db.node("dead")
    done, orphan = db.claimed(node="dead"), db.claimed(node="dead")
    db.storage.transition(conn, [Change(JobState.COMPLETED, NOW, done)])

    assert rescue(db, conn, {"dead": 0}).available == 1

    assert db.states() == {done.id: "completed", orphan.id: "available"}


def test_CW5_nodes_that_rescue_together_have_the_effect_of_one(db: Database) -> None:
    db.node("dead")
    ids = [db.claimed(node="dead").id for _ in range(30)]
    results: list[Rescued] = []
    errors: list[BaseException] = []

    def tick() -> None:
        try:
            with node_connection(db.engine, autocommit=False) as conn:
                results.append(rescue(db, conn, {"dead": 0}))
                results.append(rescue(db, conn))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=tick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert sum(result.available for result in results) == 30
    assert db.states() == dict.fromkeys(ids, "available")


def test_CW12_rescue_goes_past_rows_that_it_must_leave_alone(db: Database, conn: Connection) -> None:
    db.node("dead")
    db.node("alive")
    for _ in range(3):
        db.claimed(node="alive")
    stuck, free = db.claimed(node="dead"), db.claimed(node="dead")
    refuse_changes_of(db, stuck.id)

    assert rescue(db, conn, {"dead": 0}, limit=2).available == 1

    assert db.states()[free.id] == "available"
    assert db.states()[stuck.id] == "executing"


def test_CW12_rescue_goes_past_a_whole_batch_that_it_must_leave_alone(db: Database, conn: Connection) -> None:
    db.node("dead")
    leases = [db.claimed(node="dead") for _ in range(6)]
    refuse_changes_of(db, *[lease.id for lease in leases[:4]])

    assert rescue(db, conn, {"dead": 0}, limit=2).available == 2

    assert [db.states()[lease.id] for lease in leases] == ["executing"] * 4 + ["available"] * 2


def test_CW4_what_changed_hands_between_the_look_and_the_change_is_left_alone(
    db: Database, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.node("dead")
    db.node("alive")
    done, elsewhere, orphan = (db.claimed(node="dead") for _ in range(3))
    look = Upkeep._orphans

    def overtaken(self: Upkeep, conn: Connection, limit: int, behind: int) -> Any:
        rows = look(self, conn, limit, behind)
        db.storage.transition(conn, [Change(JobState.COMPLETED, NOW, done)])
        db.storage.give_back(conn, [elsewhere], now=NOW)
        db.storage.claim(conn, "default", 1, node="alive", at=NOW + SECOND)
        return rows

    monkeypatch.setattr(Upkeep, "_orphans", overtaken)
    rescued = rescue(db, conn, {"dead": 0})

    assert (rescued.available, rescued.discarded) == (1, 0)
    assert db.states() == {done.id: "completed", elsewhere.id: "executing", orphan.id: "available"}
    assert (db.row(elsewhere.id).attempted_by, db.row(elsewhere.id).attempt) == ("alive", 1)


# --- unknown workers


def test_CW13_only_names_that_nobody_published_since_the_cutoff_are_discarded(
    db: Database, conn: Connection
) -> None:
    cutoff = NOW - 600 * SECOND
    old = cutoff - SECOND
    db.storage.publish_workers(conn, {"known": "{}"}, now=NOW)
    db.storage.publish_workers(conn, {"stale": "{}"}, now=old)
    known, stale = db.add(worker="known", scheduled_at=old), db.add(worker="stale", scheduled_at=old)
    never, mine = db.add(worker="never", scheduled_at=old), db.add(worker="mine", scheduled_at=old)
    young = db.add(worker="never", scheduled_at=cutoff + SECOND)

    count = db.storage.discard_unknown(conn, names_not_seen_since=cutoff, now=NOW, limit=100, known={"mine"})

    assert count == 2
    assert db.states() == {
        known: "available", stale: "discarded", never: "discarded", mine: "available", young: "available",
    }  # fmt: skip
    assert json.loads(db.row(never).errors)[0]["error"] == "unknown worker: never"


# --- pruning


def test_PR3_retention_counts_from_when_a_job_became_final(db: Database, conn: Connection) -> None:
    before = NOW
    old = NOW - timedelta(days=30)
    gone = [
        db.add(state="completed", completed_at=NOW - SECOND, inserted_at=old),
        db.add(state="cancelled", cancelled_at=NOW - SECOND),
        db.add(state="discarded", discarded_at=NOW - SECOND),
    ]
    kept = [
        db.add(state="completed", completed_at=NOW, inserted_at=old, scheduled_at=old),
        db.add(state="retryable", inserted_at=old, scheduled_at=old, attempted_at=old),
        db.add(state="available", inserted_at=old, scheduled_at=old),
    ]

    assert db.storage.prune(conn, before=before, limit=100) == len(gone)

    assert list(db.states()) == kept


def test_PR1_pruning_works_in_bounded_batches(db: Database, conn: Connection) -> None:
    for n in range(4):
        db.add(state="completed", completed_at=NOW - n * SECOND)
        db.add(state="discarded", discarded_at=NOW - n * SECOND)

    assert db.storage.prune(conn, before=NOW + SECOND, limit=5) == 5
    assert db.storage.prune(conn, before=NOW + SECOND, limit=5) == 3
    assert db.storage.prune(conn, before=NOW + SECOND, limit=5) == 0


def test_PR4_concurrent_pruning_is_safe(db: Database) -> None:
    for _ in range(60):
        db.add(state="completed", completed_at=NOW)
    pruned: list[int] = []
    errors: list[BaseException] = []

    def tick() -> None:
        try:
            with node_connection(db.engine, autocommit=True) as conn:
                for _ in range(8):
                    pruned.append(db.storage.prune(conn, before=NOW + SECOND, limit=10))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=tick) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert sum(pruned) == 60
    assert db.states() == {}


def test_ids_are_never_used_again(db: Database, conn: Connection) -> None:
    last = db.add(state="completed", completed_at=NOW)
    db.storage.prune(conn, before=NOW + SECOND, limit=10)

    assert db.add() > last
