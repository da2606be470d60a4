"""Recurring jobs, and what a cron expression means.

Five fields (minute, hour, day of month, month, day of week) or one of `ALIASES`. A field is a list of `*`,
values, ranges `a-b` and steps `*/n`, `a-b/n`, `a/n` (from a to the field's end). Names (`MON`, `jan`) are
read in any case; 0 and 7 both mean Sunday; a reversed range wraps around the field's end (`22-2`,
`FRI-MON`), and its steps count on through it. `H` is a value that the entry's key decides, `H(a-b)` within
bounds, `H/n` with a step; `L` is the month's last day. A step must be smaller than the number of the
field's values. With both day fields restricted (neither `*` nor `*/1`), a day that matches either one
matches.

When a zone's clock is changed: an hour field made of `*` or steps follows elapsed time, and repeated local
times run each time they come; any other hour field follows the local clock, and repeated times run the
first time only. A time that the clock skips runs at the end of the gap, once for that day; but not where
every hour matches (the next hour's run is the one), nor for a day that is skipped whole.

Invariant: the same text, key and zone mean the same instants on every host, whatever its own time zone;
every answer is an aware UTC time, and every search ends with the calendar.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jobkit._cron import (
    EARLIEST,
    FIRST,
    LAST,
    TICK,
    Calendar,
    Timeline,
    Transition,
    ceil_minute,
    floor_minute,
    minute_after,
    timeline,
)
from jobkit._cronfields import ALIASES, FIELDS, CronFields, read_fields, shown, whose
from jobkit._cronwords import words
from jobkit.errors import ScheduleError

if TYPE_CHECKING:
    from jobkit.jobs import NewJob
    from jobkit.workers import Worker

    JobSource: TypeAlias = Worker | NewJob | Callable[[], Worker | NewJob]

__all__ = ["ALIASES", "CronExpression", "Recurring", "Run"]

_MAX_CATCH_UP: Final = timedelta(days=36_525)
_KEY: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
# Names under which `zoneinfo` finds the host's own zone, or none at all.
_NO_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a schedule: the instant in UTC, the zone's own time, and what the clock change did to it."""

    at: datetime
    local: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed schedule in its zone; equal when text, key and zone are. Made by `parse`, which caches."""

    text: str
    key: str
    timezone: str
    _calendar: Calendar = field(repr=False, compare=False)
    _timeline: Timeline = field(repr=False, compare=False)
    _elapsed: bool = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, *, key: str = "", timezone: str = "UTC") -> CronExpression:
        """Read an expression. `key` decides what `H` means and is named in errors.

        Raises ScheduleError when the text, or the zone, is none, or when no date can ever match.
        """
        if not isinstance(text, str):
            raise ScheduleError(f"{whose(key)}cron must be text, found {type(text).__name__}")
        if not isinstance(timezone, str):
            raise ScheduleError(
                f"{whose(key)}timezone must be the name of a zone, found {type(timezone).__name__}"
            )
        return _parse(text, key, timezone)

    def next_after(self, instant: datetime) -> datetime | None:
        """The first run strictly later than an aware instant, in UTC; None if the years end first."""
        try:
            return _aware(self._next(_naive(instant)))
        except OverflowError:  # the calendar ends while the next run is looked for
            return None

    def latest_at(self, now: datetime) -> datetime | None:
        """The last run at or before an aware instant, in UTC; None if there is none since the year 1."""
        try:
            return _aware(self._latest(_naive(now)))
        except OverflowError:
            return None

    def runs(self, start: datetime, stop: datetime | int) -> Iterator[Run]:
        """The runs from `start` on (inclusive), that many or those before the instant `stop`, one by one."""
        end = _naive(stop).replace(tzinfo=UTC) if isinstance(stop, datetime) else None
        left = sys.maxsize if isinstance(stop, datetime) else stop
        at = self.next_after((max(_naive(start), EARLIEST) - TICK).replace(tzinfo=UTC))
        while at is not None and left > 0 and (end is None or at < end):
            yield self._run(at)
            at, left = self.next_after(at), left - 1

    def describe(self) -> str:
        """The schedule in a few plain words, of bounded length: `weekdays at 08:00, Europe/Paris`."""
        return f"{words(self._calendar)}, {self.timezone}"

    @property
    def _every_hour(self) -> bool:
        return self._elapsed and len(self._calendar.hours) == 24

    def _next(self, instant: datetime) -> datetime | None:
        """Walk from one change of the clock to the next; between two of them an offset is all there is."""
        instant = max(instant, EARLIEST)
        offset = self._timeline.offset(instant)
        local = minute_after(self._timeline.local(instant))
        while True:
            repeat = None if self._elapsed else self._timeline.change_before(instant)
            if repeat is not None and not repeat.skips:
                local = max(local, ceil_minute(repeat.stops))
            match = self._calendar.first(local)
            run = LAST if match is None else match - offset
            change = self._timeline.first_change(instant, run)
            if change is None:
                return None if match is None else run
            if self._moved_by(change) is not None:
                return change.at
            instant, offset, local = change.at, change.after, ceil_minute(change.resumes)

    def _latest(self, instant: datetime) -> datetime | None:
        """The same walk backwards."""
        offset = self._timeline.offset(instant)
        local = floor_minute(self._timeline.local(instant))
        while True:
            match = self._calendar.last(local)
            run = FIRST if match is None else match - offset
            change = self._timeline.last_change(run, instant)
            if change is None:
                if match is None:
                    return None
                change = self._repeated_by(run, match)
                if change is None:
                    return run
            elif self._moved_by(change) is not None:
                return change.at
            instant, offset, local = change.at - TICK, change.before, floor_minute(change.stops - TICK)

    def _moved_by(self, change: Transition) -> datetime | None:
        """The first local time that this change skips and that must run at its end instead."""
        if not change.skips or self._every_hour:
            return None
        match = self._calendar.first(ceil_minute(change.stops))
        while match is not None and match < change.resumes:
            if not change.left_out_whole(match.date()):
                return match
            match = self._calendar.first(datetime.combine(match.date() + timedelta(days=1), time()))
        return None

    def _repeated_by(self, run: datetime, local: datetime) -> Transition | None:
        """The change that makes this run the second one at its local time, where one is enough."""
        change = None if self._elapsed else self._timeline.change_before(run)
        return change if change is not None and not change.skips and local < change.stops else None

    def _run(self, at: datetime) -> Run:
        local = at.astimezone(ZoneInfo(self.timezone))
        return Run(at, local, self._gap_note(at, local) or _repeat_note(local))

    def _gap_note(self, at: datetime, local: datetime) -> str:
        instant = at.replace(tzinfo=None)
        change = self._timeline.last_change(instant - TICK, instant) if instant > FIRST else None
        moved = None if change is None else self._moved_by(change)
        if moved is None:
            return ""
        shown = f"{moved:%H:%M}" if moved.date() == local.date() else f"{moved:%Y-%m-%d %H:%M}"
        also = self._calendar.matches(local)
        return f"{'stands also for' if also else 'moved from'} {shown}, which does not exist"


def _repeat_note(local: datetime) -> str:
    other = local.replace(fold=1 - local.fold)
    if other.utcoffset() == local.utcoffset():
        return ""
    which = "second" if local.fold else "first"
    return f"clock goes back: the {which} of two {local:%H:%M}"


@dataclass(frozen=True, slots=True)
class Recurring:
    """An entry of the schedule: `job` is enqueued at each run of `cron` in `timezone`.

    `job` is a worker instance, a `NewJob`, or a callable that returns either and is called at each run. A run
    missed by no more than `catch_up` is made up for once. Raises ScheduleError, naming the key and the field.
    """

    key: str
    cron: str
    job: JobSource
    timezone: str = "UTC"
    catch_up: timedelta = timedelta(minutes=1)
    paused: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not _KEY.fullmatch(self.key):
            raise ScheduleError(
                f"schedule key {shown(self.key)}: expected 1 to 128 of A-Z, a-z, 0-9, '_', '-', '.', '/'"
            )
        known = callable(self.job) or hasattr(self.job, "perform") or hasattr(self.job, "worker")
        self._expect(known, "job", self.job, "a worker, a NewJob, or a callable that returns one")
        in_range = isinstance(self.catch_up, timedelta) and timedelta() <= self.catch_up <= _MAX_CATCH_UP
        self._expect(in_range, "catch_up", self.catch_up, "a timedelta from zero to 100 years")
        self._expect(isinstance(self.paused, bool), "paused", self.paused, "True or False")
        CronExpression.parse(self.cron, key=self.key, timezone=self.timezone)

    @property
    def expression(self) -> CronExpression:
        """The parsed schedule, in its zone and with the values that the key gives to `H`."""
        return CronExpression.parse(self.cron, key=self.key, timezone=self.timezone)

    def _expect(self, right: bool, name: str, value: object, expected: str) -> None:
        if not right:
            raise ScheduleError(f"{whose(self.key)}{name} {shown(value)}: expected {expected}")


@lru_cache(maxsize=1024)
def _parse(text: str, key: str, timezone: str) -> CronExpression:
    zone = _zone(timezone, key)
    fields = read_fields(text, key)
    calendar = _calendar(fields)
    if not calendar.possible():
        raise ScheduleError(
            f"{whose(key)}cron {shown(text)} never runs: its months have no such day of month"
        )
    elapsed = fields.stepped_hours and len(calendar.hours) > 1
    return CronExpression(text, key, timezone, calendar, zone, elapsed)


def _calendar(fields: CronFields) -> Calendar:
    """Have croniter expand the fields; its `*` means all values."""
    from croniter import croniter

    expanded = croniter.expand(" ".join(fields.plain))[0]
    minutes, hours, days, months, weekdays = (
        tuple(range(spec.low, spec.high + 1))
        if "*" in found
        else tuple(sorted(n for n in found if isinstance(n, int)))
        for spec, found in zip(FIELDS, expanded, strict=True)
    )
    return Calendar(
        minutes=minutes,
        hours=hours,
        days=days,
        last_day="l" in expanded[2] and not fields.any_day,
        months=months,
        weekdays=weekdays,
        any_day=fields.any_day,
        any_weekday=fields.any_weekday,
    )


def _zone(name: str, key: str) -> Timeline:
    try:
        if name in _NO_ZONES or name.startswith(("right/", "posix/")):
            raise ValueError
        return timeline(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(
            f"{whose(key)}timezone {shown(name)} is unknown: expected a name such as 'Europe/Paris'"
        ) from None


def _naive(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError("an aware datetime is needed, found one without a time zone")
    return instant.astimezone(UTC).replace(tzinfo=None)


def _aware(instant: datetime | None) -> datetime | None:
    return None if instant is None else instant.replace(tzinfo=UTC)
