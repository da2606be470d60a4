"""Numbers, times and odd text, as pages show them.

Invariant: what is shown can be told apart: a control or bidi character is never invisible, a time always names its
zone, a long number is never rounded without saying so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final

from markupsafe import Markup

from jobkit.admin._ast import Exact as Exactly
from jobkit.admin.query import Term

__all__ = [
    "Exact",
    "clock_text",
    "compact",
    "duration",
    "exact",
    "finalize",
    "json_source",
    "json_text",
    "number",
    "plain",
    "term",
    "visible",
]

_ODD: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff0-\ufff8\ud800-\udfff\U000e0000-\U000e0fff]"
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(text: str) -> str:
    """The text with control, bidi and zero-width characters as escapes; tabs and newlines stay."""
    return _ODD.sub(_escape, text) if _ODD.search(text) else text


class Exact(str):
    """Text that goes into a page as it is (escaped for HTML): the value of an input."""

    __slots__ = ()


_PAIRS: Final = re.compile("[\x00\ud800-\udfff]")


def exact(value: object) -> Exact:
    """Keep odd characters, for text that comes back with a form; what no page can carry is replaced."""
    return Exact(_PAIRS.sub("\ufffd", str(value)))


def finalize(value: object) -> object:
    """What Jinja does to every printed expression: no odd character gets past it."""
    if isinstance(value, (Markup, Exact)):
        return value
    if isinstance(value, str):
        return visible(value)
    return "" if value is None else value


def number(value: int | float) -> str:
    """`12,431`."""
    return f"{value:,}"


def compact(value: int) -> str:
    """All digits up to 99,999, then `1.2 M`."""
    if abs(value) < 100_000:
        return f"{value:,}"
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value / 1000:.0f} k"


def duration(value: timedelta | float | None) -> str:
    """`412 ms`, `3.2 s`, `4 m 10 s`, `2 h 5 m`, `3 d 4 h`."""
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 1:
        return f"{sign}{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{sign}{seconds:.1f} s".replace(".0 s", " s")
    for size, unit, small, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            rest = int(seconds % size // small)
            return f"{sign}{int(seconds // size)} {unit}" + (f" {rest} {name}" if rest else "")
    return "–"


_SPAN: Final = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)")
"""How Python prints a span of time."""


def plain(value: object) -> str:
    """A setting's value in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    span = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if span is not None:
        days, hours, minutes, seconds = (float(part or 0) for part in span.groups())
        value = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return duration(value) if isinstance(value, timedelta) else str(value)


def clock_text(value: datetime, zone: tzinfo) -> str:
    """`2026-12-01 12:03:11 UTC`: to the second, with the zone's name."""
    local = value.astimezone(zone)
    name = local.tzname() or ""
    if not name or name[0] in "+-":
        name = local.strftime("UTC%z")
    return f"{local:%Y-%m-%d %H:%M:%S} {name}"


def json_text(value: object) -> str:
    """A value as indented JSON; what JSON has no word for becomes text."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def json_source(value: object) -> str:
    """A value as JSON to be edited: the same value when it is read back, and no invisible character in it."""
    return _ODD.sub(lambda match: json.dumps(match[0])[1:-1], json_text(value))


def term(value: str, field: str) -> str:
    """The term of a query that this value, and no other, fulfils: `worker:mail`, with quotes where it needs them."""
    return str(Term(field, (Exactly(value, value),)))


def is_mapping(value: object) -> bool:
    """For templates that draw trees."""
    return isinstance(value, Mapping)


def is_list(value: object) -> bool:
    """For templates that draw trees."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
