"""Jobs that are asked for: options, their limits, and the rows they become."""

from __future__ import annotations

import dataclasses
import json
import pickle
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit._prepare import prepare
from jobkit.errors import ArgsError
from jobkit.jobs import (
    FINAL,
    INCOMPLETE,
    MAX_META_BYTES,
    RESERVED_META,
    Inserted,
    JobInfo,
    JobState,
    Lease,
    NewJob,
    Unique,
)
from jobkit.workers import Worker, worker
from tests.support.ids import stable

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
YEARS = timedelta(days=36_525)


class Send(
    Worker, queue="mailers", max_attempts=7, priority=2, unique=Unique.args("user_id"), secret=("token",)
):
    user_id: int
    token: str = "t0ken"

    def perform(self, job: JobInfo) -> None: ...


@worker
def plain(a: int = 1) -> None: ...


def row(job: NewJob | Worker, **system: object) -> Any:
    return prepare(job, NOW, system_meta=system)


# -- states


def test_each_state_is_final_or_incomplete() -> None:
    assert set(JobState) == FINAL | INCOMPLETE
    assert not FINAL & INCOMPLETE
    assert [state for state in JobState if state.final] == ["completed", "discarded", "cancelled"]


# -- options


def test_a_job_takes_its_options_from_its_worker() -> None:
    job = Send(1).job()
    assert (job.worker, job.queue, job.max_attempts, job.priority) == ("send", "mailers", 7, 2)
    assert (job.unique, job.secret, job.tags, job.meta) == (Unique.args("user_id"), ("token",), (), {})
    assert json.loads(job.args) == {"user_id": 1, "token": "t0ken"}


def test_options_replace_those_of_the_worker() -> None:
    job = Send(1).job(
        queue="digests", priority=3, max_attempts=5, tags=["digest", "user:42"], meta={"source": "x"}
    )
    assert (job.queue, job.priority, job.max_attempts) == ("digests", 3, 5)
    assert (job.tags, job.meta) == (("digest", "user:42"), {"source": "x"})


def test_replace_gives_a_new_value_and_leaves_the_old_one() -> None:
    old = Send(1).job(tags=["a"], meta={"a": 1, "b": 1})
    new = old.replace(tags=["b"], meta={"b": 2}, priority=9)
    assert (old.tags, old.meta, old.priority) == (("a",), {"a": 1, "b": 1}, 2)
    assert (new.tags, new.meta, new.priority) == (("b",), {"a": 1, "b": 2}, 9)
    assert old.replace() is old


def test_tag_appends_and_with_meta_merges() -> None:
    job = Send(1).job(tags=["a"], meta={"a": 1}).tag("b", "c").with_meta(b={"c": 2}, a=3)
    assert job.tags == ("a", "b", "c")
    assert job.meta == {"a": 3, "b": {"c": 2}}


def test_unique_False_means_none_and_None_means_the_worker_s() -> None:
    assert Send(1).job(unique=False).unique is None
    assert Send(1).job(unique=None).unique == Unique.args("user_id")
    assert Send(1).job(unique=Unique.worker()).unique == Unique.worker()


def test_a_new_job_is_a_frozen_value() -> None:
    one, two = Send(1).job(meta={"a": [1]}), Send(1).job(meta={"a": [1]})
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.queue = "x"  # type: ignore[misc]


def test_a_new_job_keeps_no_reference_to_what_it_was_given() -> None:
    meta: dict[str, Any] = {"a": [1]}
    tags = ["a"]
    job = Send(1).job(meta=meta, tags=tags)
    meta["a"].append(2)
    tags.append("b")
    assert (job.meta, job.tags) == ({"a": [1]}, ("a",))


def test_a_repr_hides_secret_args_and_shows_the_rest() -> None:
    assert "t0ken" not in repr(Send(1).job())
    assert repr(plain(5).job(priority=3)) == "NewJob(worker='plain', args={\"a\":5}, priority=3)"


