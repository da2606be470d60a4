"""On a database whose transactions are serializable by default, everything is run again until it lands."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from jobkit.jobs import JobState
from jobkit.storage.base import Change, Storage
from jobkit.storage.choice import make_storage
from jobkit.storage.engine import make_engine, node_connection
from jobkit.storage.migrations import up
from jobkit.storage.schema import Tables
from tests.storage.support import NOW, SECOND, Database, Settings

pytestmark = pytest.mark.parametrize("backend", ["postgres"])


@pytest.fixture(params=["serializable", "repeatable read"])
def engine(database_url: str, tables: Tables, request: pytest.FixtureRequest) -> Iterator[Engine]:
    first = make_engine(Settings(database_url))
    up(first, tables)
    with first.begin() as conn:
        name = conn.execute(text("SELECT current_database()")).scalar_one()
        conn.execute(text(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{request.param}'"))
    first.dispose()
    engine = make_engine(Settings(database_url))
    yield engine
    engine.dispose()


@pytest.fixture
def storage(engine: Engine, tables: Tables, arm: str) -> Storage:
    return make_storage(engine.dialect.name, tables, arm=arm)  # type: ignore[arg-type]


def together(*works: Callable[[], None]) -> None:
    """All at once; what one raises, the test raises."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []


def test_DB6_claims_and_records_that_collide_are_run_again(db: Database) -> None:
    ids = [db.add() for _ in range(60)]
    done: list[int] = []

    def work(name: str) -> None:
        with node_connection(db.engine, autocommit=True) as conn:
            db.storage.register_node(conn, name, now=NOW, queues={}, info={})
            at, misses = NOW, 0
            while misses < 5:
                at += timedelta(microseconds=1)
                jobs = db.storage.claim(conn, "default", 5, node=name, at=at)
                misses = 0 if jobs else misses + 1
                changes = [Change(JobState.COMPLETED, NOW, job.lease) for job in jobs]
                done.extend(change.job_id for change in db.storage.transition(conn, changes))

    together(*(lambda n=n: work(f"n{n}") for n in range(3)))  # type: ignore[misc]

    assert sorted(done) == ids
    assert Counter(db.states().values()) == {"completed": 60}


def test_DB6_services_that_collide_are_run_again(db: Database) -> None:
    db.node("dead")
    for _ in range(20):
        db.claimed(node="dead")
    for _ in range(20):
        db.add(state="scheduled")
        db.add(state="completed", completed_at=NOW - SECOND)
    staged: list[int] = []
    rescued: list[int] = []
    pruned: list[int] = []

    def tick() -> None:
        with node_connection(db.engine, autocommit=False) as conn:
            for _ in range(4):
                staged.append(db.storage.stage(conn, now=NOW, limit=7).count)
                back = db.storage.rescue(conn, {"dead": 0}, now=NOW, limit=7, error_text="orphaned")
                rescued.append(back.available)
                pruned.append(db.storage.prune(conn, before=NOW, limit=7))

    together(tick, tick, tick)

    assert (sum(staged), sum(rescued), sum(pruned)) == (20, 20, 20)
    assert Counter(db.states().values()) == {"available": 40}
