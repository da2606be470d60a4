"""How text and plain values become settings: durations, sizes, names, queues, lists, choices.

Invariant: each parser accepts its own result again, and refuses everything else with a `ConfigError` that
quotes what was found and says what is expected. Where the value came from is added by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any, Final, TypeAlias

from jobkit._names import check_name
from jobkit.errors import ConfigError

__all__ = [
    "MAX_DURATION",
    "MAX_LIMIT",
    "ProcessConfig",
    "QueueConfig",
    "QueueSpec",
    "choice",
    "format_duration",
    "format_queues",
    "format_size",
    "is_never",
    "limited_duration",
    "optional",
    "parse_bool",
    "parse_count",
    "parse_duration",
    "parse_list",
    "parse_queues",
    "parse_size",
    "show",
]

MAX_DURATION: Final = timedelta(days=36_525)
"""100 years: beyond it no instant could be computed safely."""

DEFAULT_LIMIT: Final = 10
MAX_LIMIT: Final = 100_000
"""The most jobs of one queue that one node may be told to run at once."""

_MICROSECOND: Final = timedelta(microseconds=1)
_UNITS: Final = {
    "w": Fraction(7 * 86_400),
    "d": Fraction(86_400),
    "h": Fraction(3_600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1_000),
}
_SIZES: Final = {
    "B": 1,
    **{f"{letter}{suffix}": 1_000**power for power, letter in enumerate("KMGT", 1) for suffix in ("", "B")},
    **{f"{letter}IB": 1_024**power for power, letter in enumerate("KMGT", 1)},
}
_PART: Final = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)(ms|[wdhms])\s*", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([A-Za-z]+)", re.ASCII)
_COMMA: Final = re.compile(r"(?<!\\),")
_WORDS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def show(value: object, limit: int = 80) -> str:
    """`value` as an error message quotes it: `repr`, cut to `limit` characters."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a value that cannot be shown (an endless number) must not hide the error
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else f"{text[:limit]}..."


# ---------------------------------------------------------------- durations


def parse_duration(value: object) -> timedelta:
    """Return a duration given as `10s`, `5m`, `2h`, `7d`, `1h30m`, `1.5s`, `250ms`, `2w`, `0` or timedelta.

    Exact to the microsecond, never negative, at most 100 years. A number without a unit is refused (except
    0), since a 7 that was meant as days must not silently become seconds. Raises ConfigError.
    """
    if isinstance(value, timedelta):
        return _in_range(value, value)
    if isinstance(value, str):
        return _in_range(_timedelta(_seconds(value), value), value)
    if value == 0 and not isinstance(value, bool):
        return timedelta(0)
    raise _no_duration(value)


def _seconds(text: str) -> Fraction:
    rest, total, units = text.strip(), Fraction(0), list(_UNITS)
    if rest == "0":
        return total
    if not rest:
        raise _no_duration(text)
    while rest:
        part = _PART.match(rest)
        if part is None or part[2] not in units:  # each unit once, from large to small
            raise _no_duration(text)
        total += Fraction(part[1]) * _UNITS[part[2]]
        units = units[units.index(part[2]) + 1 :]
        rest = rest[part.end() :]
    return total


def _timedelta(seconds: Fraction, text: str) -> timedelta:
    microseconds = seconds * 1_000_000
    if microseconds.denominator != 1:
        raise ConfigError(f"the duration {show(text)} is finer than a microsecond")
    if seconds > MAX_DURATION.total_seconds():
        raise ConfigError(f"the duration {show(text)} is longer than 100 years")
    return timedelta(microseconds=microseconds.numerator)


def _in_range(duration: timedelta, found: object) -> timedelta:
    if duration < timedelta(0):
        raise ConfigError(f"the duration {show(found)} is negative")
    if duration > MAX_DURATION:
        raise ConfigError(f"the duration {show(found)} is longer than 100 years")
    return duration


def _no_duration(value: object) -> ConfigError:
    text = value.strip() if isinstance(value, str) else show(value)
    if re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text):
        return ConfigError(
            f"the duration {show(value)} has no unit; write {text}s, {text}m, {text}h or {text}d"
        )
    if re.fullmatch(r"-\s*[0-9].*", text):
        return ConfigError(f"the duration {show(value)} is negative")
    return ConfigError(f"{show(value)} is no duration; expected one such as 10s, 5m, 2h, 7d or 1h30m")


