"""Times and durations as people type them.

Invariant: what comes out is an aware UTC time; a time typed without a zone is meant in the zone of `--tz`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

__all__ = ["DurationParam", "parse_time", "zone_named"]

EXPECTED: Final = (
    "expected an ISO time (2026-12-01T09:00), a day with a time (tomorrow 09:00, friday 17:30), a time (09:00), "
    "now, or a distance (-2h, +30m, in 2h)"
)
_DISTANCE: Final = re.compile(
    r"(?P<sign>[+-]|in\s+)?(?P<amount>(?:\d+(?:\.\d+)?\s*[a-z]+\s*)+)(?P<ago>\s+ago)?", re.I
)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def zone_named(name: str | None) -> tzinfo:
    """The zone of that name; UTC without one, the machine's own for `local`. Raises ValueError."""
    if not name or name.upper() in ("UTC", "Z"):
        return UTC
    if name == "local":
        return datetime.now().astimezone().tzinfo or UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"the time zone {name!r} is unknown; expected a name such as Europe/Paris") from None


def parse_time(text: str, now: datetime, zone: tzinfo = UTC) -> datetime:
    """The instant that `text` means at `now`, in UTC. Raises ValueError."""
    words = " ".join(text.split())
    found = _distance(words, now) or _iso(words, zone) or _day(words.lower(), now.astimezone(zone))
    if found is None:
        raise ValueError(f"{text!r} is no time; {EXPECTED}")
    return found.astimezone(UTC)


def _distance(text: str, now: datetime) -> datetime | None:
    if text.lower() == "now":
        return now
    found = _DISTANCE.fullmatch(text)
    if found is None or not (found["sign"] or found["ago"]):
        return None
    from jobkit.config import parse_duration
    from jobkit.errors import ConfigError

    try:
        amount = parse_duration(found["amount"].strip())
        past = found["sign"] == "-" or bool(found["ago"])
        return now - amount if past else now + amount
    except (ConfigError, OverflowError) as error:
        raise ValueError(f"{text!r} is no time: {error}") from None


def _iso(text: str, zone: tzinfo) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)


def _day(text: str, local: datetime) -> datetime | None:
    first, _, rest = text.partition(" ")
    day = _named_day(first, local.date())
    clock = _clock(rest if day else text)
    if clock is None and (rest or not day):
        return None
    return datetime.combine(day or local.date(), clock or time(), local.tzinfo)


def _named_day(word: str, today: date) -> date | None:
    near = {"today": 0, "tomorrow": 1, "yesterday": -1}
    if word in near:
        return today + timedelta(days=near[word])
    for number, name in enumerate(_DAYS):
        if word in (name, name[:3]):
            return today + timedelta(days=(number - today.weekday() - 1) % 7 + 1)
    return None


def _clock(text: str) -> time | None:
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = (int(part or 0) for part in found.groups())
    return time(hour, minute, second) if hour < 24 and minute < 60 and second < 60 else None


class DurationParam(click.ParamType[timedelta]):
    """A duration such as `10s`, `5m`, `2h`, `7d`."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse it; wrong ones are usage errors."""
        from jobkit.config import parse_duration
        from jobkit.errors import ConfigError

        try:
            found = parse_duration(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        if found < timedelta(0):
            self.fail(f"{value!r} is below zero", param, ctx)
        return found
