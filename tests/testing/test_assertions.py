"""What `assert_enqueued` and its relatives find, and how they say what they found instead."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from jobkit import JobInfo, Jobkit, Unique, Worker, worker
from jobkit._testing_match import difference
from jobkit.config import Config
from jobkit.errors import ArgsError
from jobkit.testing import (
    ANY,
    FrozenClock,
    all_enqueued,
    assert_enqueued,
    drain_jobs,
    refute_enqueued,
)
from tests.testing.support import HOUR, START


class Colour(enum.Enum):
    RED = "red"


class Order(Worker, name="order", queue="shop", secret=("card.number",)):
    order_id: uuid.UUID
    card: dict[str, str]
    lines: list[dict[str, int]]
    total: Decimal = Decimal("0")
    colour: Colour = Colour.RED

    def perform(self, job: JobInfo) -> None: ...


@worker
def plain(n: int = 0) -> None:
    if n < 0:
        raise ValueError("negative")


ORDER = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Jobkit]:
    config = Config(database_url=f"sqlite:///{tmp_path / 'assert.db'}", sqlite_synchronous="off")
    app = Jobkit(config=config, workers=[Order, plain], clock=FrozenClock(START))
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def order(app: Jobkit) -> Order:
    order = Order(
        order_id=ORDER,
        card={"number": "4242 4242 4242 4242", "last4": "4242"},
        lines=[{"sku": 1, "count": 2}, {"sku": 2, "count": 1}],
        total=Decimal("9.90"),
    )
    app.enqueue(order, tags=["shop", "user:1"], meta={"source": {"page": "cart"}}, schedule_in=HOUR)
    return order


def test_a_job_is_found_by_any_of_its_properties(app: Jobkit, order: Order) -> None:
    assert_enqueued(app)
    assert_enqueued(app, Order)
    assert_enqueued(app, "order")
    assert_enqueued(app, order)
    assert_enqueued(app, queue="shop", tags=["user:1"], meta={"source": {"page": "cart"}})
    assert_enqueued(app, Order, scheduled_at=START + HOUR)
    assert_enqueued(app, args={"lines": [{"sku": 1}, {"count": 1}]})
    assert_enqueued(app, args={"card": {"last4": "4242"}, "order_id": ANY})


def test_TH2_expected_values_are_compared_as_they_are_stored(app: Jobkit, order: Order) -> None:
    assert_enqueued(app, args={"order_id": ORDER, "total": Decimal("9.90"), "colour": Colour.RED})
    refute_enqueued(app, args={"order_id": uuid.uuid4()})


def test_a_function_worker_is_found_by_itself_and_by_its_value(app: Jobkit) -> None:
    app.enqueue(plain(3))
    assert_enqueued(app, plain)
    assert_enqueued(app, plain(3))
    refute_enqueued(app, plain(4))


@pytest.mark.parametrize(
    "other",
    [
        {"worker": "plain"},
        {"queue": "default"},
        {"tags": ["user:2"]},
        {"meta": {"source": {"page": "home"}}},
        {"args": {"lines": [{"sku": 1}]}},
        {"args": {"missing": ANY}},
        {"scheduled_at": START + HOUR + timedelta(seconds=1.5)},
    ],
)
def test_a_job_that_differs_is_not_the_one(app: Jobkit, order: Order, other: dict[str, object]) -> None:
    refute_enqueued(app, **other)  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        assert_enqueued(app, **other)  # type: ignore[arg-type]


def test_the_time_may_differ_by_a_second(app: Jobkit, order: Order) -> None:
    assert_enqueued(app, scheduled_at=START + HOUR + timedelta(seconds=1))
    assert_enqueued(app, scheduled_at=START + HOUR - timedelta(seconds=1))


def test_TH1_only_jobs_that_will_still_run_are_seen(app: Jobkit) -> None:
    app.enqueue_all([plain(1), plain(-1)])
    drain_jobs(app)
    assert [(job.args, str(job.state)) for job in all_enqueued(app)] == [({"n": -1}, "retryable")]
    refute_enqueued(app, plain(1))
    jobs = app.tables.jobs
    with app.engine.begin() as conn:
        conn.execute(jobs.update().values(state="executing"))
    refute_enqueued(app)


def test_all_enqueued_gives_the_jobs_as_values(app: Jobkit, order: Order) -> None:
    app.enqueue(plain(1), priority=2, max_attempts=3, unique=Unique.args())
    first, second = all_enqueued(app)
    assert (first.worker, first.queue, first.state, first.tags) == (
        "order",
        "shop",
        "scheduled",
        ("shop", "user:1"),
    )
    assert (first.scheduled_at, first.inserted_at, first.attempt) == (START + HOUR, START, 0)
    assert (second.priority, second.max_attempts, second.args) == (2, 3, {"n": 1})
    assert first.id < second.id


def test_the_failure_shows_what_was_found_and_where_it_differs(app: Jobkit, order: Order) -> None:
    app.enqueue(plain(7))
    drain_jobs(app)
    app.enqueue(plain(8))
    with pytest.raises(AssertionError) as failure:
        assert_enqueued(app, Order, args={"lines": [{"sku": 1}, {"count": 5}]})
    text = str(failure.value)
    lines = text.splitlines()
    assert lines[0] == (
        "no job that will still run has worker='order', args={'lines': [{'sku': 1}, {'count': 5}]}"
    )
    assert lines[1] == "2 jobs will still run:"
    assert lines[2].startswith("  1 order [scheduled] queue=shop args=")
    assert lines[3] == "    differs in args.lines[1].count"
    assert "plain [available]" in lines[4]
    assert lines[5] == "    differs in worker"


def test_the_failure_mentions_jobs_of_the_worker_that_have_run(app: Jobkit) -> None:
    app.enqueue(plain(7))
    drain_jobs(app)
    with pytest.raises(
        AssertionError, match=r"no job at all will still run\nbesides, not counted: 1 completed"
    ):
        assert_enqueued(app, plain)


def test_the_failure_of_a_refutation_shows_the_jobs(app: Jobkit, order: Order) -> None:
    with pytest.raises(AssertionError, match=r"expected no job with queue='shop'; found 1:\n  1 order"):
        refute_enqueued(app, queue="shop")


def test_the_failure_hides_secrets(app: Jobkit, order: Order) -> None:
    with pytest.raises(AssertionError) as failure:
        assert_enqueued(app, Order, args={"password": "not-a-password", "order_id": 1})
    text = str(failure.value)
    assert "4242 4242" not in text
    assert "not-a-password" not in text
    assert "'last4': '4242'" in text


def test_long_lists_of_jobs_are_cut(app: Jobkit) -> None:
    app.enqueue_all([plain(n) for n in range(30)])
    with pytest.raises(AssertionError, match=r"\.\.\. and 10 more"):
        assert_enqueued(app, plain(99))


def test_with_conn_the_callers_transaction_is_looked_into(app: Jobkit) -> None:
    with Session(app.engine) as session:
        app.enqueue(plain(1), conn=session)
        assert_enqueued(app, plain(1), conn=session)
        session.rollback()
    refute_enqueued(app)


def test_what_makes_no_sense_is_refused(app: Jobkit) -> None:
    with pytest.raises(ArgsError, match="has no time zone"):
        assert_enqueued(app, scheduled_at=datetime(2026, 1, 1))
    with pytest.raises(ArgsError, match="a list of texts is expected"):
        assert_enqueued(app, tags="digest")
    with pytest.raises(TypeError, match="not both"):
        assert_enqueued(app, plain(1), args={"n": 1})


@pytest.mark.parametrize(
    ("expected", "actual", "path"),
    [
        ({}, {"a": 1}, None),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, None),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "x.a.b"),
        ({"a": {"b": 1}}, {"a": None}, "x.a"),
        ([1, 2], [1, 2], None),
        ([1, 2], [2, 1], "x[0]"),
        ([1], [1, 2], "x"),
        ([ANY, 2], [{"deep": 1}, 2], None),
        ((1, 2), [1, 2], None),
        (True, 1, "x"),
        (1, True, "x"),
        (1, 1.0, None),
        (None, None, None),
        (None, 0, "x"),
        ({1: "one"}, {"1": "one"}, None),
        (pytest.approx(0.3), 0.1 + 0.2, None),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z", None),
    ],
)
def test_matching_is_deep_and_strict(expected: object, actual: object, path: str | None) -> None:
    assert difference(expected, actual, "x") == path