@given(st.integers())
def test_RT3_priority_and_max_attempts_are_clamped(number: int) -> None:
    job = Send(1).job(priority=number, max_attempts=number)
    assert job.priority == min(max(number, 0), 9)
    assert job.max_attempts == min(max(number, 1), 2**31 - 1)


NO_NUMBERS = [True, False, 1.0, float("nan"), "1", None, 1j, [1]]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=stable)
@pytest.mark.parametrize("option", ["priority", "max_attempts"])
def test_RT3_what_is_no_whole_number_is_refused(option: str, value: object) -> None:
    options: Any = {option: value}
    with pytest.raises(ArgsError, match=f"{option}: a whole number is expected"):
        Send(1).job(**options)


@pytest.mark.parametrize("queue", ["", "a b", "ä", "a\n", "x" * 129, None, 5, b"a", "a:b"], ids=stable)
def test_a_queue_s_name_is_checked(queue: Any) -> None:
    with pytest.raises(ArgsError, match=r"queue: .* is no name"):
        Send(1).job(queue=queue)


@pytest.mark.parametrize("queue", ["a", "A-b_c.d/e", "x" * 128, "0"])
def test_a_queue_s_name_may_hold_what_is_documented(queue: str) -> None:
    assert Send(1).job(queue=queue).queue == queue


BAD_TAGS: list[Any] = [
    "a",
    b"a",
    5,
    0,
    False,
    "",
    [1],
    [""],
    ["a\n"],
    ["a\0"],
    ["\x85"],
    ["\ud800"],
    ["x" * 201],
    ["a"] * 51,
]


@pytest.mark.parametrize("tags", BAD_TAGS, ids=lambda tags: repr(tags)[:20])
def test_tags_that_are_none_are_refused(tags: Any) -> None:
    with pytest.raises(ArgsError, match="tags"):
        Send(1).job(tags=tags)


def test_None_for_tags_or_meta_means_that_nothing_was_said() -> None:
    job = Send(1).job(tags=["a"], meta={"a": 1})
    assert job.replace(tags=None, meta=None) == job


def test_fifty_tags_of_two_hundred_characters_pass() -> None:
    tags = ["€" * 200] * 50
    assert Send(1).job(tags=tags).tags == tuple(tags)
    with pytest.raises(ArgsError, match="51 tags"):
        Send(1).job(tags=tags).tag("one more")


@pytest.mark.parametrize("key", sorted(RESERVED_META))
def test_reserved_meta_keys_are_refused_from_users(key: str) -> None:
    for make in (lambda: Send(1).job(meta={key: 1}), lambda: Send(1).job().with_meta(**{key: 1})):
        with pytest.raises(ArgsError, match=f"meta: {key} is written by jobkit"):
            make()  # type: ignore[no-untyped-call]


BAD_META: list[Any] = [
    [],
    0,
    [1],
    "a",
    5,
    {"a": float("nan")},
    {"a": "\0"},
    {"\0": 1},
    {"a": "\ud800"},
    {"a": (1,)},
    {"a": NOW},
    {"a": object()},
    {1: "a"},
    {"a": 1e22},
    {"a": {"b": {1}}},
]


@pytest.mark.parametrize("meta", BAD_META, ids=stable)
def test_JA4_meta_that_does_not_survive_JSON_is_refused(meta: Any) -> None:
    with pytest.raises(ArgsError, match=r"^meta: "):
        Send(1).job(meta=meta)


def test_meta_has_a_size_limit() -> None:
    spare = MAX_META_BYTES - len('{"a":""}')
    assert Send(1).job(meta={"a": "x" * spare})
    with pytest.raises(ArgsError, match=r"65537 bytes.*65536"):
        Send(1).job(meta={"a": "x" * (spare + 1)})


