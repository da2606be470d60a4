"""The query language: one for command line, dashboard, API, bulk actions and saved views.

    state:discarded worker:Mail* -queue:low args.user.id:42 inserted:<2h "connection refused"

Terms are ANDed, values after a comma are ORed, `-` negates. Text search ignores the case of ASCII letters,
everything else is compared literally; a star counts at a value's ends only. Invariant: `parse` never raises
and never widens: a text with problems is not run at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from jobkit.admin._ast import BARE, OPERATORS, Exact, Order, Part, Query, Term, path_text, quoted
from jobkit.admin._fields import FIELDS, JSON_VALUE, Field, Vocabulary, bare, nearest, path_of
from jobkit.admin._scan import RawTerm, RawValue, Wrong, scan

__all__ = [
    "FIELDS",
    "MAX_LENGTH",
    "MAX_TERMS",
    "MAX_VALUES",
    "SORTS",
    "Field",
    "Order",
    "Parsed",
    "Part",
    "Problem",
    "Query",
    "Term",
    "Vocabulary",
    "parse",
    "path_text",
    "quoted",
    "refuse_hidden",
]

MAX_LENGTH: Final = 1_000
MAX_TERMS: Final = 20
MAX_VALUES: Final = 50
SORTS: Final = ("id", "time", "inserted", "scheduled", "priority", "attempt", "duration")

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong at one place: `start` and `length` in characters of the text, what to type there
    instead if known.
    """

    start: int
    length: int
    message: str
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """What `parse` understood. With problems, `query` holds the terms that had none; do not run it."""

    query: Query
    problems: tuple[Problem, ...] = ()


_DEFAULT: Final = Vocabulary()


def parse(text: str, vocabulary: Vocabulary = _DEFAULT) -> Parsed:
    """Read a query; never raises."""
    refused = _refuse_text(text)
    if refused is not None:
        return Parsed(Query(), (refused,))
    terms: list[Term] = []
    problems: list[Problem] = []
    for raw in scan(text):
        if isinstance(raw, Wrong):
            problems.append(_problem(raw))
            continue
        try:
            terms.append(_term(raw, vocabulary))
        except Wrong as wrong:
            problems.append(_problem(wrong))
    if len(terms) > MAX_TERMS:
        extra = terms[MAX_TERMS]
        problems.append(Problem(extra.start, extra.length, f"a query has at most {MAX_TERMS} terms"))
    return Parsed(Query(tuple(terms)), tuple(problems))


def _refuse_text(text: str) -> Problem | None:
    if len(text) > MAX_LENGTH:
        message = f"a query has at most {MAX_LENGTH:,} characters, this one {len(text):,}"
        return Problem(MAX_LENGTH, len(text) - MAX_LENGTH, message)
    found = _UNSTORABLE.search(text)
    if found is None:
        return None
    return Problem(found.start(), 1, "this character can be in no job; take it out")


def _problem(wrong: Wrong) -> Problem:
    return Problem(wrong.start, wrong.length, wrong.message, wrong.suggestion)


def _term(raw: RawTerm, vocabulary: Vocabulary) -> Term:
    if raw.name is None:
        _refuse_operator(raw)
        return Term(BARE, (bare(raw.values[0]),), raw.negated, (), raw.start, raw.length)
    field, path = _field(raw, raw.name, vocabulary)
    _check_shape(raw, field)
    read = JSON_VALUE if path else field.read
    values = tuple(read(value) for value in raw.values)
    if field.single:
        _check_sort(raw, values[0])
    return Term(field.name, values, raw.negated, path, raw.start, raw.length)


def _refuse_operator(raw: RawTerm) -> None:
    """Searching for the word `OR` is hardly ever what is meant, and would find next to nothing."""
    value = raw.values[0]
    if value.quoted or value.text not in OPERATORS:
        return
    raise Wrong(OPERATORS[value.text], raw.start, raw.length, quoted(value.text))


def _field(raw: RawTerm, name: str, vocabulary: Vocabulary) -> tuple[Field, tuple[Part, ...]]:
    start = raw.start + raw.negated
    field = vocabulary.field(name)
    if field is not None:
        return field, ()
    head = re.split(r"[.\[]", name, maxsplit=1)[0]
    pathed = vocabulary.field(head)
    if pathed is None or not pathed.pathed:
        near = nearest(name.lower(), vocabulary.names)
        text = f"there is no qualifier {name!r}; put the term in quotes to search for the text itself"
        raise Wrong(text, start, len(name), near)
    try:
        return pathed, path_of(name[len(head) :])
    except ValueError as error:
        raise Wrong(str(error), start, len(name)) from None


def _check_shape(raw: RawTerm, field: Field) -> None:
    if len(raw.values) > MAX_VALUES:
        extra = raw.values[MAX_VALUES]
        raise Wrong(f"a term has at most {MAX_VALUES} values", extra.start, max(extra.length, 1))
    if field.single and (raw.negated or len(raw.values) > 1):
        raise Wrong(f"{field.name}: takes one value and no minus sign", raw.start, raw.length)


def _check_sort(raw: RawTerm, value: object) -> None:
    typed: RawValue = raw.values[0]
    text = str(value.value) if isinstance(value, Exact) else ""
    name, dash, direction = text.partition("-")
    if name in SORTS and (not dash or direction in ("asc", "desc")):
        return
    near = nearest(name, SORTS)
    message = f"{typed.text!r} is no order; they are {', '.join(SORTS)}, each also with -asc or -desc"
    raise Wrong(message, typed.start, typed.length, near)


def refuse_hidden(parsed: Parsed, hidden: Callable[[str], bool], *, length: int | None = None) -> Parsed:
    """The same, with a problem for each path whose values are redacted: matching them would read them.

    `hidden(path)` judges a path such as `args.card.number`.
    """
    found = tuple(_hidden_paths(parsed.query, hidden))
    return replace(parsed, problems=(*parsed.problems, *found)) if found else parsed


def _hidden_paths(query: Query, hidden: Callable[[str], bool]) -> Iterator[Problem]:
    for term in query:
        if term.path and hidden(plain_path(term)):
            name = term.name
            message = f"{name} is hidden wherever jobs are shown, so it cannot be searched"
            yield Problem(term.start + term.negated, len(name), message)


def plain_path(term: Term) -> str:
    """The path as the redactor names it: dotted, without list positions."""
    return ".".join((term.field, *(part for part in term.path if isinstance(part, str))))
