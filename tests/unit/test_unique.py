"""Uniqueness keys: what is the same job, in every process and for every way of writing the args."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit._canonical import canonical_bytes
from jobkit._prepare import prepare
from jobkit.errors import ArgsError
from jobkit.jobs import JobInfo, Unique
from jobkit.workers import Worker

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ALL = Unique.args()


@dataclass(frozen=True)
class Card:
    number: str
    amount: Decimal = Decimal(0)


class Job(Worker, unique=ALL):
    moment: datetime | None = None
    numbers: frozenset[int] = frozenset()
    names: tuple[str, ...] = ()
    ratio: float = 0.0
    card: Card | None = None
    by_id: dict[int, str] | None = None
    moments: frozenset[datetime] = frozenset()
    clock: time | None = None

    def perform(self, job: JobInfo) -> None: ...


def key_of(worker: Worker, **options: Any) -> str:
    key = prepare(worker.job(**options), NOW).unique_key
    assert key is not None
    return key


def key(args: dict[str, object], unique: Unique = ALL, now: datetime = NOW) -> str:
    return unique.key("w", "q", args, now)


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same value with its dicts filled in another order."""
    if isinstance(value, dict):
        items = [(k, shuffled(v, rng)) for k, v in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [shuffled(v, rng) for v in value] if isinstance(value, list) else value


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=5)


@given(args=objects, seed=st.randoms(use_true_random=False))
def test_UQ1_key_order_does_not_count_however_deep(args: dict[str, Any], seed: random.Random) -> None:
    assert key(shuffled(args, seed)) == key(args)


def same_json(a: Any, b: Any) -> bool:
    """Equality in which true is not 1 and 1 is not 1.0."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return type(a) is type(b) and bool(a == b)


@given(one=objects, two=objects)
def test_UQ1_values_that_differ_have_keys_that_differ(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert (key(one) == key(two)) == same_json(one, two)


def test_UQ1_nested_values_and_list_order_count() -> None:
    assert key({"a": {"b": [1, 2]}}) != key({"a": {"b": [2, 1]}})
    assert key({"a": {"b": {"c": 1}}}) != key({"a": {"b": {"c": 2}}})
    assert key_of(Job(names=("a", "b"))) != key_of(Job(names=("b", "a")))


def test_UQ1_the_encoding_is_unambiguous() -> None:
    keys = [
        ALL.key("a", "b|c", {}, NOW),
        ALL.key("a|b", "c", {}, NOW),
        ALL.key("a", "b", {"c": 1}, NOW),
        Unique.worker().key("a", "b", {"c": 1}, NOW),
        Unique.worker().key("a", "b", {}, NOW),
        Unique.args("x").key("a", "b", {"c": 1}, NOW),
        Unique.args(period=60).key("a", "b", {}, NOW),
        Unique.args(period=120).key("a", "b", {}, NOW),
        ALL.key("a", "b", {"c": "1"}, NOW),
        ALL.key("a", "b", {"c": None}, NOW),
        ALL.key("a", "b", {"c": True}, NOW),
    ]
    assert len(set(keys)) == len(keys) - 1  # the two of Unique.worker are one
    assert keys[3] == keys[4]


def test_a_missing_key_differs_from_null() -> None:
    unique = Unique.args("a")
    assert key({"b": 1}, unique) != key({"a": None, "b": 1}, unique)


def test_only_the_selected_args_count_in_any_order() -> None:
    one = Unique.args("a", "b")
    assert one == Unique.args("b", "a", "b")
    assert key({"a": 1, "b": 2, "c": 3}, one) == key({"b": 2, "a": 1, "c": 4}, one)
    assert key({"a": 1, "b": 2}, one) != key({"a": 1, "b": 3}, one)


def test_equal_instants_are_one_job_whatever_their_zone() -> None:
    utc = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    zone = ZoneInfo("Europe/Amsterdam")
    same = [utc, utc.astimezone(timezone(timedelta(hours=5))), datetime(2026, 10, 25, 2, 30, tzinfo=zone)]
    assert len({key_of(Job(moment=moment)) for moment in same}) == 1
    assert len({key_of(Job(moments=frozenset([moment]))) for moment in same}) == 1
    later = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zone)
    assert key_of(Job(moment=later)) == key_of(Job(moment=utc + timedelta(hours=1)))
    assert key_of(Job(moment=utc)) != key_of(Job(moment=utc.replace(tzinfo=None)))


def test_equal_values_of_other_types_are_one_job_too() -> None:
    assert key_of(Job(ratio=1)) == key_of(Job(ratio=1.0))
    assert key_of(Job(ratio=-0.0)) == key_of(Job(ratio=0.0))
    amounts = [Decimal("10"), Decimal("10.00"), Decimal("1E+1")]
    assert len({key_of(Job(card=Card("1", amount))) for amount in amounts}) == 1
    zeros = [Decimal("0"), Decimal("-0.00"), Decimal("0E+5")]
    assert len({key_of(Job(card=Card("1", amount))) for amount in zeros}) == 1
    assert key_of(Job(card=Card("1", Decimal("-10")))) != key_of(Job(card=Card("1", Decimal("10"))))
    aware = time(12, tzinfo=timezone(timedelta(hours=1)))
    assert key_of(Job(clock=aware)) == key_of(Job(clock=time(11, tzinfo=UTC))) != key_of(Job(clock=time(11)))


@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_have_one_form_exactly_if_they_are_equal(one: Decimal, two: Decimal) -> None:
    assert (canonical_bytes(one) == canonical_bytes(two)) == (one == two)


@given(st.datetimes(timezones=st.timezones()), st.timedeltas(timedelta(0), timedelta(days=2)))
def test_moments_have_one_form_exactly_if_they_are_the_same_instant(one: datetime, later: timedelta) -> None:
    try:
        two = one.astimezone(UTC) + later
    except OverflowError:
        return
    assert (canonical_bytes(one) == canonical_bytes(two)) == (not later)


def test_int_keys_are_written_as_their_text() -> None:
    assert key_of(Job(by_id={2: "b", 1: "a"})) == key_of(Job(by_id={1: "a", 2: "b"}))
    assert key_of(Job(by_id={1: "a"})) != key_of(Job(by_id={2: "a"}))


PROGRAM = """
from datetime import UTC, datetime
from tests.unit.test_unique import NOW, Card, Job, key_of
print(key_of(Job(moment=NOW, numbers=frozenset(range(-50, 50)), names=("b", "a", "é\\U0001f389"), ratio=1e-7,
    by_id={i: str(i) for i in range(50)}, moments=frozenset({NOW, NOW.replace(hour=1)}))))
