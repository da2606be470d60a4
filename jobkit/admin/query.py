"""The query language: one for command line, dashboard, API, bulk actions and saved views.

    state:discarded worker:Mail* -queue:low args.user.id:42 inserted:<2h "connection refused"

Terms are ANDed, values after a comma are ORed, `-` negates. Invariant: `parse` never raises and never
widens: a text with problems is not run at all.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Parsed", "Problem", "Query", "parse"]


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong at one place: `start` and `length` in characters of the text, what to type instead if
    known.
    """

    start: int
    length: int
    message: str
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query; `str(query)` prints it, and parsing that gives an equal one."""

    terms: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """What `parse` understood. With problems, `query` holds the terms that had none; do not run it."""

    query: Query
    problems: tuple[Problem, ...] = ()


def parse(text: str) -> Parsed:
    """Read a query; never raises."""
    raise NotImplementedError
