"""Schedules by properties: random expressions in zones of every kind, against a minute-by-minute model.

The model knows nothing of the code under test: it walks over each minute of UTC around a change of the clock,
asks `zoneinfo` for the local time, and applies the documented rules literally.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo, available_timezones

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st

from jobkit._cron import Timeline
from jobkit.schedules import CronExpression

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

# Each zone with a year in which its clock does what its kind is known for.
ZONES = {
    # no changes at all, whole and odd offsets
    "UTC": 2026,
    "Asia/Tokyo": 2026,
    "Asia/Kathmandu": 2026,
    "Asia/Kolkata": 2026,
    "Pacific/Kiritimati": 2026,
    "Pacific/Pago_Pago": 2026,
    # one hour, northern
    "Europe/Paris": 2026,
    "Europe/London": 2026,
    "Europe/Helsinki": 2026,
    "Atlantic/Azores": 2026,
    "America/New_York": 2026,
    "America/Los_Angeles": 2026,
    "America/Halifax": 2026,
    "America/St_Johns": 2026,
    "America/Tijuana": 2026,
    "Asia/Jerusalem": 2026,
    "Asia/Nicosia": 2026,
    # one hour, southern
    "Australia/Sydney": 2026,
    "Australia/Adelaide": 2026,
    "Pacific/Auckland": 2026,
    "Pacific/Chatham": 2026,
    "America/Asuncion": 2023,
    "Pacific/Norfolk": 2026,
    # half an hour, two hours, three hours
    "Australia/Lord_Howe": 2026,
    "Antarctica/Troll": 2026,
    "Antarctica/Casey": 2020,
    "Asia/Pyongyang": 2018,
    "America/Caracas": 2016,
    # negative summer time, and changes for Ramadan
    "Europe/Dublin": 2026,
    "Africa/Casablanca": 2026,
    "Africa/El_Aaiun": 2025,
    "Africa/Windhoek": 2016,
    "Europe/Prague": 1947,
    "Africa/Cairo": 2014,
    # gaps and repetitions at midnight
    "Asia/Beirut": 2026,
    "Africa/Cairo ": 2026,
    "America/Havana": 2026,
    "America/Santiago": 2026,
    "America/Sao_Paulo": 2018,
    "Asia/Amman": 2021,
    "Asia/Gaza": 2026,
    "Asia/Tehran": 2022,
    "America/Nuuk": 2026,
    "America/Scoresbysund": 2025,
    "America/Goose_Bay": 2010,
    "Asia/Dhaka": 2009,
    # days that were skipped, or came twice
    "Pacific/Apia": 2011,
    "Pacific/Fakaofo": 2011,
    "Pacific/Kwajalein": 1993,
    "Pacific/Kwajalein ": 1969,
    # zones that changed their standard time
    "Europe/Istanbul": 2016,
    "Europe/Moscow": 2014,
    "Europe/Volgograd": 2020,
    "Asia/Almaty": 2024,
    "America/Cancun": 2015,
}
CASES = [(name.strip(), year) for name, year in ZONES.items()]


@dataclass(frozen=True)
class Window:
    """Every minute of UTC around one change, with its local time and whether that is its second coming."""

    zone: str
    start: datetime
    minutes: tuple[tuple[datetime, datetime, bool], ...]
    gap_ends: dict[
        datetime, datetime
    ]  # a local minute that does not exist -> the instant at which its gap ends

    @property
    def stop(self) -> datetime:
        return self.minutes[-1][0] + MINUTE

    @cached_property
    def gap_days(self) -> dict[datetime, date]:
        """The end of each gap, with the first day of which the gap left some time."""
        days = sorted((missing.date(), end) for missing, end in self.gap_ends.items())
        return {end: day for day, end in reversed(days) if day in self.dates}

    @cached_property
    def dates(self) -> frozenset[date]:
        """The local dates of which at least one minute exists."""
        return frozenset(local.date() for _, local, _ in self.minutes)


@lru_cache(maxsize=256)
def changes_in(zone: str, year: int) -> list[datetime]:
    """The hours of a year in which the zone's offset changes, by looking at each hour."""
    info = ZoneInfo(zone)
    start = datetime(year, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
    hours = [start + n * HOUR for n in range((date(year + 1, 1, 1) - date(year, 1, 1)).days * 24 + 1)]
    offsets = [(hour, hour.astimezone(info).utcoffset()) for hour in hours]
    return [later for (_, a), (later, b) in pairwise(offsets) if a != b]


def windows(zone: str, year: int) -> list[Window]:
    """A window of four days around each change of that year, or around a plain day where there is none."""
    return [window_of(zone, year, number) for number in range(min(4, len(changes_in(zone, year)) or 1))]


@lru_cache(maxsize=256)
def window_of(zone: str, year: int, number: int) -> Window:
    """The window around one change of that year; a number too large starts over."""
    changes = changes_in(zone, year) or [datetime(year, 6, 15, tzinfo=UTC)]
    change = changes[number % len(changes)].replace(minute=0, second=0, microsecond=0)
    return make_window(zone, change - 48 * HOUR)


def make_window(zone: str, start: datetime) -> Window:
    info = ZoneInfo(zone)
    minutes: list[tuple[datetime, datetime, bool]] = []
    gap_ends: dict[datetime, datetime] = {}
    seen: set[datetime] = set()
    previous: datetime | None = None
    for n in range(-1440, 96 * 60):  # a day of lead, so that a repetition at the start is known as one
        at = start + n * MINUTE
        local = at.astimezone(info).replace(tzinfo=None)
        if previous is not None:
            for missing in range(1, int((local - previous) / MINUTE)):
                gap_ends[previous + missing * MINUTE] = at
        if n >= 0:
            minutes.append((at, local, local in seen))
        seen.add(local)
        previous = local
    return Window(zone, start, tuple(minutes), gap_ends)


@dataclass(frozen=True)
class Expected:
    """An expression together with what it means."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int | str] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    stepped: bool

    def matches(self, local: datetime) -> bool:
        if local.second or local.minute not in self.minutes or local.hour not in self.hours:
            return False
        return local.month in self.months and self._matches_day(local)

    def _matches_day(self, local: datetime) -> bool:
        by_day = self.days is not None and (
            local.day in self.days
            or ("L" in self.days and local.day == monthrange(local.year, local.month)[1])
        )
        by_weekday = self.weekdays is not None and local.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday or (self.days is None and self.weekdays is None)

    def runs(self, window: Window) -> list[datetime]:
        """The documented rules, applied to each minute."""
        elapsed = self.stepped and len(self.hours) > 1
        runs = {at for at, local, again in window.minutes if self.matches(local) and (elapsed or not again)}
        if not (elapsed and len(self.hours) == 24):
            runs |= {
                end
                for missing, end in window.gap_ends.items()
                if self.matches(missing) and missing.date() in window.dates and window.start <= end
            }
        return sorted(runs)


FIELDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 6)}
NAMES = {
    "month": ["", "jan", "Feb", "MAR", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "DEC"],
    "weekday": ["sun", "Mon", "TUE", "wed", "thu", "fri", "sat"],
}


@st.composite
def items(draw: st.DrawFn, name: str) -> tuple[str, list[int]]:
    """One item of a field's list, with its values."""
    low, high = FIELDS[name]
    size = high - low + 1
    kind = draw(st.sampled_from(["value", "range", "stepped range", "step", "from"]))
    step = draw(st.integers(1, size - 1))
    first, last = draw(st.integers(low, high)), draw(st.integers(low, high))
    cycle = [low + (first - low + n) % size for n in range((last - first) % size + 1)]

    def show(value: int) -> str:
        return draw(st.sampled_from([str(value), NAMES[name][value]])) if name in NAMES else str(value)

    if kind == "value":
        return show(first), [first]
    if kind == "range":
        return f"{show(first)}-{show(last)}", cycle
    if kind == "stepped range":
        return f"{show(first)}-{show(last)}/{step}", cycle[::step]
    if kind == "step":
        return f"*/{step}", list(range(low, high + 1, step))
    return f"{show(first)}/{step}", list(range(first, high + 1, step))


@st.composite
def fields(draw: st.DrawFn, name: str) -> tuple[str, frozenset[int] | None]:
    """A whole field; None stands for the field that restricts nothing."""
    if draw(st.booleans()):
        return "*", None
    listed = draw(st.lists(items(name), min_size=1, max_size=3))
    text = ",".join(item for item, _ in listed)
    if "*/1" in text.split(","):
        return text, None
    return text, frozenset(value for _, values in listed for value in values)


def everything(name: str) -> frozenset[int]:
    low, high = FIELDS[name]
    return frozenset(range(low, high + 1))


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, Expected]:
    """Text of the documented form, with its meaning. Months are left open, for runs near the change."""
    minute, minutes = draw(fields("minute"))
    hour, hours = draw(fields("hour"))
    day, days = draw(fields("day"))
    weekday, weekdays = draw(fields("weekday"))
    with_last: frozenset[int | str] | None = days
    if days is not None and draw(st.booleans()):
        day, with_last = f"{day},L", days | {"L"}
    stepped = all(item[0] == "*" or "/" in item for item in hour.split(","))
    expected = Expected(
        minutes or everything("minute"),
        hours or everything("hour"),
        with_last,
        everything("month"),
        weekdays,
        stepped,
    )
    return f"{minute} {hour} {day} * {weekday}", expected


