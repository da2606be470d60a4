"""Values as people read them: times, durations, numbers.

Invariant: an absolute time always names its zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo

__all__ = ["absolute", "ago", "duration", "human", "many", "span"]


def duration(value: timedelta) -> str:
    """`412 ms`, `3.2 s`, `4 m 10 s`, `2 h 5 m`, `3 d 4 h`."""
    seconds = value.total_seconds()
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return f"{sign}{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{sign}{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{sign}{minutes} m {rest} s" if rest else f"{sign}{minutes} m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{sign}{hours} h {minutes} m" if minutes else f"{sign}{hours} h"
    days, hours = divmod(hours, 24)
    return f"{sign}{days} d {hours} h" if hours and days < 10 else f"{sign}{days} d"


def span(value: timedelta) -> str:
    """A rounded duration of one unit: `3s`, `12m`, `5h`, `3d`."""
    seconds = abs(value.total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def ago(at: datetime, now: datetime) -> str:
    """`3m ago`, `in 2h`, `now`."""
    distance = now - at
    if abs(distance) < timedelta(seconds=1):
        return "now"
    return f"{span(distance)} ago" if distance > timedelta(0) else f"in {span(distance)}"


def absolute(at: datetime, zone: tzinfo) -> str:
    """`2026-12-01 11:52:11 UTC`; in other zones with the offset, which a name alone does not tell."""
    local = at.astimezone(zone)
    name = local.tzname() or ""
    offset = local.strftime("%z")
    shown = name if name == "UTC" else f"{offset[:3]}:{offset[3:5]}" + (f" {name}" if name.isalpha() else "")
    return f"{local:%Y-%m-%d %H:%M:%S} {shown}".rstrip()


def human(value: object) -> str:
    """A plain value in a cell: `–` for nothing, commas in numbers, lists and mappings in one line."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) > 9_999 else str(value)
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1_000 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={human(item)}" for key, item in value.items()) or "–"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(human(item) for item in value) or "–"
    return str(value)


def many(count: int, what: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