"""


def test_UQ2_keys_are_the_same_in_every_process() -> None:
    found = set()
    for seed in ("0", "1", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM]
        found.add(
            subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout
        )
    assert len(found) == 1


def test_UQ2_keys_are_the_same_in_every_version() -> None:
    args = {"user_id": 42, "name": "Zoë", "tags": ["b", "a"], "nested": {"z": None, "a": 1.5, "b": True}}
    known = "095d0012a45cf94355ff5c9a65378b6a3d3be08b32373c42e596cf672444c6a7"
    assert Unique.args(period=timedelta(hours=1)).key("send", "mail", args, NOW) == known


def test_UQ3_text_is_compared_code_point_by_code_point() -> None:
    composed, decomposed = "é", "e\u0301"
    assert key({"a": composed}) != key({"a": decomposed})
    assert key({"a": "a"}) != key({"a": "A"}) != key({"a": "a "})
    assert key({"a": "2026-01-01T00:00:00Z"}) != key({"a": "2026-01-01T00:00:00+00:00"})
    assert key({"a": "\U0001f389"}) == key({"a": "🎉"})


# -- periods


def test_UQ4_windows_are_aligned_to_the_clock_and_half_open() -> None:
    unique = Unique.args(period=timedelta(hours=24))
    midnight = datetime(2026, 3, 4, tzinfo=UTC)
    last = midnight + timedelta(hours=24) - timedelta(microseconds=1)
    before = midnight - timedelta(microseconds=1)
    assert key({}, unique, midnight) == key({}, unique, last)
    assert key({}, unique, before) != key({}, unique, midnight)
    assert key({}, unique, last) != key({}, unique, last + timedelta(microseconds=1))


@given(
    now=st.datetimes(timezones=st.just(UTC)),
    period=st.timedeltas(timedelta(microseconds=1), timedelta(days=36_525)),
)
def test_UQ4_the_bucket_is_floor_of_now_by_period(now: datetime, period: timedelta) -> None:
    bucket = Unique.args(period=period).period_bucket(now)
    assert bucket is not None
    since = now - datetime(1970, 1, 1, tzinfo=UTC)
    assert timedelta(0) <= since - bucket * period < period


def test_without_a_period_time_does_not_count() -> None:
    assert ALL.period_bucket(NOW) is None
    assert key({"a": 1}) == key({"a": 1}, now=NOW + timedelta(days=400))


@pytest.mark.parametrize("period", [60, 60.0, timedelta(minutes=1)])
def test_a_period_is_a_timedelta_or_seconds(period: Any) -> None:
    assert Unique.worker(period=period).period == timedelta(minutes=1)


BAD_PERIODS = [
    0,
    0.0,
    -1,
    timedelta(0),
    timedelta(-1),
    float("nan"),
    float("inf"),
    1e-9,
    "60",
    True,
    10**400,
    [],
    4e9,
]


@pytest.mark.parametrize("period", BAD_PERIODS, ids=str)
def test_UQ5_invalid_periods_are_refused_where_they_are_given(period: Any) -> None:
    for make in (Unique.args, Unique.worker, lambda period: Unique(period=period)):
        with pytest.raises(ArgsError, match="period"):
            make(period=period)


def test_UQ5_other_nonsense_is_refused_as_well() -> None:
    for wrong in (lambda: Unique.args(states="final"), lambda: Unique.args(5), lambda: Unique(by="queue")):  # type: ignore[arg-type]
        with pytest.raises(ArgsError, match="Unique"):
            wrong()  # type: ignore[no-untyped-call]


def test_a_key_that_is_no_arg_is_refused_for_one_job_too() -> None:
    with pytest.raises(ArgsError, match="'nope' is no arg"):
        Job().job(unique=Unique.args("nope"))
    with pytest.raises(ArgsError, match="'nope' is no arg"):
        Job().job().replace(unique=Unique.args("nope"))


def test_UQ12_args_of_the_permitted_size_have_a_key_of_64_characters() -> None:
    class Big(Worker, unique=ALL):
        text: str

        def perform(self, job: JobInfo) -> None: ...

    keys = {key_of(Big("x" * 260_000 + end)) for end in "ab"}
    assert len(keys) == 2
    assert {len(k) for k in keys} == {64}


def test_the_queue_that_the_job_goes_to_counts() -> None:
    assert key_of(Job()) != key_of(Job(), queue="other")
    assert key_of(Job()) == key_of(Job(), priority=3, tags=["a"], meta={"a": 1}, max_attempts=2)