def found_in(text: str, window: Window) -> list[datetime]:
    expression = CronExpression.parse(text, timezone=window.zone)
    return [run.at for run in expression.runs(window.start, window.stop)]


def test_there_are_at_least_forty_zones_that_differ() -> None:
    assert len({zone for zone, _ in CASES}) >= 40
    assert {zone for zone, _ in CASES} <= available_timezones()


@given(case=st.sampled_from(CASES), pick=st.integers(0, 3), expression=expressions())
def test_random_schedules_run_as_the_documented_rules_say(
    case: tuple[str, int], pick: int, expression: tuple[str, Expected]
) -> None:
    window = window_of(*case, pick)
    text, expected = expression
    assert found_in(text, window) == expected.runs(window)


COMMON = {
    "30 * * * *": Expected(frozenset({30}), everything("hour"), None, everything("month"), None, True),
    "0 */2 * * *": Expected(
        frozenset({0}), frozenset(range(0, 24, 2)), None, everything("month"), None, True
    ),
    "*/20 0-3 * * *": Expected(
        frozenset({0, 20, 40}), frozenset(range(4)), None, everything("month"), None, False
    ),
}


@pytest.mark.parametrize(("zone", "year"), CASES)
@pytest.mark.parametrize("text", COMMON)
def test_common_schedules_run_as_the_documented_rules_say_in_every_zone(
    zone: str, year: int, text: str
) -> None:
    for window in windows(zone, year):
        assert found_in(text, window) == COMMON[text].runs(window)


