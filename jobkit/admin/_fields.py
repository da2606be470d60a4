"""The vocabulary: each qualifier with its aliases, and how one value of it is read.

Invariant: this table is the language; parser, completion and help walk it and know no qualifier by name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from jobkit.admin._ast import GROUPS, Compare, Custom, Exact, Part, Range, Scalar, Value, Wild, quoted
from jobkit.admin._scalars import duration, integer, moment, number
from jobkit.admin._scan import RawValue, Wrong, unquoted
from jobkit.hookspecs import Qualifier
from jobkit.jobs import MAX_ATTEMPTS, MAX_PRIORITY, JobState

__all__ = ["CONDITIONS", "FIELDS", "HAS", "MAX_ID", "Field", "Vocabulary", "nearest", "path_of"]

MAX_ID: Final = 2**63 - 1
MAX_DEPTH: Final = 8
CONDITIONS: Final = (*GROUPS, "orphaned", "stuck", "overdue", "snoozed", "cron", "unique", "paused")
HAS: Final = ("error", "tags", "meta", "unique")

Reader = Callable[[RawValue], Value]


@dataclass(frozen=True, slots=True)
class Field:
    """One qualifier. `choices` are all values there are; `pathed` fields continue with `.key`."""

    name: str
    read: Reader
    help: str
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    pathed: bool = False
    single: bool = False
    """Takes one value and no minus sign."""


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one that was probably meant."""
    return next(iter(difflib.get_close_matches(word, list(words), 1, 0.6)), None)


# -- readers


def _word(raw: RawValue) -> Value:
    """A name, or one with a star at an end."""
    if raw.star_before or raw.star_after:
        return _wild(raw)
    text = (raw.op or "") + raw.text
    _refuse_inner_star(raw)
    return Exact(text, text)


def _wild(raw: RawValue) -> Wild:
    if raw.op is not None:
        raise Wrong(f"{raw.op} and * cannot stand together", raw.start, raw.length)
    _refuse_inner_star(raw)
    if not raw.text:
        return Wild("", True, True)
    return Wild(raw.text, raw.star_before, raw.star_after)


def _refuse_inner_star(raw: RawValue) -> None:
    if "*" in raw.text and not raw.quoted:
        raise Wrong(
            "* may only stand at the beginning or the end; quote the value if the star itself is meant",
            raw.start,
            raw.length,
            quoted(raw.text),
        )


def _text(raw: RawValue) -> Value:
    """Any text, stars and all: what is searched for literally."""
    text = f"{raw.op or ''}{'*' * raw.star_before}{raw.text}{'*' * raw.star_after}"
    if not text:
        raise Wrong("needs a text to search for", raw.start, raw.length)
    return Exact(text, text)


def _one_of(choices: tuple[str, ...]) -> Reader:
    def read(raw: RawValue) -> Value:
        text = raw.text.lower()
        if raw.op or raw.star_before or raw.star_after or text not in choices:
            near = nearest(text, choices)
            raise Wrong(f"{raw.text!r} is not one of {', '.join(choices)}", raw.start, raw.length, near)
        return Exact(text, text)

    return read


def _ordered(scalar: Callable[[str], Scalar], *, equal: bool = True) -> Reader:
    """Something with an order: alone, compared, or as a range."""

    def read(raw: RawValue) -> Value:
        if raw.star_before or raw.star_after:
            raise Wrong("* has no meaning here", raw.start, raw.length)
        try:
            return compared(raw)
        except ValueError as error:
            raise Wrong(str(error), raw.start, raw.length) from None

    def compared(raw: RawValue) -> Value:
        if raw.op is not None:
            return Compare(raw.op, scalar(raw.text), _again(raw))
        low, dots, high = raw.text.partition("..")
        if dots and not raw.quoted and (low or high):
            return Range(scalar(low) if low else None, scalar(high) if high else None, low, high)
        value = scalar(raw.text)
        if not equal:
            raise ValueError(f"needs a comparison, such as >{raw.text} or <{raw.text}")
        if isinstance(value, int):
            return Exact(value, raw.text)
        return Compare("=", value, _again(raw))

    return read


def _again(raw: RawValue) -> str:
    return quoted(raw.text) if raw.quoted else raw.text


def _when(text: str) -> Scalar:
    return duration(text) if re.fullmatch(r"[\d.]+[a-z][\w.]*", text) else moment(text)


def _whole(low: int, high: int) -> Callable[[str], Scalar]:
    return lambda text: integer(text, low=low, high=high)


def _json(raw: RawValue) -> Value:
    """A JSON scalar: typed without quotes, numbers and true, false, null are those."""
    if raw.star_before or raw.star_after:
        return _wild(raw)
    if raw.op is not None:
        return Compare(raw.op, _comparable(raw, raw.text), raw.text)
    if raw.quoted:
        return Exact(raw.text, raw.text)
    _refuse_inner_star(raw)
    literals: dict[str, bool | None] = {"true": True, "false": False, "null": None}
    if raw.text in literals:
        return Exact(literals[raw.text], raw.text)
    low, dots, high = raw.text.partition("..")
    ends = [number(end) for end in (low, high) if end]
    if dots and ends and None not in ends:
        return Range(number(low), number(high), low, high)
    value = number(raw.text)
    return Exact(raw.text if value is None else value, raw.text)


