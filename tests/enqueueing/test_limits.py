"""What is just permitted works all the way: written, told of, found to be the same, run."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from jobkit import JobInfo, Jobkit, Worker
from jobkit._codec import MAX_ARGS_BYTES
from jobkit.errors import ArgsError
from jobkit.jobs import MAX_META_BYTES, Unique
from jobkit.testing import drain_jobs
from jobkit.wakeup import channel_of, waker_of

FRAME = len('{"text":""}')
SEEN: list[str] = []


class Long(Worker, name="long", queue="q", unique=Unique.args()):
    text: str

    def perform(self, job: JobInfo) -> None:
        SEEN.append(self.text)


@pytest.fixture
def app(database_url: str) -> Iterator[Jobkit]:
    SEEN.clear()
    made = Jobkit(database_url, workers=[Long])
    made.migrate()
    yield made
    made.close()


def longest(letter: str) -> Long:
    return Long(text=letter * ((MAX_ARGS_BYTES - FRAME) // len(letter.encode())))


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_JA5_UQ12_the_largest_args_are_stored_unique_and_run(app: Jobkit, letter: str) -> None:
    first = app.enqueue(longest(letter))
    again, other = app.enqueue_all([longest(letter), Long(text=letter)])

    assert (again.id, again.duplicate) == (first.id, True)
    assert not other.duplicate
    assert drain_jobs(app)["completed"] == 2
    assert sorted(SEEN) == sorted([longest(letter).text, letter])


def test_JA5_one_byte_more_writes_nothing(app: Jobkit) -> None:
    with pytest.raises(ArgsError, match=str(MAX_ARGS_BYTES)):
        app.enqueue_all([Long(text="fine"), Long(text=longest("x").text + "x")])
    assert drain_jobs(app) == {}


def test_JA5_the_most_that_a_job_may_carry_beside_its_args_fits_as_well(app: Jobkit) -> None:
    tags = [f"{n:02}" + "t" * 198 for n in range(50)]
    meta = {"m": "y" * (MAX_META_BYTES - len('{"m":""}'))}

    app.enqueue(longest("x"), tags=tags, meta=meta)

    assert drain_jobs(app)["completed"] == 1


def test_JA5_notifications_of_any_number_of_queues_are_sent(postgres_url: str) -> None:
    app = Jobkit(postgres_url, workers=[Long])
    app.migrate()
    names = [f"{n:03}-" + "q" * 124 for n in range(100)]
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as conn:
        conn.execute(f'LISTEN "{channel_of(app.config)}"')
        app.enqueue_all([Long(text=name).job(queue=name) for name in names])
        assert waker_of(app.core).flush(10)
        [notice] = conn.notifies(timeout=5, stop_after=1)
    assert notice.payload == "*"
    app.close()
