"""The arithmetic under the schedules: which local times match, and where a zone's clock is changed.

Invariant: everything here is a pure function of its arguments and of the zone's rules. `Calendar` knows no
zones, `Timeline` knows no schedules, and every search is bounded by the years 1 and 9999.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

__all__ = [
    "FIRST",
    "LAST",
    "TICK",
    "Calendar",
    "Timeline",
    "Transition",
    "ceil_minute",
    "floor_minute",
    "minute_after",
    "timeline",
]

MINUTE: Final = timedelta(minutes=1)
TICK: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)
_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# All times in this module are naive on purpose: local ones, or instants in UTC.
FIRST: Final = datetime.min  # noqa: DTZ901
LAST: Final = datetime.max  # noqa: DTZ901
EARLIEST: Final = datetime(1, 1, 3)  # noqa: DTZ001 - before it, or after _LATEST, conversions may overflow
_LATEST: Final = datetime(9999, 12, 29)  # noqa: DTZ001


def floor_minute(moment: datetime) -> datetime:
    """The last whole minute at or before the moment."""
    return moment.replace(second=0, microsecond=0)


def minute_after(moment: datetime) -> datetime:
    """The first whole minute later than the moment; OverflowError at the end of the calendar."""
    return floor_minute(moment) + MINUTE


def ceil_minute(moment: datetime) -> datetime:
    """The first whole minute at or after the moment."""
    floor = floor_minute(moment)
    return floor if floor == moment else floor + MINUTE


@dataclass(frozen=True, slots=True)
class Calendar:
    """The local times that a schedule names, as if no clock were ever changed.

    All values are sorted. Weekdays count from Sunday = 0. With both day fields restricted, either suffices.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    last_day: bool
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    any_day: bool
    any_weekday: bool

    def possible(self) -> bool:
        """Whether any date matches at all: 30 February never comes."""
        if self.last_day or not self.any_weekday:
            return True
        return any(self.days[0] <= _LONGEST[month - 1] for month in self.months)

    def matches(self, local: datetime) -> bool:
        """Whether the schedule names this very minute."""
        return local.minute in self.minutes and local.hour in self.hours and self._matches_date(local.date())

    def first(self, local: datetime) -> datetime | None:
        """The first matching time at or after a whole minute; None beyond the year 9999."""
        today = local.date()
        found = self._time_from(local.hour, local.minute) if self._matches_date(today) else None
        if found is not None:
            return datetime.combine(today, found)
        day = self._date_after(today)
        return None if day is None else datetime.combine(day, time(self.hours[0], self.minutes[0]))

    def last(self, local: datetime) -> datetime | None:
        """The last matching time at or before a whole minute; None before the year 1."""
        today = local.date()
        found = self._time_until(local.hour, local.minute) if self._matches_date(today) else None
        if found is not None:
            return datetime.combine(today, found)
        day = self._date_before(today)
        return None if day is None else datetime.combine(day, time(self.hours[-1], self.minutes[-1]))

    def _time_from(self, hour: int, minute: int) -> time | None:
        at = bisect_left(self.hours, hour)
        if at < len(self.hours) and self.hours[at] == hour:
            later = bisect_left(self.minutes, minute)
            if later < len(self.minutes):
                return time(hour, self.minutes[later])
            at += 1
        return time(self.hours[at], self.minutes[0]) if at < len(self.hours) else None

    def _time_until(self, hour: int, minute: int) -> time | None:
        at = bisect_right(self.hours, hour) - 1
        if at >= 0 and self.hours[at] == hour:
            earlier = bisect_right(self.minutes, minute) - 1
            if earlier >= 0:
                return time(hour, self.minutes[earlier])
            at -= 1
        return time(self.hours[at], self.minutes[-1]) if at >= 0 else None

    def _matches_date(self, day: date) -> bool:
        return day.month in self.months and day.day in self._days_of(day.year, day.month)

    def _days_of(self, year: int, month: int) -> list[int]:
        """The matching days of one month, in order."""
        first_weekday, length = monthrange(year, month)
        if self.any_day and self.any_weekday:
            return list(range(1, length + 1))
        by_day = set() if self.any_day else {day for day in self.days if day <= length}
        if self.last_day:
            by_day.add(length)
        if not self.any_weekday:
            # monthrange counts from Monday = 0; the 1st therefore has the cron weekday first_weekday + 1.
            by_day.update(d for d in range(1, length + 1) if (first_weekday + d) % 7 in self.weekdays)
        return sorted(by_day)

    def _date_after(self, day: date) -> date | None:
        beyond = day.day
        for year in range(day.year, 10_000):
            for month in self.months:
                if (year, month) < (day.year, day.month):
                    continue
                days = self._days_of(year, month)
                at = bisect_right(days, beyond) if (year, month) == (day.year, day.month) else 0
                if at < len(days):
                    return date(year, month, days[at])
        return None

    def _date_before(self, day: date) -> date | None:
        for year in range(day.year, 0, -1):
            for month in reversed(self.months):
                if (year, month) > (day.year, day.month):
                    continue
                days = self._days_of(year, month)
                at = bisect_left(days, day.day) if (year, month) == (day.year, day.month) else len(days)
                if at > 0:
                    return date(year, month, days[at - 1])
        return None


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a zone's clock: at the UTC instant `at` its offset goes from `before` to `after`."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def stops(self) -> datetime:
        """What the old clock would show at the change: where a gap begins, or repeated times end."""
        return self.at + self.before

    @property
    def resumes(self) -> datetime:
        """What the new clock shows at the change: where a gap ends, or repeated times begin."""
        return self.at + self.after

    @property
    def skips(self) -> bool:
        """True when local times are left out, False when some come twice."""
        return self.after > self.before

    def left_out_whole(self, day: date) -> bool:
        """Whether no moment of this local day exists (a country that crossed the date line)."""
        start = datetime.combine(day, time())
        return self.stops <= start and self.resumes >= start + _DAY