def _comparable(raw: RawValue, text: str) -> Scalar:
    value = None if raw.quoted else number(text)
    if value is None:
        raise Wrong(
            f"{raw.op} needs a number; quote the whole value to look for the text itself",
            raw.start,
            raw.length,
            quoted(f"{raw.op}{text}"),
        )
    return value


# -- the table

_STATES: Final = tuple(state.value for state in JobState)

FIELDS: Final = (
    Field("id", _ordered(_whole(0, MAX_ID)), "id:7,9  id:100..200", ("ids",)),
    Field("state", _one_of(_STATES), "state:available,retryable", ("states",), _STATES),
    Field("is", _one_of(CONDITIONS), "is:failing  is:orphaned", (), CONDITIONS),
    Field("queue", _word, "queue:mail*", ("queues",)),
    Field("worker", _word, "worker:Send*", ("workers",)),
    Field("node", _word, "node:web-1:*", ("nodes",)),
    Field("tag", _word, "tag:user:42", ("tags",)),
    Field("priority", _ordered(_whole(0, MAX_PRIORITY)), "priority:0..2", ("priorities",)),
    Field("attempt", _ordered(_whole(0, MAX_ATTEMPTS)), "attempt:>=3", ("attempts",)),
    Field("max", _ordered(_whole(0, MAX_ATTEMPTS)), "max:1", ("max_attempts",)),
    Field("args", _text, "args.user.id:42  args:text in any value", (), (), pathed=True),
    Field("meta", _text, "meta.source:import", (), (), pathed=True),
    Field("error", _text, 'error:"timed out" in the last error', ("errors",)),
    Field("error.class", _word, "error.class:TimeoutError", ("errors.class",)),
    Field("inserted", _ordered(_when), "inserted:<2h  inserted:2026-11-30..2026-12-01"),
    Field("scheduled", _ordered(_when), "scheduled:>2026-12-01"),
    Field("started", _ordered(_when), "started:<10m"),
    Field("finished", _ordered(_when), "finished:1h..2h (ago)"),
    Field("ran", _ordered(duration, equal=False), "ran:>30s", ("duration",)),
    Field("wait", _ordered(duration, equal=False), "wait:>5m", ("waited",)),
    Field("cron", _word, "cron:nightly"),
    Field("unique", _word, "unique:KEY (a held unique key)"),
    Field("has", _one_of(HAS), "has:error,tags", (), HAS),
    Field("sort", _word, "sort:time-desc", ("order",), (), single=True),
)
JSON_VALUE: Final = _json


def bare(raw: RawValue) -> Value:
    """A term without a qualifier: text to search for; digits are also an id."""
    if not raw.quoted and raw.text.isascii() and raw.text.isdigit() and int(raw.text) <= MAX_ID:
        return Exact(int(raw.text), raw.text)
    return Exact(raw.text, raw.text)


class Vocabulary:
    """The built-in qualifiers and those of plugins, by every name they have."""

    def __init__(self, extra: Iterable[Qualifier] = ()) -> None:
        self.fields: Final[tuple[Field, ...]] = (*FIELDS, *map(_custom, extra))
        self._by_name: dict[str, Field] = {}
        for field in reversed(self.fields):
            self._by_name |= dict.fromkeys((field.name, *field.aliases), field)

    def field(self, name: str) -> Field | None:
        """The field of a name or alias, in any case."""
        return self._by_name.get(name.lower())

    @property
    def names(self) -> list[str]:
        """All names and aliases."""
        return list(self._by_name)


def taken(extra: Iterable[Qualifier]) -> Mapping[str, Qualifier]:
    """Those of the plugins' qualifiers whose name means something already, by that name."""
    known = {name for field in FIELDS for name in (field.name, *field.aliases)}
    clashes: dict[str, Qualifier] = {}
    for qualifier in extra:
        names = {qualifier.name, *qualifier.aliases}
        for name in names & known:
            clashes[name] = qualifier
        known |= names
    return clashes


def _custom(qualifier: Qualifier) -> Field:
    def read(raw: RawValue) -> Value:
        text = f"{raw.op or ''}{'*' * raw.star_before}{raw.text}{'*' * raw.star_after}"
        if qualifier.redacted:
            raise Wrong(
                f"{qualifier.name}: its values are hidden, so they cannot be searched",
                raw.start,
                raw.length,
            )
        try:
            return Custom(qualifier, qualifier.parse(text), text)
        except ValueError as error:
            raise Wrong(str(error) or f"{text!r} is no value of it", raw.start, raw.length) from None
        except Exception as error:  # noqa: BLE001 - a plugin's parser may raise anything; parsing never does
            message = f"{qualifier.name}: its plugin could not read this ({type(error).__name__})"
            raise Wrong(message, raw.start, raw.length) from None

    return Field(qualifier.name, read, qualifier.help, qualifier.aliases)


# -- paths

_STEP: Final = re.compile(r'\.((?:[^\s:,"\[\].])+|"(?:[^"\\]|\\.)*")|\[(\d{0,6})\]', re.DOTALL)


def path_of(text: str) -> tuple[Part, ...]:
    """`.user.ids[].name` as steps. Raises ValueError."""
    parts: list[Part] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise ValueError('this is no path; write args.user.id, args.ids[] or args."a key"')
        at = step.end()
        key, index = step.groups()
        if key is None:
            parts.append(int(index) if index else None)
        else:
            parts.append(unquoted(key) if key.startswith('"') else key)
    if len(parts) > MAX_DEPTH:
        raise ValueError(f"a path has at most {MAX_DEPTH} steps")
    return tuple(parts)