@pytest.mark.parametrize(("zone", "year"), CASES)
def test_CR9_a_daily_time_runs_exactly_once_on_each_local_day_that_exists(zone: str, year: int) -> None:
    info = ZoneInfo(zone)
    for window in windows(zone, year):
        days = sorted(window.dates)[1:-1]
        for clock in ("0 0", "15 0", "30 1", "0 2", "30 2", "59 22", "30 23", "45 23"):
            expression = CronExpression.parse(f"{clock} * * *", timezone=zone)
            named = [
                # A moved run belongs to the day that was under way when the clock jumped, or that the gap
                # began.
                window.gap_days[run.at] if run.note.startswith("moved") else run.at.astimezone(info).date()
                for run in expression.runs(window.start, window.stop)
            ]
            assert [day for day in named if days[0] <= day <= days[-1]] == days


@pytest.mark.parametrize(("zone", "year"), CASES)
def test_an_hourly_schedule_runs_once_an_elapsed_hour_if_the_shift_is_a_whole_hour(
    zone: str, year: int
) -> None:
    for window in windows(zone, year):
        offsets = {at - local.replace(tzinfo=UTC) for at, local, _ in window.minutes}
        if any((a - b) % HOUR for a in offsets for b in offsets):
            continue
        for minute in (0, 17, 59):
            runs = found_in(f"{minute} * * * *", window)
            assert {b - a for a, b in pairwise(runs)} == {HOUR}


