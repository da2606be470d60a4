"""What a cron expression may say, what each form means, and how a mistake is reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from jobkit.errors import JobkitError, ScheduleError
from jobkit.jobs import NewJob
from jobkit.schedules import ALIASES, CronExpression, Recurring, Run

START = datetime(2026, 3, 1, tzinfo=UTC)


def job() -> NewJob:
    raise AssertionError("no entry runs here")


def parse(text: str, zone: str = "UTC", key: str = "entry") -> CronExpression:
    return CronExpression.parse(text, key=key, timezone=zone)


def times(text: str, number: int = 5, start: datetime = START, key: str = "entry") -> list[str]:
    return [f"{run.at:%m-%d %H:%M}" for run in parse(text, key=key).runs(start, number)]


def values(text: str, position: int) -> set[int]:
    """The values of one field, read off the runs of a year."""
    fields = ["0", "0", "*", "*", "*"]
    fields[position] = text
    read: Callable[[Run], int] = (
        lambda run: run.at.minute,
        lambda run: run.at.hour,
        lambda run: run.at.day,
        lambda run: run.at.month,
        lambda run: run.at.isoweekday() % 7,
    )[position]
    days = 2 if position < 2 else 365
    return {read(run) for run in parse(" ".join(fields)).runs(START, START + timedelta(days=days))}


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 apr *", "0 0 30-31 2 *"])
def test_CR1_a_schedule_that_never_matches_is_refused_quickly_and_by_key(text: str) -> None:
    began = time.perf_counter()
    with pytest.raises(ScheduleError, match=r"schedule 'monthly/report'.*never runs"):
        Recurring("monthly/report", text, job)
    assert time.perf_counter() - began < 2


def test_CR1_rare_schedules_are_no_impossible_ones() -> None:
    assert times("0 0 29 2 *", 2) == ["02-29 00:00", "02-29 00:00"]
    assert times("0 0 30 2 mon", 1) == ["02-01 00:00"]  # Mondays in February


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_CR1_a_leap_day_is_found_across_a_century_without_one(zone: str) -> None:
    found = parse("0 0 29 2 *", zone).next_after(datetime(2096, 3, 1, tzinfo=UTC))
    assert found is not None
    assert found.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == datetime(2104, 2, 29)


def test_CR2_with_both_days_restricted_either_one_matches() -> None:
    assert times("0 0 13 * FRI", 6) == [f"03-{day} 00:00" for day in ("06", "13", "20", "27")] + [
        "04-03 00:00",
        "04-10 00:00",
    ]
    assert "04-13 00:00" in times("0 0 13 * FRI", 7)


def test_CR2_a_step_restricts_a_day_field_and_a_star_does_not() -> None:
    assert times("0 0 */10 * SUN", 4) == ["03-01 00:00", "03-08 00:00", "03-11 00:00", "03-15 00:00"]
    assert times("0 0 * * SUN", 2) == times("0 0 */1 * SUN", 2) == ["03-01 00:00", "03-08 00:00"]
    assert times("0 0 15 * *", 2) == ["03-15 00:00", "04-15 00:00"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", {0}),
        ("7", {0}),
        ("SUN", {0}),
        ("sun", {0}),
        ("Sun,mOn", {0, 1}),
        ("0-2", {0, 1, 2}),
        ("7-2", {0, 1, 2}),
        ("5-7", {5, 6, 0}),
        ("5-0", {5, 6, 0}),
        ("fri-SUN", {5, 6, 0}),
        ("0-7", set(range(7))),
        ("1-7", set(range(7))),
        ("7-7", {0}),
        ("0-7/2", {0, 2, 4, 6}),
        ("5-7/2", {5, 0}),
        ("7/3", {0, 3, 6}),
    ],
)
def test_CR3_zero_and_seven_are_sunday_and_names_have_any_case(text: str, expected: set[int]) -> None:
    assert values(text, 4) == expected


def test_CR3_month_names_have_any_case() -> None:
    assert values("jan,FEB,Dec", 3) == {1, 2, 12}
    assert values("jun-AUG", 3) == {6, 7, 8}


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("50-10/10", 0, {50, 0, 10}),
        ("55-4/3", 0, {55, 58, 1, 4}),
        ("22-2", 1, {22, 23, 0, 1, 2}),
        ("22-2/3", 1, {22, 1}),
        ("28-3", 2, {28, 29, 30, 31, 1, 2, 3}),
        ("NOV-feb", 3, {11, 12, 1, 2}),
        ("FRI-MON", 4, {5, 6, 0, 1}),
        ("6-2/2", 4, {6, 1}),
        ("4-3", 4, {0, 1, 2, 3, 4, 5, 6}),
    ],
)
def test_CR4_a_reversed_range_wraps_in_every_field(text: str, position: int, expected: set[int]) -> None:
    assert values(text, position) == expected


def test_CR4_a_range_of_one_value_is_that_value() -> None:
    assert values("5-5", 1) == {5}
    assert values("3-3/2", 3) == {3}


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("*/7", 0, {0, 7, 14, 21, 28, 35, 42, 49, 56}),
        ("*/59", 0, {0, 59}),
        ("10/20", 0, {10, 30, 50}),
        ("59/15", 0, {59}),
        ("*/5", 1, {0, 5, 10, 15, 20}),
        ("9-17/4", 1, {9, 13, 17}),
        ("*/10", 2, {1, 11, 21, 31}),
        ("*/5", 3, {1, 6, 11}),
        ("*/3", 4, {0, 3, 6}),
    ],
)
def test_CR5_steps_begin_anew_with_each_unit(text: str, position: int, expected: set[int]) -> None:
    assert values(text, position) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("*/0 * * * *", "minute"),
        ("*/-5 * * * *", "minute"),
        ("*/60 * * * *", "minute"),
        ("0 */24 * * *", "hour"),
        ("0 0 */31 * *", "day of month"),
        ("0 0 1 */12 *", "month"),
        ("0 0 * * */7", "day of week"),
        ("*/ * * * *", "minute"),
        ("*/x * * * *", "minute"),
        ("*/1.5 * * * *", "minute"),
        ("*/5/2 * * * *", "minute"),
        ("*/99999999999999999999 * * * *", "minute"),
    ],
)
def test_CR5_steps_of_zero_below_zero_or_beyond_the_field_are_refused(text: str, named: str) -> None:
    with pytest.raises(ScheduleError, match=rf"'entry': {named} field .*step"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "0 fields"),
        ("   ", "0 fields"),
        ("* * * *", "4 fields"),
        ("0 * * * * *", "6 fields"),
        ("0 0 * * * * 2030", "7 fields"),
        ("@every", "unknown alias '@every'"),
        ("@daily 5", "unknown alias '@daily 5'"),
        ("@", "unknown alias"),
        ("@reboot", "'@reboot' is refused"),
        ("@Reboot", "'@reboot' is refused"),
        ("daily", "1 fields"),
    ],
)
def test_CR6_anything_but_five_fields_or_an_alias_is_refused_by_what_was_found(text: str, found: str) -> None:
    with pytest.raises(ScheduleError, match=f"'entry': .*{found}"):
        parse(text)


@pytest.mark.parametrize("alias", ALIASES)
def test_CR6_an_alias_is_the_expression_that_it_is_documented_as(alias: str) -> None:
    assert times(alias) == times(alias.upper()) == times(f" {alias} ") == times(ALIASES[alias])


def test_CR6_the_aliases_are_the_seven_documented_ones() -> None:
    assert set(ALIASES) == {"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}


def test_CR7_the_last_day_comes_in_every_month() -> None:
    start = datetime(2027, 12, 1, tzinfo=UTC)
    days = [run.at.day for run in parse("0 0 L * *").runs(start, 13)]
    assert days == [31, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def test_CR7_the_last_day_stands_in_lists() -> None:
    assert times("0 0 1,l,15 2 *", 3) == ["02-01 00:00", "02-15 00:00", "02-28 00:00"]
    assert times("0 0 L,31 4,5 *", 2) == ["04-30 00:00", "05-31 00:00"]
    assert times("0 0 L * SUN", 6)[4:] == ["03-29 00:00", "03-31 00:00"]
    assert times("0 0 *,L 2 MON", 2) == ["02-01 00:00", "02-08 00:00"]


@pytest.mark.parametrize(
    "text",
    ["0 0 L-3 * *", "0 0 1-L * *", "0 0 LW * *", "0 0 L/2 * *", "0 0 * * L", "0 0 * * 5L", "L * * * *"],
)
def test_CR7_other_forms_of_the_last_day_are_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match=r"(day of month|day of week|minute) field"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "60 * * * *",
        "-1 * * * *",
        "5- * * * *",
        "-5 * * * *",
        "1-2-3 * * * *",
        ", * * * *",
        "1,,2 * * * *",
        "1, * * * *",
        "? * * * *",
        "a * * * *",
        "mon * * * *",
        "1.5 * * * *",
        "٣ * * * *",
        "５ * * * *",
        "100 * * * *",
        "** * * * *",
        "*5 * * * *",
        "1-99999999999 * * * *",
        "0x1 * * * *",
        "1_0 * * * *",
        "W * * * *",
        "H(1) * * * *",
        "H(1-99) * * * *",
        "H() * * * *",
        "H-5 * * * *",
        "R * * * *",
        "R/5 * * * *",
        "r(1-5) * * * *",
    ],
)
def test_CR11_malformed_text_names_the_key_and_the_field(text: str) -> None:
    with pytest.raises(ScheduleError, match=r"schedule 'entry': minute field '"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("0 24 * * *", "hour"),
        ("0 0 0 * *", "day of month"),
        ("0 0 32 * *", "day of month"),
        ("0 0 15W * *", "day of month"),
        ("0 0 ? * *", "day of month"),
        ("0 0 * 0 *", "month"),
        ("0 0 * 13 *", "month"),
        ("0 0 * january *", "month"),
        ("0 0 * mon *", "month"),
        ("0 0 * * 8", "day of week"),
        ("0 0 * * 1#2", "day of week"),
        ("0 0 * * monday", "day of week"),
    ],
)
def test_CR11_every_field_is_named_in_its_error(text: str, named: str) -> None:
    with pytest.raises(ScheduleError, match=f"{named} field"):
        parse(text)


@pytest.mark.parametrize("text", [" 0  8 *\t* MON-FRI ", "0 8 * * MON-FRI\n", "\t0 8 * * 1-5"])
def test_CR11_extra_blanks_are_tolerated(text: str) -> None:
    assert times(text) == times("0 8 * * 1-5")


@pytest.mark.parametrize("text", [None, 5, b"* * * * *", ["*"] * 5])
def test_CR11_what_is_no_text_is_the_same_error(text: object) -> None:
    with pytest.raises(ScheduleError, match="cron must be text"):
        parse(text)  # type: ignore[arg-type]


def test_CR11_hostile_text_is_refused_at_once_and_cut_in_the_message() -> None:
    began = time.perf_counter()
    for text in ("," * 10_000, "1-59/1," * 10_000 + " * * * *", "9" * 400 + " * * * *", "@" + "x" * 400):
        with pytest.raises(ScheduleError) as caught:
            parse(text)
        assert len(str(caught.value)) < 250
    assert time.perf_counter() - began < 2


def test_schedule_errors_are_jobkit_errors() -> None:
    assert issubclass(ScheduleError, JobkitError)


def test_a_hashed_field_is_stable_by_key_and_spread_over_keys() -> None:
    assert times("H H * * *", key="a") == times("h h * * *", key="a")
    assert len({tuple(times("H H * * *", 1, key=f"key{n}")) for n in range(50)}) > 40


def test_a_hashed_field_means_the_same_in_every_release() -> None:
    assert times("H H * * *", 1, key="cleanup") == ["03-01 04:30"]
    assert times("H/20 3 * * *", 3, key="cleanup") == ["03-01 03:10", "03-01 03:30", "03-01 03:50"]


@pytest.mark.parametrize("key", [f"key{n}" for n in range(40)])
def test_a_hashed_field_stays_within_its_bounds(key: str) -> None:
    runs = list(parse("H(10-20) H(22-4) H * *", key=key).runs(START, 12))
    assert len({(run.at.minute, run.at.hour, run.at.day) for run in runs}) == 1
    assert {run.at.month for run in runs} == set(range(1, 13)), "H in the day of month must not skip a month"
    assert 10 <= runs[0].at.minute <= 20
    assert runs[0].at.hour in {22, 23, 0, 1, 2, 3, 4}


def test_a_hashed_step_begins_within_the_first_step() -> None:
    for n in range(40):
        minutes = [run.at.minute for run in parse("H/15 0 * * *", key=f"key{n}").runs(START, 4)]
        assert minutes[0] < 15
        assert [b - a for a, b in pairwise(minutes)] == [15, 15, 15]


def test_a_hashed_field_without_a_key_is_refused() -> None:
    with pytest.raises(ScheduleError, match="H takes its value from the entry's key"):
        CronExpression.parse("H * * * *")