def test_meta_that_grows_beyond_the_limit_by_merging_is_refused() -> None:
    half = Send(1).job(meta={"a": "x" * 40_000})
    with pytest.raises(ArgsError, match="bytes"):
        half.with_meta(b="x" * 40_000)


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ArgsError, match="did you mean 'queue'"):
        Send(1).job(queu="x")  # type: ignore[call-arg]
    with pytest.raises(ArgsError, match="options are queue, priority"):
        Send(1).job(user_id=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("unique", [True, 0, "args", Unique])
def test_only_a_Unique_or_False_says_what_is_unique(unique: Any) -> None:
    with pytest.raises(ArgsError, match="unique: "):
        Send(1).job(unique=unique)


# -- time


class Undecided(tzinfo):
    def utcoffset(self, dt: datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, dt: datetime | None) -> str:
        return "?"


@pytest.mark.parametrize(
    "at",
    [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=Undecided()), date(2026, 1, 1), "2026-01-01", 5, True],
)
def test_SC1_a_schedule_time_that_is_no_aware_datetime_is_refused(at: Any) -> None:
    with pytest.raises(ArgsError, match="schedule_at: "):
        Send(1).job(schedule_at=at)


@given(st.datetimes(datetime(2026, 4, 1), datetime(2100, 1, 1), timezones=st.timezones()))
def test_SC2_any_zone_s_time_becomes_its_exact_instant(at: datetime) -> None:
    job = row(plain().job(schedule_at=at))
    assert job.scheduled_at == at.astimezone(UTC)
    assert job.scheduled_at.tzinfo is UTC
    assert job.state == "scheduled"


def test_SC2_both_instants_of_an_ambiguous_hour_are_kept_apart() -> None:
    zone = ZoneInfo("America/New_York")
    first, second = (datetime(2026, 11, 1, 1, 30, tzinfo=zone, fold=fold) for fold in (0, 1))
    assert row(plain().job(schedule_at=first)).scheduled_at == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert row(plain().job(schedule_at=second)).scheduled_at == datetime(2026, 11, 1, 6, 30, tzinfo=UTC)


PAST = [
    NOW,
    NOW - timedelta(microseconds=1),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime.min.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
]


@pytest.mark.parametrize("at", PAST, ids=stable)
def test_SC3_a_schedule_time_in_the_past_means_now(at: datetime) -> None:
    job = row(plain().job(schedule_at=at))
    assert (job.state, job.scheduled_at, job.inserted_at) == ("available", NOW, NOW)


@pytest.mark.parametrize(
    "delay", [-1, -0.5, timedelta(days=-400), timedelta.min, 0, 0.0, timedelta(0)], ids=stable
)
def test_SC3_a_delay_of_nothing_or_less_means_now(delay: Any) -> None:
    job = row(plain().job(schedule_in=delay))
    assert (job.state, job.scheduled_at) == ("available", NOW)


def test_SC4_a_hundred_years_is_the_horizon() -> None:
    assert row(plain().job(schedule_at=NOW + YEARS)).scheduled_at == NOW + YEARS
    assert row(plain().job(schedule_in=YEARS)).scheduled_at == NOW + YEARS
    beyond = [NOW + YEARS + timedelta(microseconds=1), datetime.max.replace(tzinfo=UTC)]
    beyond.append(datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))))
    for at in beyond:
        with pytest.raises(ArgsError, match="100 years"):
            row(plain().job(schedule_at=at))


BEYOND = [
    YEARS + timedelta(microseconds=1),
    timedelta.max,
    3.2e9,
    10**400,
    float("inf"),
    float("nan"),
    "5",
    True,
    [5],
]


@pytest.mark.parametrize("delay", BEYOND, ids=lambda delay: f"{delay!s:.30}")
def test_SC4_delays_beyond_it_and_what_is_no_delay_are_refused(delay: Any) -> None:
    with pytest.raises(ArgsError, match="schedule_in"):
        plain().job(schedule_in=delay)


@pytest.mark.parametrize("delay", [0.25, timedelta(milliseconds=250)])
def test_SC5_fractions_mean_what_they_say(delay: Any) -> None:
    job = row(plain().job(schedule_in=delay))
    assert (job.state, job.scheduled_at) == ("scheduled", NOW + timedelta(milliseconds=250))


