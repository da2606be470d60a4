"""Schedules in plain words.

Invariant: the text is bounded (a few short lists, cut with "and n more"), whatever the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from jobkit._cron import Calendar

__all__ = ["words"]

_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NAMED_DAYS: Final = {(1, 2, 3, 4, 5): "weekdays", (0, 6): "weekends"}
_MOST_TIMES: Final = 4
_MOST_PARTS: Final = 5


def words(calendar: Calendar) -> str:
    """The days and times of a schedule, without its zone: `weekdays at 08:00`, `every 5 minutes`."""
    days = _days(calendar) or ("daily" if _few_times(calendar) else "")
    return " ".join(part for part in (days, _months(calendar.months), _times(calendar)) if part)


def _few_times(calendar: Calendar) -> bool:
    return len(calendar.minutes) * len(calendar.hours) <= _MOST_TIMES


def _days(calendar: Calendar) -> str:
    parts = []
    if not calendar.any_weekday:
        parts.append(_weekdays(calendar.weekdays))
    if not calendar.any_day:
        parts.append(_month_days(calendar))
    return " or ".join(parts)


def _months(months: tuple[int, ...]) -> str:
    return "" if len(months) == 12 else f"in {_some(months, lambda month: _MONTHS[month - 1])}"


def _weekdays(days: tuple[int, ...]) -> str:
    if len(days) == 7:
        return "every day of the week"
    from_monday = sorted(day or 7 for day in days)
    return _NAMED_DAYS.get(days) or f"on {_some(from_monday, lambda day: _WEEKDAYS[day % 7])}"


def _month_days(calendar: Calendar) -> str:
    last = "the last day" if calendar.last_day else ""
    some = f"day {_some(calendar.days, str)}" if calendar.days else ""
    return f"on {' and '.join(part for part in (some, last) if part)} of the month"


def _times(calendar: Calendar) -> str:
    minutes, hours = calendar.minutes, calendar.hours
    if _few_times(calendar):
        return f"at {_listed([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    if len(hours) == 24:
        return f"{_minutes(minutes)}" if len(minutes) > 1 else f"every hour at :{minutes[0]:02}"
    step = _step(hours, 24)
    during = f"every {step} hours" if step else f"during hours {_some(hours, lambda h: f'{h:02}')}"
    if len(minutes) == 1:
        return f"{during} at :{minutes[0]:02}" if step else f"at :{minutes[0]:02} {during}"
    return f"{_minutes(minutes)} {during}"


def _minutes(minutes: tuple[int, ...]) -> str:
    if len(minutes) == 60:
        return "every minute"
    step = _step(minutes, 60)
    if step:
        return f"every {step} minutes"
    return f"at minutes {_some(minutes, lambda m: f':{m:02}')}"


def _step(values: tuple[int, ...], size: int) -> int:
    """The step that `values` follow all around a field, from its very start; 0 for none."""
    step = values[1] - values[0] if len(values) > 1 else 0
    return step if step > 1 and size % step == 0 and values == tuple(range(0, size, step)) else 0


def _some(values: Sequence[int], show: Callable[[int], str]) -> str:
    """Values as a list in which runs of three and more are written as ranges."""
    parts: list[str] = []
    start = 0
    for end in range(1, len(values) + 1):
        if end < len(values) and values[end] == values[end - 1] + 1:
            continue
        run = [show(value) for value in values[start:end]]
        parts += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else run
        start = end
    return _listed(parts)


def _listed(parts: list[str]) -> str:
    if len(parts) > _MOST_PARTS:
        parts = [*parts[: _MOST_PARTS - 1], f"{len(parts) - _MOST_PARTS + 1} more"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