def format_duration(duration: timedelta | None) -> str:
    """Return the text that `parse_duration` reads back: `7d`, `1h30m`, `2.5s`, `0s`; None is `never`."""
    if duration is None:
        return "never"
    sign, rest = ("-", -duration) if duration < timedelta(0) else ("", duration)
    minutes, seconds = divmod(rest, timedelta(minutes=1))
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    parts = [f"{count}{unit}" for count, unit in ((days, "d"), (hour, "h"), (minute, "m")) if count]
    if seconds or not parts:
        parts.append(_decimal_seconds(seconds))
    return sign + "".join(parts)


def _decimal_seconds(seconds: timedelta) -> str:
    whole, fraction = divmod(seconds // _MICROSECOND, 1_000_000)
    return f"{whole}.{fraction:06d}".rstrip("0").rstrip(".") + "s"


def limited_duration(
    least: timedelta = timedelta(0), most: timedelta = MAX_DURATION, why: str = ""
) -> Callable[[object], timedelta]:
    """Return a parser of durations from `least` to `most`; `why` ends the message of a refusal."""

    def parse(value: object) -> timedelta:
        duration = parse_duration(value)
        if least <= duration <= most:
            return duration
        bound = (
            f"at least {format_duration(least)}" if duration < least else f"at most {format_duration(most)}"
        )
        raise ConfigError(f"{show(value)} is out of range; expected {bound}{why}")

    return parse


# ---------------------------------------------------------------- numbers, sizes, switches, choices


def parse_size(value: object) -> int:
    """Return bytes given as `512MB`, `1.5GiB`, `64K` (powers of 1000; with an i, of 1024) or as an int."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    factor = _SIZES.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise ConfigError(f"{show(value)} is no size; expected one such as 512MB, 1.5GB or 64KiB")
    return int(Fraction(match[1]) * factor)


def format_size(size: int | None) -> str:
    """Return bytes as `parse_size` reads them back exactly: `512MB`, `64KiB`, `1234B`; None is `never`."""
    if size is None:
        return "never"
    for unit in ("TB", "TiB", "GB", "GiB", "MB", "MiB", "KB", "KiB"):
        factor = _SIZES[unit.upper()]
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def parse_count(least: int, most: int) -> Callable[[object], int]:
    """Return a parser of whole numbers from `least` to `most`; bool and float are refused."""

    def parse(value: object) -> int:
        number = _whole(value)
        if number is not None and least <= number <= most:
            return number
        raise ConfigError(f"found {show(value)}, expected a whole number from {least} to {most}")

    return parse


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value.strip() if isinstance(value, str) else ""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def parse_bool(value: object) -> bool:
    """Return a switch given as a bool or as true/false, yes/no, on/off, 1/0 in any case."""
    word = str(value).strip().lower() if isinstance(value, (bool, str)) else ""
    if word not in _WORDS:
        raise ConfigError(f"found {show(value)}, expected true or false")
    return _WORDS[word]


def choice(*words: str) -> Callable[[object], str]:
    """Return a parser of one of `words`; true and false stand for on and off where those are offered."""

    def parse(value: object) -> str:
        word = {True: "on", False: "off"}.get(value) if isinstance(value, bool) else value
        if isinstance(word, str) and word.strip().lower() in words:
            return word.strip().lower()
        raise ConfigError(f"found {show(value)}, expected one of: {', '.join(words)}")

    return parse


def is_never(value: object) -> bool:
    """Tell whether a value says in words that something is switched off: `never` or `off`."""
    return isinstance(value, str) and value.strip().lower() in ("never", "off")


def optional(parse: Callable[[object], object]) -> Callable[[object], object]:
    """Return `parse` extended by `never`, `off` and None, which all give None: off is said, never guessed."""

    def parse_optional(value: object) -> object:
        return None if value is None or is_never(value) else parse(value)

    return parse_optional


def parse_list(item: Callable[[object], str]) -> Callable[[object], tuple[str, ...]]:
    """Return a parser of lists: a sequence of items, or text with commas (one within an item is `\\,`).

    A repeated item counts once.
    """

    def parse(value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            parts: Iterable[object] = [part.replace("\\,", ",").strip() for part in _COMMA.split(value)]
        elif isinstance(value, (list, tuple, set, frozenset)):
            parts = sorted(value) if isinstance(value, (set, frozenset)) else value
        else:
            raise ConfigError(f"found {show(value)}, expected a list of texts")
        return tuple(dict.fromkeys(item(part) for part in parts))

    return parse


# ---------------------------------------------------------------- queues and child processes


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """How a node runs one queue.

    `limit`: jobs that one node runs at once, 1 to 100,000. `paused` counts only when the queue's row is first
    made; afterwards the row decides. Raises ConfigError.
    """

    limit: int = DEFAULT_LIMIT
    paused: bool = False

    def __post_init__(self) -> None:
        if (
            not isinstance(self.limit, int)
            or isinstance(self.limit, bool)
            or not 1 <= self.limit <= MAX_LIMIT
        ):
            raise ConfigError(f"the limit {show(self.limit)} is no whole number from 1 to {MAX_LIMIT}")
        if not isinstance(self.paused, bool):
            raise ConfigError(f"paused is {show(self.paused)}; expected true or false")


QueueSpec: TypeAlias = str | Mapping[str, int | QueueConfig] | Iterable[str]
"""`"default:10,mail:5"`, a mapping of names to limits or QueueConfigs, or a list of `"name:limit"`."""


def parse_queues(spec: object) -> dict[str, QueueConfig]:
    """Return the queues of a `QueueSpec`, in its order, strictly.

    Repeated names, wildcards, missing, zero, negative and non-numeric limits are refused with a ConfigError
    that quotes the entry. An empty mapping means no queues; empty text is refused.
    """
    if isinstance(spec, Mapping):
        return {check_name(name, "queue", ConfigError): _queue(name, value) for name, value in spec.items()}
    if isinstance(spec, str):
        return _entries(spec.split(","))
    if isinstance(spec, (list, tuple)):
        return _entries(spec)
    raise ConfigError(f'found {show(spec)}, expected queues such as "default:10,mail:5"')


def _entries(entries: Iterable[object]) -> dict[str, QueueConfig]:
    queues: dict[str, QueueConfig] = {}
    for entry in entries:
        if not isinstance(entry, str) or not entry.strip():
            raise ConfigError(
                f"{show(entry)} is an empty queue entry; expected name:limit, such as default:10"
            )
        name, config = _entry(entry.strip())
        if name in queues:
            raise ConfigError(f"the queue {show(name)} is named twice; name each queue once")
        queues[name] = config
    return queues


def _entry(entry: str) -> tuple[str, QueueConfig]:
    name, colon, limit = entry.partition(":")
    if "*" in name or "?" in name:
        raise ConfigError(f"{show(entry)} has a wildcard; name each queue in full")
    check_name(name, "queue", ConfigError)
    if not colon:
        raise ConfigError(f"the queue {show(entry)} has no limit; write {entry}:10")
    if not re.fullmatch(r"[0-9]{1,9}", limit) or not 1 <= int(limit) <= MAX_LIMIT:
        raise ConfigError(
            f"the limit {show(limit)} in {show(entry)} is no whole number from 1 to {MAX_LIMIT}; "
            f"write {name}:10"
        )
    return name, QueueConfig(int(limit))


def _queue(name: str, value: object) -> QueueConfig:
    if isinstance(value, QueueConfig):
        return value
    fields: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {"limit": value}
    if unknown := sorted(set(map(str, fields)) - {"limit", "paused"}):
        raise ConfigError(
            f"the queue {show(name)} has an unknown key {show(unknown[0])}; expected limit, paused"
        )
    try:
        return QueueConfig(fields.get("limit", DEFAULT_LIMIT), fields.get("paused", False))
    except ConfigError as error:
        raise ConfigError(f"the queue {show(name)}: {error}") from None


def format_queues(queues: Mapping[str, QueueConfig]) -> str | dict[str, dict[str, object]]:
    """Return queues as `parse_queues` reads them back: as text, or as a mapping where one starts paused."""
    if queues and not any(queue.paused for queue in queues.values()):
        return ",".join(f"{name}:{queue.limit}" for name, queue in queues.items())
    return {name: {"limit": queue.limit, "paused": queue.paused} for name, queue in queues.items()}


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """The pool of child processes that runs `runner="process"` workers.

    `children`: how many at most. A child is replaced after `max_jobs` jobs or once it holds more than
    `max_memory` bytes; None means never.
    """

    children: int = 2
    max_jobs: int | None = 1_000
    max_memory: int | None = 512_000_000