def test_two_schedules_at_once_are_refused_and_a_later_one_replaces() -> None:
    with pytest.raises(ArgsError, match="give one of them"):
        plain().job(schedule_in=5, schedule_at=NOW)
    job = plain().job(schedule_in=5).replace(schedule_at=NOW + timedelta(hours=1))
    assert row(job).scheduled_at == NOW + timedelta(hours=1)
    assert row(job.replace(schedule_in=5)).scheduled_at == NOW + timedelta(seconds=5)
    assert row(job.replace(schedule_at=None)).state == "available"


def test_a_subclass_of_datetime_becomes_a_plain_one() -> None:
    class Stamp(datetime):
        pass

    job = row(plain().job(schedule_at=Stamp(2027, 1, 1, tzinfo=UTC)))
    assert type(job.scheduled_at) is datetime


# -- rows


def test_a_plain_worker_becomes_a_plain_row() -> None:
    job = row(plain(a=2))
    assert (job.state, job.queue, job.worker, job.args) == ("available", "default", "plain", '{"a":2}')
    assert (job.meta, job.tags, job.unique_key) == ("{}", "[]", None)
    assert (job.max_attempts, job.priority, job.inserted_at, job.scheduled_at) == (20, 0, NOW, NOW)


def test_JA9_absent_meta_and_tags_are_empty_containers_on_every_way() -> None:
    assert row(plain()) == row(plain().job()) == row(plain().job(tags=(), meta={}))


class Guarded(Worker, secret=("token",), priority=3):
    token: str

    def perform(self, job: JobInfo) -> None: ...


def test_a_worker_and_its_job_value_make_the_same_row() -> None:
    assert row(Guarded("a")) == row(Guarded("a").job())
    assert json.loads(row(Guarded("a")).meta) == {"secret_paths": ["token"]}


def test_a_unique_job_records_its_key_and_how_long_it_holds() -> None:
    job = row(Send(1).job(meta={"a": 1}))
    assert json.loads(job.meta) == {
        "a": 1,
        "unique_states": "incomplete",
        "unique_key": job.unique_key,
        "secret_paths": ["token"],
    }
    assert job.unique_key == row(Send(1, token="other")).unique_key
    assert job.unique_key != row(Send(2)).unique_key
    assert json.loads(row(Send(1).job(unique=Unique.worker(states="all"))).meta)["unique_states"] == "all"


def test_a_job_of_a_worker_that_is_not_known_here_has_the_same_key() -> None:
    known = Send(1).job()
    stranger = NewJob(worker="send", args=known.args, queue="mailers", unique=known.unique)
    assert row(stranger).unique_key == row(known).unique_key


def test_jobkit_s_own_callers_may_set_reserved_meta() -> None:
    job = row(plain().job(tags=["cron"], meta={"a": 1}), cron="nightly")
    assert json.loads(job.meta) == {"a": 1, "cron": "nightly"}
    assert json.loads(row(plain(), cron="nightly").meta) == {"cron": "nightly"}
    assert job.tags == '["cron"]'


@pytest.mark.parametrize("wrong", [Send, plain, None, "send", {"user_id": 1}], ids=stable)
def test_only_job_values_can_be_enqueued(wrong: Any) -> None:
    with pytest.raises(
        ArgsError, match=r"expected, not (the class Send; call it|the function plain itself|\w+)"
    ):
        row(wrong)


# -- what a run and a caller receive


def test_JobInfo_asks_its_flag_whether_to_stop() -> None:
    stop = False
    job = JobInfo(1, "w", "q", 1, 20, 0, ("a",), {"a": 1}, NOW, NOW, NOW)
    watched = dataclasses.replace(job, stop_flag=lambda: stop)
    assert not job.should_stop()
    assert not watched.should_stop()
    stop = True
    assert watched.should_stop()
    assert watched == job
    assert hash(watched) == hash(job)
    assert "stop_flag" not in repr(watched)
    assert job.resources == {}


def test_an_insert_says_whether_it_was_a_duplicate() -> None:
    assert Inserted(5) == Inserted(5, duplicate=False)
    assert Lease(1, "node", NOW) == Lease(1, "node", NOW)