@given(case=st.sampled_from(CASES), pick=st.integers(0, 3), expression=expressions(), seed=st.integers())
def test_CR12_the_latest_and_the_next_run_agree_about_every_instant(
    case: tuple[str, int], pick: int, expression: tuple[str, Expected], seed: int
) -> None:
    window = window_of(*case, pick)
    schedule = CronExpression.parse(expression[0], timezone=case[0])
    random = Random(seed)
    for _ in range(20):
        instant = window.start + timedelta(
            seconds=random.randrange(96 * 3600), microseconds=random.randrange(2)
        )
        latest, following = schedule.latest_at(instant), schedule.next_after(instant)
        assert latest is not None
        assert following is not None
        assert latest <= instant < following
        assert schedule.next_after(latest) == following, "a run between the two was left out"
        assert schedule.latest_at(following) == following
        assert schedule.latest_at(following - timedelta(microseconds=1)) == latest


@given(case=st.sampled_from(CASES), expression=expressions(), seconds=st.integers(0, 400 * 86_400))
def test_nothing_runs_twice_and_every_run_is_aware_utc(
    case: tuple[str, int], expression: tuple[str, Expected], seconds: int
) -> None:
    schedule = CronExpression.parse(expression[0], timezone=case[0])
    start = datetime(case[1], 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    runs = [run.at for run in schedule.runs(start, 30)]
    assert all(a < b for a, b in pairwise(runs))
    assert all(at.tzinfo is UTC and at >= start for at in runs)


@given(expression=expressions(), seconds=st.integers(0, 100 * 365 * 86_400))
def test_two_nodes_never_disagree_about_an_instant(expression: tuple[str, Expected], seconds: int) -> None:
    """Nodes that ask at different moments, from caches of their own, find the same runs."""
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    one = CronExpression.parse(expression[0], key="one", timezone="America/New_York")
    other = CronExpression.parse(expression[0], key="other", timezone="America/New_York")
    object.__setattr__(other, "_timeline", Timeline(ZoneInfo("America/New_York")))
    run = one.next_after(start)
    assert run is not None
    assert other.next_after(start + (run - start) / 2) == run
    assert other.latest_at(run + timedelta(milliseconds=700)) == run


@given(expression=expressions(), seconds=st.integers(0, 60 * 365 * 86_400))
def test_in_utc_the_runs_are_those_of_croniter(expression: tuple[str, Expected], seconds: int) -> None:
    """Fields are handed over value by value, in the one form in which all libraries agree."""
    text, expected = expression
    start = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    day = "*" if expected.days is None else ",".join(str(value).lower() for value in expected.days)
    weekday = "*" if expected.weekdays is None else ",".join(map(str, expected.weekdays))
    plain = f"{','.join(map(str, expected.minutes))} {','.join(map(str, expected.hours))} {day} * {weekday}"
    theirs = croniter(plain, start, ret_type=datetime)
    ours = CronExpression.parse(text)
    at: datetime | None = start
    for _ in range(10):
        assert at is not None
        at = ours.next_after(at)
        assert at == theirs.get_next()


@pytest.mark.parametrize(("zone", "year"), CASES)
def test_every_change_of_a_clock_is_found(zone: str, year: int) -> None:
    assert_all_found(zone, year)


@pytest.mark.slow
def test_no_zone_keeps_an_offset_for_less_than_two_days() -> None:
    """What finding the changes with one probe a day relies on, for a quarter of all zones."""
    for zone in sorted(available_timezones() - {"localtime", "Factory"})[::4]:
        for year in (1917, 1945, 1969, 1993, 2011, 2026):
            assert_all_found(zone, year)


def assert_all_found(zone: str, year: int) -> None:
    found = [change.at.replace(tzinfo=UTC) for change in Timeline(ZoneInfo(zone))._changes(year)]
    by_hour = changes_in(zone, year)
    assert len(found) == len(by_hour)
    assert all(hour - HOUR < at <= hour for at, hour in zip(found, by_hour, strict=True))
    assert all(b - a > 2 * DAY for a, b in pairwise(found))
