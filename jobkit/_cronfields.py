"""The grammar of cron expressions: what may be written, and how a mistake is reported.

Invariant: whatever passes is rewritten into the plainest form (numbers, rising ranges, steps, `l`), which
means the same to every cron library; whatever does not raises a ScheduleError that names the entry's key and
the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from jobkit.errors import ScheduleError

__all__ = ["ALIASES", "FIELDS", "CronFields", "Field", "read_fields", "shown", "whose"]

ALIASES: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_MAX_TEXT: Final = 500
_BLANKS: Final = re.compile(r"[ \t\r\n]+")
_HASH: Final = re.compile(r"h(?:\((\w+)-(\w+)\))?", re.IGNORECASE | re.ASCII)
_RANGE: Final = re.compile(r"(\w+)(?:-(\w+))?", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five fields: its name in messages, its bounds, and the names of its values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    hash_high: int = 0  # where H ends if before the field does: a 31st comes in seven months only

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.high - self.low + 1


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DAY: Final = Field("day of month", 1, 31, hash_high=28)
MONTH: Final = Field("month", 1, 12, _MONTHS)
WEEKDAY: Final = Field("day of week", 0, 6, _WEEKDAYS)
FIELDS: Final = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


@dataclass(frozen=True, slots=True)
class CronFields:
    """The five fields in their plainest form, and what that form no longer shows."""

    plain: tuple[str, ...]
    any_day: bool
    any_weekday: bool
    stepped_hours: bool


class _Malformed(Exception):
    """What is wrong with a field; `read_fields` adds whose it is."""


def read_fields(text: str, key: str) -> CronFields:
    """Check an expression and rewrite it; `key` decides what `H` means. Raises ScheduleError."""
    fields = _split(text, key)
    plain = tuple(_plain(found, spec, key) for found, spec in zip(fields, FIELDS, strict=True))
    return CronFields(
        plain=plain,
        any_day=_unrestricted(fields[2]),
        any_weekday=_unrestricted(fields[4]),
        stepped_hours=all(item.startswith("*") or "/" in item for item in fields[1].split(",")),
    )


def whose(key: str) -> str:
    """The beginning of a message about the entry of that key."""
    return f"schedule {shown(key)}: " if key else ""


def shown(value: object) -> str:
    """A value as it stands in a message, cut at 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _split(text: str, key: str) -> list[str]:
    if len(text) > _MAX_TEXT:
        raise ScheduleError(f"{whose(key)}cron has {len(text)} characters, {_MAX_TEXT} are the limit")
    tidy = _BLANKS.sub(" ", text).strip(" ")
    fields = (_alias(tidy, key) if tidy.startswith("@") else tidy).split(" ") if tidy else []
    if len(fields) != len(FIELDS):
        wanted = ", ".join(spec.name for spec in FIELDS)
        raise ScheduleError(
            f"{whose(key)}cron {shown(text)} has {len(fields)} fields, expected 5 ({wanted}) or an alias"
        )
    return fields


def _alias(text: str, key: str) -> str:
    if text.lower() == "@reboot":
        raise ScheduleError(
            f"{whose(key)}cron '@reboot' is refused: nodes come and go; enqueue the job at start instead"
        )
    known = ALIASES.get(text.lower())
    if known is None:
        raise ScheduleError(f"{whose(key)}unknown alias {shown(text)}: expected one of {', '.join(ALIASES)}")
    return known


def _plain(text: str, spec: Field, key: str) -> str:
    try:
        return ",".join(_plain_item(item, spec, key) for item in text.split(","))
    except _Malformed as wrong:
        raise ScheduleError(f"{whose(key)}{spec.name} field {shown(text)}: {wrong}") from None


def _plain_item(item: str, spec: Field, key: str) -> str:
    body, slash, step_text = item.partition("/")
    step = _step(step_text, spec) if slash else 1
    if body == "*":
        return f"{spec.low}-{spec.high}/{step}"
    if body in ("L", "l") and spec is DAY and not slash:
        return "l"
    hashed = _HASH.fullmatch(body)
    if hashed:
        return _hashed(hashed, step if slash else None, spec, key)
    bounds = _RANGE.fullmatch(body)
    if bounds is None:
        raise _Malformed(_hint(item))
    first = _value(bounds[1], spec)
    last = _value(bounds[2], spec) if bounds[2] else spec.high if slash else first
    values = _cycle(first, last, spec)
    if values[0] < values[-1]:
        return f"{values[0]}-{values[-1]}/{step}"
    return ",".join(map(str, values[::step]))


def _cycle(first: int, last: int, spec: Field) -> list[int]:
    """The values from first to last, around the field's end if need be."""
    if spec is WEEKDAY and (first, last) == (0, 7):
        last = 6  # Sunday to Sunday, written with both its numbers, is the whole week
    length = (last - first) % spec.size + 1
    return [spec.low + (first - spec.low + n) % spec.size for n in range(length)]


def _hashed(found: re.Match[str], step: int | None, spec: Field, key: str) -> str:
    """The values of an `H`. The hash is our own, so that no upgrade of a library moves anyone's schedule."""
    if not key:
        raise _Malformed("H takes its value from the entry's key, and none was given")
    low = _value(found[1], spec) if found[1] else spec.low
    high = _value(found[2], spec) if found[2] else spec.hash_high or spec.high
    values = _cycle(low, high, spec)
    number = int.from_bytes(sha256(f"{key}\0{spec.name}".encode()).digest()[:8])
    if step is None:
        return str(values[number % len(values)])
    return ",".join(map(str, values[number % min(step, len(values)) :: step]))


def _value(text: str, spec: Field) -> int:
    """A number or a name of the field; 7 stays 7 here, so that `0-7` can be told from `0-0`."""
    name = text.lower()
    if name in spec.names:
        return spec.names.index(name) + spec.low
    if not _DIGITS.fullmatch(text):
        raise _Malformed(_hint(text))
    highest = 7 if spec is WEEKDAY else spec.high
    number = int(text) if len(text) <= 2 else highest + 1
    if not spec.low <= number <= highest:
        raise _Malformed(f"{shown(text)} is outside {spec.low}..{highest}")
    return number


def _step(text: str, spec: Field) -> int:
    number = int(text) if len(text) <= 2 and _DIGITS.fullmatch(text) else 0
    if not 0 < number < spec.size:
        raise _Malformed(f"step {shown(text)} is outside 1..{spec.size - 1}")
    return number


def _unrestricted(text: str) -> bool:
    return any(item in ("*", "*/1") for item in text.split(","))


def _hint(item: str) -> str:
    if re.match(r"r(\W|$)", item, re.IGNORECASE):
        return "R (random) is refused, since nodes would disagree; H is a value that the entry's key decides"
    if item.lower() == "l":
        return "L (the month's last day) stands in the day of month only, alone or in a list"
    return f"{shown(item)} is no value, range a-b, step /n, * or H of this field"
