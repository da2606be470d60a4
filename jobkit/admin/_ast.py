"""The query as a tree: terms and values, and their printed form.

Invariant: what `str()` prints parses to an equal tree, whatever characters the values hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from jobkit.hookspecs import Qualifier
from jobkit.jobs import FINAL, INCOMPLETE, JobState

__all__ = [
    "BARE",
    "FAILING",
    "OPERATORS",
    "Ago",
    "Compare",
    "Custom",
    "Exact",
    "Moment",
    "Op",
    "Order",
    "Part",
    "Query",
    "Range",
    "Scalar",
    "Term",
    "Value",
    "Wild",
    "path_text",
    "printed_name",
    "quoted",
]

BARE: Final = ""
"""The field of a term without a qualifier."""
FAILING: Final = frozenset({JobState.RETRYABLE, JobState.DISCARDED})
GROUPS: Final = {"incomplete": INCOMPLETE, "final": FINAL, "failing": FAILING}

Op: TypeAlias = Literal["<", "<=", ">", ">=", "="]
Part: TypeAlias = str | int | None
"""One step of a JSON path: a key, a list's index, or None for any element of a list."""

# What needs no quotes. Everything else is quoted, so that no character ever has to be thought about twice.
_PLAIN: Final = re.compile(r"[\w:./@%#;?~!$^'(){}&|+-]+")
_LITERAL: Final = re.compile(r"-?\d.*|true|false|null|-.*", re.DOTALL)
_KEY: Final = re.compile(r"[\w-]+")


_OR: Final = (
    "there is no OR between terms; values after a comma are alternatives, as in state:available,scheduled; "
    "to search for the word itself, put it in quotes"
)
_AND: Final = "terms are ANDed anyway; leave this out, or put it in quotes to search for the word itself"
_NOT: Final = "a minus sign negates, as in -queue:mail; to search for the word itself, put it in quotes"
OPERATORS: Final = {"OR": _OR, "||": _OR, "|": _OR, "AND": _AND, "&&": _AND, "&": _AND, "NOT": _NOT}
"""Words of other query languages, and what to say instead."""


def quoted(text: str) -> str:
    """The text in quotes, as the parser reads it back."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def printed_name(text: str) -> str:
    """A value that can only be text, with quotes where it needs them."""
    return text if _PLAIN.fullmatch(text) else quoted(text)


def _printed(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and not _LITERAL.fullmatch(text) and ".." not in text
    return text if plain else quoted(text)


@dataclass(frozen=True, slots=True)
class Moment:
    """An absolute time as typed: the instants from `start` on and before `end` (a date is a whole day)."""

    start: datetime
    end: datetime
    text: str

    def __str__(self) -> str:
        return quoted(self.text) if " " in self.text else self.text


@dataclass(frozen=True, slots=True)
class Ago:
    """A span before now, or a duration."""

    delta: timedelta
    text: str

    def __str__(self) -> str:
        return self.text


Scalar: TypeAlias = int | float | Moment | Ago


@dataclass(frozen=True, slots=True)
class Exact:
    """This value. A number, true, false or null typed without quotes is that; `text` is what was typed."""

    value: str | int | float | bool | None
    text: str

    def __str__(self) -> str:
        return _printed(self.value) if isinstance(self.value, str) else self.text


@dataclass(frozen=True, slots=True)
class Wild:
    """`text*` (open at the end), `*text` (open at the start), `*text*`, or `*` alone: anything."""

    text: str
    open_start: bool
    open_end: bool

    def __str__(self) -> str:
        if not self.text:
            return "*"
        inner = self.text if _PLAIN.fullmatch(self.text) else quoted(self.text)
        return f"{'*' if self.open_start else ''}{inner}{'*' if self.open_end else ''}"


@dataclass(frozen=True, slots=True)
class Compare:
    """`>5`, `<=2026-11-30`, `<2h` (less than two hours ago)."""

    op: Op
    scalar: Scalar
    text: str

    def __str__(self) -> str:
        return f"{self.op}{self.text}"


@dataclass(frozen=True, slots=True)
class Range:
    """`low..high`, both included; None is open."""

    low: Scalar | None
    high: Scalar | None
    low_text: str
    high_text: str

    def __str__(self) -> str:
        return f"{self.low_text}..{self.high_text}"


@dataclass(frozen=True, slots=True)
class Custom:
    """A value of a plugin's qualifier. Equal when the text is."""

    qualifier: Qualifier
    value: object
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and (self.qualifier.name, self.text) == (
            other.qualifier.name,
            other.text,
        )

    def __hash__(self) -> int:
        return hash((self.qualifier.name, self.text))

    def __str__(self) -> str:
        return printed_name(self.text)


