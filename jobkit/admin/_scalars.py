"""Numbers, times and durations as they are typed in a query.

Invariant: a text either is one of these as a whole or is refused; nothing is cut or guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from jobkit.admin._ast import Ago, Moment

__all__ = ["duration", "integer", "moment", "number"]

_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(?:\d{1,9}(?:\.\d{1,6})?(?:ms|[smhdw]))+")
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_LONGEST: Final = timedelta(days=36_525)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,400})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?")
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


def integer(text: str, *, low: int, high: int) -> int:
    """A whole number between the two; raises ValueError."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is no whole number")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"{text} is out of range ({low} to {high})")
    return value


def number(text: str) -> int | float | None:
    """The JSON number of exactly this text; None if it is none, or beyond what a float holds."""
    if not _NUMBER.fullmatch(text):
        return None
    if "." not in text and "e" not in text.lower():
        return int(text)
    value = float(text)
    return None if value in (float("inf"), float("-inf")) else value


def duration(text: str) -> Ago:
    """`90s`, `1h30m`, `2.5d`; raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write 30s, 5m, 2h or 7d")
    seconds = sum(float(count) * _SECONDS[unit] for count, unit in _DURATION_PART.findall(text))
    if seconds > _LONGEST.total_seconds():
        raise ValueError(f"{text} is longer than 100 years")
    return Ago(timedelta(seconds=seconds), text)


def moment(text: str) -> Moment:
    """`2026-11-30`, `2026-11-30T14:00`, `2026-11-30T14:00:05.25+01:00`; UTC without a zone. Raises
    ValueError.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is no time; write 2026-11-30, 2026-11-30T14:00 (UTC), or a span such as 2h"
        )
    _, clock, seconds, _ = found.groups()
    try:
        start = datetime.fromisoformat(text.replace(" ", "T"))
        start = start.astimezone(UTC) if start.tzinfo is not None else start.replace(tzinfo=UTC)
        end = start + _width(clock, seconds)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is a time that does not exist") from None
    return Moment(start, end, text)


def _width(clock: str | None, seconds: str | None) -> timedelta:
    if clock is None:
        return timedelta(days=1)
    if seconds is None:
        return timedelta(minutes=1)
    return timedelta(microseconds=1) if "." in seconds else timedelta(seconds=1)
