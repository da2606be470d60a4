"""Operators at once: what two of them do to one job happens once, and one key has one holder."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import select

from jobkit.admin.actions import Actions
from jobkit.admin.reads import Reads
from jobkit.core import Core
from jobkit.jobs import JobRow, JobState
from tests.admin.support import ADMIN, NOW, add, row


def test_RT4_of_many_operators_who_retry_the_same_jobs_one_does_it(app: Core) -> None:
    ids = add(app, *(row(state="discarded") for _ in range(20)))
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda _: Actions(app, ADMIN).retry(ids), range(6)))
    counted = Counter(result.result for action in results for result in action.results)
    assert counted == {"done": 20, "skipped": 100}
    assert len(Reads(app, ADMIN).audit(limit=100).entries) == 6


def test_one_released_key_is_taken_back_once_whoever_asks(app: Core) -> None:
    meta = {"unique_states": "incomplete", "unique_key": "k"}
    ids = add(app, *(row(state="discarded", meta=meta) for _ in range(8)))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda job_id: Actions(app, ADMIN).retry([job_id]).results[0], ids))
    assert Counter(result.result for result in results) == {"done": 1, "conflict": 7}
    holder = next(result.id for result in results if result.result == "done")
    assert all(
        f"job {holder} holds the key" in result.text for result in results if result.result == "conflict"
    )


def test_a_retry_and_an_insert_of_one_key_leave_one_incomplete_job(app: Core) -> None:
    for n in range(10):
        key = f"k{n}"
        (job_id,) = add(app, row(state="discarded", meta={"unique_states": "incomplete", "unique_key": key}))

        def insert(key: str = key) -> bool:
            new = JobRow(JobState.AVAILABLE, "default", "w", "{}", "{}", "[]", 20, 0, NOW, NOW, key)
            with app.engine.begin() as conn:
                return app.storage.insert(conn, [new])[0].duplicate

        def retry(job_id: int = job_id) -> bool:
            return Actions(app, ADMIN).retry([job_id]).ok

        with ThreadPoolExecutor(2) as pool:
            duplicate, retried = pool.submit(insert), pool.submit(retry)
            assert duplicate.result() is retried.result()
        jobs = app.tables.jobs
        with app.engine.connect() as conn:
            assert len(conn.execute(select(jobs.c.id).where(jobs.c.unique_key == key)).all()) == 1
