"""Inserting: one, many, unique; races; what callers are told."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from jobkit import JobInfo, Worker
from jobkit._prepare import prepare
from jobkit.errors import EnqueueConflict, EnqueueLocked, NotMigrated
from jobkit.jobs import Inserted, JobState
from jobkit.storage.base import Change, InsertedJob, Observers
from jobkit.storage.choice import make_storage
from jobkit.storage.engine import atomic, configure_sqlite, make_engine, node_connection, retrying
from tests.storage.support import NOW, SECOND, Database, Settings, job_row


class Bare(Worker, name="bare"):
    def perform(self, job: JobInfo) -> None: ...


def rows_with_key(db: Database, key: str) -> int:
    c = db.tables.jobs.c
    return int(db.conn.execute(select(func.count()).where(c.unique_key == key)).scalar_one())


def test_one_job_is_written_as_it_was_prepared(db: Database, conn: Connection) -> None:
    args = '{"text":"ü \\"q\\" \\\\ %s :x {jobs}","big":9007199254740993}'
    row = job_row(args=args, meta={"a": 1}, tags=["x", "y"], priority=4, max_attempts=3, worker="w")

    [inserted] = db.storage.insert(conn, [row])
    if conn.in_transaction():
        conn.commit()

    stored = db.row(inserted.id)
    assert json.loads(stored.args) == json.loads(args)
    assert (json.loads(stored.meta), json.loads(stored.tags)) == ({"a": 1}, ["x", "y"])
    assert (stored.state, stored.worker, stored.priority, stored.max_attempts) == ("available", "w", 4, 3)
    assert (stored.attempt, json.loads(stored.errors), stored.attempted_by) == (0, [], None)
    assert (stored.inserted_at, stored.scheduled_at) == (NOW, NOW)


@pytest.mark.parametrize("size", [1, 3, 600])
def test_JA9_absent_meta_tags_and_errors_are_stored_as_empty_containers(
    db: Database, conn: Connection, size: int
) -> None:
    with atomic(conn):
        results = db.storage.insert(conn, [prepare(Bare(), NOW) for _ in range(size)])

    for result in (results[0], results[-1]):
        row = db.row(result.id)
        assert [json.loads(text) for text in (row.args, row.meta, row.tags, row.errors)] == [{}, {}, [], []]


@pytest.mark.parametrize("size", [3, 80, 205])
def test_a_batch_of_unique_jobs_is_written_as_it_was_prepared(
    db: Database, conn: Connection, size: int
) -> None:
    odd = '"{},\\ \t\n\x01\x7f\u2028 ü 😀 null NULL \\n %s :x {jobs}'
    args = [{"n": n, "text": odd[n % 9 :]} for n in range(size)]
    rows = [
        job_row(args=args[n], meta={odd: n}, tags=[odd], worker="null", unique_key=f"k{n}")
        for n in range(size)
    ]

    with atomic(conn):
        results = db.storage.insert(conn, rows)

    for n in (0, size // 2, size - 1):
        stored = db.row(results[n].id)
        assert json.loads(stored.args) == args[n]
        assert (json.loads(stored.meta), json.loads(stored.tags)) == ({odd: n}, [odd])
        assert (stored.worker, stored.unique_key, stored.inserted_at) == ("null", f"k{n}", NOW)


@pytest.mark.parametrize("size", [2, 30, 1_203])
def test_a_batch_gives_ids_in_the_order_of_its_input(db: Database, conn: Connection, size: int) -> None:
    rows = [job_row(args={"n": n, "t": "a\tb\nc\\d\re"}, state=JobState.SCHEDULED) for n in range(size)]

    with atomic(conn):
        results = db.storage.insert(conn, rows)

    assert [result.duplicate for result in results] == [False] * size
    c = db.tables.jobs.c
    stored = {row.id: json.loads(row.args) for row in db.conn.execute(select(c.id, c.args))}
    assert [stored[result.id]["n"] for result in results] == list(range(size))
    assert stored[results[0].id]["t"] == "a\tb\nc\\d\re"
    assert set(db.states().values()) == {"scheduled"}
    assert db.add() > max(stored)


def test_UQ11_a_batch_honours_uniqueness_also_within_itself(db: Database, conn: Connection) -> None:
    with atomic(conn):
        [old] = db.storage.insert(conn, [job_row(unique_key="old")])
        results = db.storage.insert(
            conn,
            [
                job_row(unique_key="z"),
                job_row(),
                job_row(unique_key="old"),
                job_row(unique_key="a"),
                job_row(unique_key="z"),
                job_row(),
            ],
        )

    assert [result.duplicate for result in results] == [False, False, True, False, True, False]
    assert results[2].id == old.id
    assert results[4].id == results[0].id
    assert results[1].id < results[5].id
    assert db.row(results[3].id).unique_key == "a"
    assert len(db.states()) == 5


def test_UQ9_a_duplicate_leaves_the_callers_transaction_usable(db: Database) -> None:
    db.add(unique_key="k")
    with db.engine.connect() as conn:
        [first] = db.storage.insert(conn, [job_row(unique_key="k")])
        [other] = db.storage.insert(conn, [job_row()])
        conn.commit()

    assert first.duplicate
    assert other.id in db.states()


def test_SC6_an_insert_vanishes_with_its_transaction(db: Database) -> None:
    with db.engine.connect() as conn:
        db.storage.insert(conn, [job_row(), job_row(unique_key="k")])
        conn.rollback()

    assert db.states() == {}


def test_UQ13_a_key_blocks_until_the_job_is_final(db: Database, conn: Connection) -> None:
    db.node()
    lease = db.claimed(unique_key="k", meta={"unique_states": "incomplete"})

    def again() -> Inserted:
        with atomic(conn):
            return db.storage.insert(conn, [job_row(unique_key="k")])[0]

    assert again() == Inserted(lease.id, duplicate=True)
    db.storage.transition(conn, [Change(JobState.RETRYABLE, NOW, lease, scheduled_at=NOW)])
    assert again().duplicate
    db.storage.stage(conn, now=NOW, limit=5)
    [job] = db.claim()
    db.storage.transition(conn, [Change(JobState.COMPLETED, NOW, job.lease)])
    assert not again().duplicate


def test_UQ7_concurrent_identical_inserts_give_one_row_and_one_id_to_all(db: Database) -> None:
    results: list[list[Inserted]] = []
    errors: list[BaseException] = []
    start = threading.Barrier(6)

    def insert() -> None:
        try:
            with node_connection(db.engine, autocommit=False) as conn:
                start.wait(20)
                for n in range(10):
                    rows = [job_row(unique_key=f"k{n}"), job_row(unique_key=f"m{n}")]

                    def once(rows: list[Any] = rows) -> list[Inserted]:
                        with conn.begin():
                            return db.storage.insert(conn, rows)

                    results.append(retrying(once))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=insert) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len(results) == 60
    assert len({result.id for pair in results for result in pair}) == 20
    assert sum(not result.duplicate for pair in results for result in pair) == 20
    assert len(db.states()) == 20


def test_UQ8_a_rival_that_rolls_back_makes_nobody_a_duplicate(db: Database) -> None:
    if db.engine.dialect.name == "sqlite":
        return  # writers do not overlap
    told: list[Inserted] = []
    with db.engine.connect() as rival, rival.begin() as transaction:
        db.storage.insert(rival, [job_row(unique_key="k")])

        def wait_and_insert() -> None:
            with db.engine.begin() as conn:
                told.extend(db.storage.insert(conn, [job_row(unique_key="k")]))

        thread = threading.Thread(target=wait_and_insert)
        thread.start()
        wait_until_blocked(db)
        transaction.rollback()
        thread.join()

    assert [result.duplicate for result in told] == [False]
    assert rows_with_key(db, "k") == 1


def wait_until_blocked(db: Database) -> None:
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    for _ in range(100_000):
        if db.conn.execute(waiting).scalar_one():
            return
    raise AssertionError("nobody waits")


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_duplicate_after_the_snapshot_is_a_conflict_and_leaves_the_transaction_usable(
    db: Database, level: Any
) -> None:
    if db.engine.dialect.name == "sqlite":
        return
    with db.engine.connect().execution_options(isolation_level=level) as conn, conn.begin():
        [seen] = db.storage.insert(conn, [job_row(unique_key="mine")])
        assert db.storage.insert(conn, [job_row(unique_key="mine")]) == [Inserted(seen.id, duplicate=True)]
        db.add(unique_key="k")  # committed by another connection, after our snapshot
        with pytest.raises(EnqueueConflict):
            db.storage.insert(conn, [job_row(unique_key="k")])
        results = db.storage.insert(conn, [job_row(unique_key="b"), job_row(), job_row(unique_key="a")])
        assert [result.duplicate for result in results] == [False, False, False]

    assert len(db.states()) == 5


def test_DB15_another_constraint_is_not_a_duplicate(db: Database) -> None:
    db.conn.exec_driver_sql(f"CREATE UNIQUE INDEX one_worker ON {db.tables.jobs.name} (worker)")
    db.add(worker="taken")
    for rows in ([job_row(worker="taken")], [job_row(worker="taken", unique_key="k")]):
        with db.engine.connect() as conn, pytest.raises(IntegrityError), conn.begin():
            db.storage.insert(conn, rows)


def test_UQ10_batches_of_unique_jobs_do_not_deadlock(db: Database) -> None:
    import random

    errors: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            with node_connection(db.engine, autocommit=False) as conn:
                for n in range(25):
                    keys = [f"{n // 5}-{k}" for k in range(12)]
                    rng.shuffle(keys)
                    with conn.begin():
                        db.storage.insert(conn, [job_row(unique_key=key) for key in keys])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len(db.states()) == 60


def test_a_deadlock_of_the_callers_own_making_is_a_conflict(db: Database) -> None:
    if db.engine.dialect.name == "sqlite":
        return
    outcomes: list[str] = []
    both = threading.Barrier(2)

    def work(first: str, second: str) -> None:
        with db.engine.connect() as conn, conn.begin():
            db.storage.insert(conn, [job_row(unique_key=first)])
            both.wait(20)
            try:
                db.storage.insert(conn, [job_row(unique_key=second)])
                outcomes.append("inserted")
            except EnqueueConflict:
                outcomes.append("conflict")
                conn.get_transaction().rollback()  # type: ignore[union-attr]

    threads = [threading.Thread(target=work, args=keys) for keys in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["conflict", "inserted"]


def test_observers_see_what_was_really_inserted(db: Database, conn: Connection, arm: str) -> None:
    seen: list[InsertedJob] = []
    observers = Observers(inserted=lambda _, jobs: seen.extend(jobs))
    storage = make_storage(db.engine.dialect.name, db.tables, arm=arm, observers=observers)  # type: ignore[arg-type]
    rows = [job_row(unique_key="k"), job_row(unique_key="k"), job_row(worker="other")]

    with atomic(conn):
        results = storage.insert(conn, rows)

    assert {(job.id, job.row.worker) for job in seen} == {(results[0].id, "echo"), (results[2].id, "other")}


def test_nothing_is_inserted_for_no_rows(db: Database, conn: Connection) -> None:
    assert db.storage.insert(conn, []) == []


def test_MG2_missing_tables_name_the_remedy(database_url: str, arm: str) -> None:
    from jobkit.storage.schema import tables_for

    engine = make_engine(Settings(database_url))
    storage = make_storage(engine.dialect.name, tables_for("other_"), arm=arm)  # type: ignore[arg-type]
    with engine.connect() as conn, pytest.raises(NotMigrated, match="jobkit migrate"):
        storage.insert(conn, [job_row()])
    engine.dispose()


def test_a_lock_on_an_unconfigured_sqlite_engine_names_the_remedy(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    from jobkit.storage.migrations import up
    from jobkit.storage.schema import tables_for

    tables = tables_for()
    own = make_engine(Settings(sqlite_url))
    up(own, tables)
    storage = make_storage("sqlite", tables)
    plain = create_engine(sqlite_url, connect_args={"timeout": 0})
    with own.begin(), plain.connect() as conn, pytest.raises(EnqueueLocked, match="configure_sqlite"):
        storage.insert(conn, [job_row()])
    assert caplog.text.count("configure_sqlite") == 1
    configured = create_engine(sqlite_url)
    configure_sqlite(configured)
    with configured.begin() as conn:
        storage.insert(conn, [job_row()])
    assert caplog.text.count("configure_sqlite") == 1
    for engine in (own, plain, configured):
        engine.dispose()


def test_a_key_that_changes_hands_all_the_time_ends_as_a_conflict(db: Database) -> None:
    numbers = count()

    class Fickle(type(db.storage)):  # type: ignore[misc]
        def _holders(self, conn: Connection, keys: Any) -> dict[str, int]:
            next(numbers)
            return {}

    storage = Fickle(db.tables)
    db.add(unique_key="k")
    with db.engine.connect() as conn, pytest.raises((EnqueueConflict, DBAPIError)), conn.begin():
        storage.insert(conn, [job_row(unique_key="k")])
    assert 1 <= next(numbers) <= 10


def test_no_statement_of_an_insert_mentions_a_value(db: Database) -> None:
    statements: list[str] = []
    event.listen(db.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    with db.engine.begin() as conn:
        db.storage.insert(conn, [job_row(worker="secret-name")])
        db.storage.insert(
            conn, [job_row(worker="secret-name", unique_key="k"), job_row(worker="secret-name")]
        )
    assert statements
    assert not any("secret-name" in statement for statement in statements)


def test_schedule_times_far_away_survive(db: Database, conn: Connection) -> None:
    far = NOW + timedelta(days=36_500) + 3 * SECOND
    with atomic(conn):
        [inserted] = db.storage.insert(conn, [job_row(scheduled_at=far, state=JobState.SCHEDULED)])
    assert db.row(inserted.id).scheduled_at == far
