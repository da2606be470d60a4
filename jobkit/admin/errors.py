"""What reads and actions raise.

Invariant: a caller decides by class (a page's status, a command's exit code); the text is for people and
holds nothing that redaction hides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobkit.errors import JobkitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobkit.admin.query import Problem

__all__ = [
    "AdminError",
    "Conflict",
    "DatabaseMissing",
    "DatabaseUnreachable",
    "Invalid",
    "InvalidRequests",
    "NotFound",
    "NotPermitted",
    "QueryRefused",
    "QueryTimeout",
]


class AdminError(JobkitError):
    """Base of what this package raises on purpose."""


class NotPermitted(AdminError):
    """The actor may not do this; `permission` names what is missing."""

    def __init__(self, permission: str, text: str = "") -> None:
        super().__init__(text or f"not permitted: this needs {permission}")
        self.permission = permission


class NotFound(AdminError):
    """There is no such thing, or it lies outside what the actor may see."""


class Invalid(AdminError):
    """What was asked for is wrong in itself (an empty edit, a limit below 0); nothing was written."""


class InvalidRequests(Invalid):
    """Some of several requests are wrong: `problems` says by place (from 0) what; nothing was written."""

    def __init__(self, problems: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"no. {place + 1}: {text}" for place, text in problems.items()))
        self.problems = dict(problems)


class Conflict(AdminError):
    """The thing changed meanwhile, or a one-time key was used for something else; nothing was written."""


class QueryRefused(AdminError):
    """The query has problems, so nothing was searched, counted or changed."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = tuple(problems)


class QueryTimeout(AdminError):
    """A read took longer than its limit and was given up; the text says the limit."""


class DatabaseUnreachable(AdminError):
    """The database does not answer, refuses the connection, or is none."""


class DatabaseMissing(DatabaseUnreachable):
    """There is no such SQLite file (yet)."""