Value: TypeAlias = Exact | Wild | Compare | Range | Custom


@dataclass(frozen=True, slots=True)
class Term:
    """One term: any of the values, or with `negated` none of them."""

    field: str
    values: tuple[Value, ...]
    negated: bool = False
    path: tuple[Part, ...] = ()
    start: int = 0
    length: int = 0

    def __str__(self) -> str:
        sign = "-" if self.negated else ""
        if self.field == BARE:
            value = self.values[0]
            assert isinstance(value, Exact)
            text = value.text if not isinstance(value.value, str) else _bare(value.value)
            return sign + text
        return f"{sign}{self.name}:{','.join(map(self._printed, self.values))}"

    def _printed(self, value: Value) -> str:
        if not self.path and isinstance(value, Exact) and isinstance(value.value, str):
            return printed_name(value.value)
        return str(value)

    @property
    def name(self) -> str:
        """The qualifier as typed before the colon: `args.user.id`."""
        return self.field + path_text(self.path)

    def __eq__(self, other: object) -> bool:
        """Where it stood in the text is no part of its meaning."""
        return isinstance(other, Term) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.field, self.values, self.negated, self.path


def _bare(text: str) -> str:
    printed = _printed(text)
    return quoted(text) if text in OPERATORS or (":" in printed and printed[0] != '"') else printed


def path_text(path: tuple[Part, ...]) -> str:
    """`.user.ids[].0` with quotes around keys that need them."""
    parts = []
    for part in path:
        if part is None:
            parts.append("[]")
        elif isinstance(part, int):
            parts.append(f"[{part}]")
        else:
            parts.append("." + (part if _KEY.fullmatch(part) else quoted(part)))
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Order:
    """What `sort:` asks for; `descending` None leaves the direction to the order itself."""

    name: str
    descending: bool | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: all terms must match. `str(query)` prints it."""

    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    def __and__(self, other: Query) -> Query:
        return Query((*self.terms, *other.terms))

    def without(self, *fields: str) -> Query:
        """The query without the terms of these fields."""
        return Query(tuple(term for term in self.terms if term.field not in fields))

    def without_states(self) -> Query:
        """The query without what chooses states: `state:` and the groups of `is:`."""
        return Query(tuple(term for term in self.terms if not _chooses_states(term)))

    @property
    def order(self) -> Order | None:
        """The last `sort:` term."""
        for term in reversed(self.terms):
            if term.field == "sort" and isinstance(term.values[0], Exact):
                name, _, direction = str(term.values[0].value).partition("-")
                return Order(name, None if not direction else direction == "desc")
        return None

    @property
    def states(self) -> frozenset[JobState]:
        """The states that a match can have."""
        states = frozenset(JobState)
        for term in self.terms:
            if (chosen := _states_of(term)) is not None:
                states &= chosen
        return states

    def only_value(self, field: str) -> str | None:
        """The one value that a match must have in this field; None where there may be several."""
        for term in self.terms:
            if term.field == field and not term.negated and len(term.values) == 1:
                value = term.values[0]
                if isinstance(value, Exact):
                    return str(value.value)
        return None

    def __iter__(self) -> Iterator[Term]:
        return iter(self.terms)


def _chooses_states(term: Term) -> bool:
    if term.field == "state":
        return True
    return term.field == "is" and all(str(value) in GROUPS for value in term.values)


IMPLIED: Final = {
    **GROUPS,
    "orphaned": frozenset({JobState.EXECUTING}),
    "stuck": frozenset({JobState.EXECUTING}),
    "overdue": frozenset({JobState.AVAILABLE}),
    "paused": INCOMPLETE - {JobState.EXECUTING},
}


def _states_of(term: Term) -> frozenset[JobState] | None:
    """The states that a term leaves; None where it says nothing about them."""
    names = [str(value.value) for value in term.values if isinstance(value, Exact)]
    if term.field == "state":
        chosen = frozenset(map(JobState, names))
        return frozenset(JobState) - chosen if term.negated else chosen
    if term.field != "is":
        return None
    if term.negated:
        gone = frozenset[JobState]().union(*(GROUPS.get(name, frozenset()) for name in names))
        return frozenset(JobState) - gone
    if any(name not in IMPLIED for name in names):
        return None
    return frozenset[JobState]().union(*(IMPLIED[name] for name in names))
