"""Entries, and what zones, clock changes and the ends of the calendar do to their runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jobkit.errors import ScheduleError
from jobkit.jobs import NewJob
from jobkit.schedules import CronExpression, Recurring

ROOT = Path(__file__).resolve().parents[2]
START = datetime(2026, 3, 1, tzinfo=UTC)


def job() -> NewJob:
    raise AssertionError("no entry runs here")


def parse(text: str, zone: str = "UTC", key: str = "entry") -> CronExpression:
    return CronExpression.parse(text, key=key, timezone=zone)


def locals_of(text: str, zone: str, start: datetime, stop: datetime | int) -> list[str]:
    return [f"{run.local:%m-%d %H:%M %z}" for run in parse(text, zone).runs(start, stop)]


# Zones and clock changes

PARIS_SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
PARIS_AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)
TWO_DAYS = timedelta(days=2)


def test_CR8_a_time_in_a_gap_runs_once_at_the_end_of_the_gap() -> None:
    runs = list(parse("30 2 * * *", "Europe/Paris").runs(PARIS_SPRING, PARIS_SPRING + TWO_DAYS))
    assert [f"{run.local:%d %H:%M}" for run in runs] == ["29 03:00", "30 02:30"]
    assert [run.note for run in runs] == ["moved from 02:30, which does not exist", ""]


def test_CR8_several_times_in_one_gap_are_one_run() -> None:
    assert locals_of("*/20 2 * * *", "Europe/Paris", PARIS_SPRING, PARIS_SPRING + timedelta(days=1)) == [
        "03-29 03:00 +0200"
    ]


def test_CR8_a_moved_run_that_meets_another_is_one_run() -> None:
    runs = list(parse("0 2,3 * * *", "Europe/Paris").runs(PARIS_SPRING, PARIS_SPRING + timedelta(days=1)))
    assert [f"{run.local:%H:%M}" for run in runs] == ["03:00"]
    assert runs[0].note == "stands also for 02:00, which does not exist"


def test_CR8_a_gap_up_to_midnight_moves_the_run_to_midnight() -> None:
    start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    runs = list(parse("30 23 * * *", "America/Nuuk").runs(start, start + TWO_DAYS))
    assert [f"{run.local:%d %H:%M}" for run in runs] == ["29 00:00", "29 23:30"]
    assert runs[0].note == "moved from 2026-03-28 23:30, which does not exist"


def test_CR8_a_gap_from_midnight_on_keeps_the_run_on_its_day() -> None:
    start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert locals_of("0 0 * * *", "Asia/Beirut", start, start + TWO_DAYS) == [
        "03-29 01:00 +0300",
        "03-30 00:00 +0300",
    ]


def test_a_day_that_a_country_skipped_has_no_run() -> None:
    start = datetime(2011, 12, 28, 22, tzinfo=UTC)
    assert locals_of("0 8 * * *", "Pacific/Apia", start, start + timedelta(days=3)) == [
        "12-29 08:00 -1000",
        "12-31 08:00 +1400",
        "01-01 08:00 +1400",
    ]


def test_CR9_daily_times_keep_their_local_hour() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    runs = list(parse("0 8 * * *", "Europe/Paris").runs(start, start + timedelta(days=365)))
    assert len(runs) == 365
    assert {f"{run.local:%H:%M}" for run in runs} == {"08:00"}
    assert {run.at.hour for run in runs} == {6, 7}


def test_CR9_a_repeated_local_time_runs_the_first_time_only() -> None:
    runs = list(parse("30 2 * * *", "Europe/Paris").runs(PARIS_AUTUMN, PARIS_AUTUMN + TWO_DAYS))
    assert [f"{run.local:%d %H:%M %z}" for run in runs] == ["25 02:30 +0200", "26 02:30 +0100"]
    assert [run.note for run in runs] == ["clock goes back: the first of two 02:30", ""]


def test_an_hourly_schedule_runs_once_an_elapsed_hour() -> None:
    for start in (PARIS_SPRING, PARIS_AUTUMN):
        for minute in (0, 30):
            runs = [run.at for run in parse(f"{minute} * * * *", "Europe/Paris").runs(start, 40)]
            assert {b - a for a, b in pairwise(runs)} == {timedelta(hours=1)}


def test_an_hourly_schedule_runs_at_each_matching_local_time_where_the_shift_is_half_an_hour() -> None:
    back = datetime(2026, 4, 4, 13, 15, tzinfo=UTC)
    assert locals_of("30 * * * *", "Australia/Lord_Howe", back, 4) == [
        "04-05 00:30 +1100",
        "04-05 01:30 +1100",
        "04-05 01:30 +1030",
        "04-05 02:30 +1030",
    ]
    forward = datetime(2026, 10, 3, 14, 15, tzinfo=UTC)
    assert locals_of("0 * * * *", "Australia/Lord_Howe", forward, 3) == [
        "10-04 01:00 +1030",
        "10-04 03:00 +1100",
        "10-04 04:00 +1100",
    ]


def test_a_step_of_hours_follows_elapsed_time_and_a_list_the_local_clock() -> None:
    night = PARIS_AUTUMN + timedelta(hours=9)
    assert locals_of("0 */2 * * *", "Europe/Paris", night, 5) == [
        "10-25 00:00 +0200",
        "10-25 02:00 +0200",
        "10-25 02:00 +0100",
        "10-25 04:00 +0100",
        "10-25 06:00 +0100",
    ]
    assert locals_of("0 0,2,4 * * *", "Europe/Paris", night, 3) == [
        "10-25 00:00 +0200",
        "10-25 02:00 +0200",
        "10-25 04:00 +0100",
    ]


def test_a_step_of_hours_in_a_gap_runs_at_its_end() -> None:
    night = PARIS_SPRING + timedelta(hours=10)
    assert locals_of("30 */2 * * *", "Europe/Paris", night, 3) == [
        "03-29 00:30 +0100",
        "03-29 03:00 +0200",
        "03-29 04:30 +0200",
    ]


def test_a_step_that_names_one_hour_is_a_daily_time() -> None:
    assert locals_of("30 2/22 * * *", "Europe/Paris", PARIS_AUTUMN, 2) == locals_of(
        "30 2 * * *", "Europe/Paris", PARIS_AUTUMN, 2
    )


@pytest.mark.parametrize(
    "zone",
    [
        "Mars/Olympus",
        "",
        " UTC",
        "europe",
        "America",
        "localtime",
        "posixrules",
        "Factory",
        "right/UTC",
        "../UTC",
        "/etc/localtime",
        "Europe/Paris\x00",
        "Zürich",
        "x" * 400,
        "+02:00",
        "zone.tab",
    ],
)
def test_CR10_an_unknown_zone_is_refused_at_registration(zone: str) -> None:
    with pytest.raises(ScheduleError, match="schedule 'entry': timezone"):
        Recurring("entry", "0 0 * * *", job, timezone=zone)


@pytest.mark.parametrize("zone", [None, UTC, ZoneInfo("UTC"), 5])
def test_CR10_a_zone_is_given_by_name(zone: object) -> None:
    with pytest.raises(ScheduleError, match="schedule 'entry': timezone must be the name"):
        Recurring("entry", "0 0 * * *", job, timezone=zone)  # type: ignore[arg-type]


def test_CR12_the_latest_due_instant_includes_now_and_has_no_fractions() -> None:
    hourly = parse("0 * * * *")
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert hourly.latest_at(noon) == noon
    assert hourly.latest_at(noon - timedelta(microseconds=1)) == noon - timedelta(hours=1)
    assert hourly.latest_at(noon + timedelta(minutes=59, seconds=59, microseconds=999_999)) == noon


def test_CR12_every_tick_within_a_minute_sees_the_same_instant() -> None:
    each_minute = parse("* * * * *", "Asia/Kathmandu")
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert {each_minute.latest_at(noon + timedelta(milliseconds=ms)) for ms in range(0, 60_000, 999)} == {
        noon
    }


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Paris"])
@pytest.mark.parametrize("text", ["* * * * *", "0 0 29 2 *", "59 23 31 12 *", "30 2 * * *", "0 */5 L * *"])
def test_CR13_the_end_of_the_calendar_is_never_and_no_error(zone: str, text: str) -> None:
    expression = parse(text, zone)
    last = datetime.max.replace(tzinfo=UTC)
    first = datetime.min.replace(tzinfo=UTC)
    assert expression.next_after(last) is None
    assert list(expression.runs(last - timedelta(days=3), last))[1440 * 3 + 1 :] == []
    assert expression.latest_at(last) is not None
    assert expression.next_after(first) is not None
    assert expression.latest_at(first) in (None, first)


def test_CR13_a_leap_day_after_the_last_one_is_never() -> None:
    began = time.perf_counter()
    assert parse("0 0 29 2 *", "Europe/Paris").next_after(datetime(9996, 3, 1, tzinfo=UTC)) is None
    assert list(parse("0 0 29 2 *").runs(datetime(9995, 1, 1, tzinfo=UTC), 10))[1:] == []
    assert time.perf_counter() - began < 2


PROBE = """
import json, sys
from datetime import UTC, datetime
from jobkit.schedules import CronExpression
at = datetime(2026, 3, 28, 12, tzinfo=UTC)
found = []
for zone in ("UTC", "Europe/Paris", "America/Nuuk", "Australia/Lord_Howe"):
    for text in ("30 2 * * *", "30 23 * * *", "*/7 */5 L,3 * FRI-MON", "H H H * *"):
        cron = CronExpression.parse(text, key="probe", timezone=zone)
        runs = [[run.at.isoformat(), run.local.isoformat(), run.note] for run in cron.runs(at, 20)]
        found.append([runs, cron.latest_at(at).isoformat(), cron.describe()])