class Timeline:
    """A zone's offsets and the changes between them, found by probing and kept by year.

    Instants are naive UTC. No zone has ever kept an offset for less than two days, so one probe a day finds
    every change.
    """

    __slots__ = ("_years", "_zone")

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._years: dict[int, tuple[Transition, ...]] = {}

    def offset(self, instant: datetime) -> timedelta:
        """The zone's offset from UTC at an instant."""
        inside = min(max(instant, EARLIEST), _LATEST)
        return self._zone.fromutc(inside.replace(tzinfo=self._zone)).replace(tzinfo=None) - inside

    def local(self, instant: datetime) -> datetime:
        """What the zone's clock shows at an instant; OverflowError where that lies before the year 1."""
        try:
            return instant + self.offset(instant)
        except OverflowError:
            if instant < EARLIEST:
                raise
            return LAST

    def first_change(self, after: datetime, until: datetime) -> Transition | None:
        """The first change later than `after` and not later than `until`."""
        for year in range(after.year, until.year + 1):
            for change in self._changes(year):
                if after < change.at <= until:
                    return change
        return None

    def last_change(self, after: datetime, until: datetime) -> Transition | None:
        """The last change later than `after` and not later than `until`."""
        for year in range(until.year, after.year - 1, -1):
            for change in reversed(self._changes(year)):
                if after < change.at <= until:
                    return change
        return None

    def change_before(self, instant: datetime) -> Transition | None:
        """The change at most two days before an instant or at it, whose repeated times may still last."""
        return self.last_change(max(instant, EARLIEST) - 2 * _DAY, instant)

    def _changes(self, year: int) -> tuple[Transition, ...]:
        known = self._years.get(year)
        if known is None:
            known = self._years[year] = tuple(self._probe(year))
        return known

    def _probe(self, year: int) -> Iterator[Transition]:
        low = datetime(year, 1, 1) - TICK if year > 1 else FIRST  # noqa: DTZ001
        end = datetime(year + 1, 1, 1) - TICK if year < 9999 else LAST  # noqa: DTZ001
        offset = self.offset(low)
        while low < end:
            high = end if end - low <= _DAY else low + _DAY
            after = self.offset(high)
            if after != offset:
                yield Transition(self._narrow(low, high), offset, after)
            low, offset = high, after

    def _narrow(self, low: datetime, high: datetime) -> datetime:
        """The first instant of the offset that holds at `high`; changes fall on whole seconds."""
        offset = self.offset(high)
        while high - low > TICK:
            middle = low + (high - low) // 2
            if self.offset(middle) == offset:
                high = middle
            else:
                low = middle
        return high


@lru_cache(maxsize=1024)
def timeline(zone: str) -> Timeline:
    """The timeline of a zone that `zoneinfo` knows; made once a process."""
    return Timeline(ZoneInfo(zone))