print(json.dumps(found))
"""


def probe(host_zone: str) -> object:
    environment = {**os.environ, "TZ": host_zone, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_CR14_results_do_not_depend_on_the_zone_of_the_host() -> None:
    first, *others = (probe(zone) for zone in ("UTC", "America/New_York", "Pacific/Kiritimati"))
    assert others == [first, first]


def test_CR14_results_are_aware_utc_whatever_zone_the_question_came_in() -> None:
    expression = parse("15 9 * * *", "Asia/Tokyo")
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for zone in (UTC, ZoneInfo("America/New_York"), timezone(timedelta(hours=5, minutes=30))):
        at = expression.next_after(noon.astimezone(zone))
        assert at == datetime(2026, 3, 2, 0, 15, tzinfo=UTC)
        assert at.tzinfo is UTC
        latest = expression.latest_at(noon.astimezone(zone))
        assert latest == datetime(2026, 3, 1, 0, 15, tzinfo=UTC)
        assert latest.tzinfo is UTC


def test_CR14_a_question_without_a_zone_is_refused() -> None:
    expression = parse("* * * * *")
    for ask in (expression.next_after, expression.latest_at, lambda at: list(expression.runs(at, 1))):
        with pytest.raises(ValueError, match="aware"):
            ask(datetime(2026, 3, 1))


# Entries, iteration, words


def test_an_entry_is_a_frozen_value_with_careful_defaults() -> None:
    entry = Recurring("digest", "0 8 * * MON", job)
    assert (entry.timezone, entry.catch_up, entry.paused) == ("UTC", timedelta(minutes=1), False)
    assert entry.expression is CronExpression.parse("0 8 * * MON", key="digest")
    with pytest.raises(FrozenInstanceError):
        entry.key = "other"  # type: ignore[misc]


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 129, "a\n", None, 5])
def test_a_key_that_is_no_name_is_refused(key: object) -> None:
    with pytest.raises(ScheduleError, match="schedule key"):
        Recurring(key, "0 8 * * MON", job)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["a", "x" * 128, "Reports/daily_v1.2-eu"])
def test_a_key_is_any_name(key: str) -> None:
    assert Recurring(key, "@daily", job).key == key


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"catch_up": timedelta(microseconds=-1)}, "catch_up"),
        ({"catch_up": timedelta.max}, "catch_up"),
        ({"catch_up": 60}, "catch_up"),
        ({"paused": "no"}, "paused"),
        ({"job": None}, "job"),
        ({"job": "cleanup"}, "job"),
        ({"cron": "61 * * * *"}, "minute field"),
    ],
)
def test_a_wrong_field_of_an_entry_is_named_with_the_key(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ScheduleError, match=f"schedule 'digest': {named}"):
        Recurring(**{"key": "digest", "cron": "@daily", "job": job, **changes})  # type: ignore[arg-type]


def test_an_entry_may_catch_up_nothing() -> None:
    assert Recurring("digest", "@daily", job, catch_up=timedelta()).catch_up == timedelta()


def test_an_expression_is_parsed_once_and_equal_by_what_it_says() -> None:
    assert parse("0 8 * * *") is parse("0 8 * * *")
    assert parse("0 8 * * *") != parse("0 8 * * *", "Europe/Paris")
    assert len({parse("0 8 * * *"), parse("0 8 * * *"), parse("0 9 * * *")}) == 2


def test_runs_begin_with_the_start_and_end_before_the_stop() -> None:
    hour = timedelta(hours=1)
    assert [run.at for run in parse("@hourly").runs(START, START + 2 * hour)] == [START, START + hour]
    assert list(parse("@hourly").runs(START, START)) == []
    assert list(parse("@hourly").runs(START, 0)) == []
    assert list(parse("@hourly").runs(START, -1)) == []


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("0 8 * * MON-FRI", "Europe/Paris", "weekdays at 08:00, Europe/Paris"),
        ("30 9 * * sat,sun", "UTC", "weekends at 09:30, UTC"),
        ("* * * * *", "UTC", "every minute, UTC"),
        ("*/5 * * * *", "UTC", "every 5 minutes, UTC"),
        ("@hourly", "UTC", "every hour at :00, UTC"),
        ("@daily", "UTC", "daily at 00:00, UTC"),
        ("@weekly", "UTC", "on Sunday at 00:00, UTC"),
        ("@monthly", "UTC", "on day 1 of the month at 00:00, UTC"),
        ("@yearly", "UTC", "on day 1 of the month in January at 00:00, UTC"),
        ("0 6,18 * * *", "UTC", "daily at 06:00 and 18:00, UTC"),
        ("15 */2 * * *", "UTC", "every 2 hours at :15, UTC"),
        ("0 9-17 * * *", "UTC", "at :00 during hours 09–17, UTC"),
        ("*/10 8-18 * * 1,3", "UTC", "on Monday and Wednesday every 10 minutes during hours 08–18, UTC"),
        ("3,33 * * * *", "UTC", "at minutes :03 and :33, UTC"),
        ("0 0 L * *", "UTC", "on the last day of the month at 00:00, UTC"),
        ("0 0 1,L * *", "UTC", "on day 1 and the last day of the month at 00:00, UTC"),
        ("0 0 13 * FRI", "UTC", "on Friday or on day 13 of the month at 00:00, UTC"),
        ("0 0 * * FRI-SUN", "UTC", "on Friday–Sunday at 00:00, UTC"),
        ("0 0 * 6-8 *", "UTC", "daily in June–August at 00:00, UTC"),
    ],
)
def test_a_schedule_is_told_in_plain_words(text: str, zone: str, expected: str) -> None:
    assert parse(text, zone).describe() == expected


def test_the_words_of_the_longest_schedule_are_bounded() -> None:
    text = "1,5,9,22,40,50 1,2,9,11,14,20 1,3,5,7,9,L 1,3,5,7,9,11 1,3,5,0"
    assert len(parse(text).describe()) < 300


def test_an_import_of_the_schedules_does_not_load_croniter() -> None:
    code = "import sys, jobkit.schedules; sys.exit('croniter' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
