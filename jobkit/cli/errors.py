"""Errors on their way out: which exit code, which words, which shape in JSON.

Invariant: every error that leaves a command has exactly one exit code, decided by its class; its text is redacted and
free of control characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import click

from jobkit.cli.exitcodes import ExitCode

__all__ = ["CommandError", "Failure", "failure_of"]


class CommandError(click.ClickException):
    """A command ends here, with this exit code; `hint` says what to do."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED, *, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is shown. `expected` ones need no traceback to be understood."""

    code: ExitCode
    message: str
    hint: str = ""
    expected: bool = True


MIGRATE: Final = "jobkit migrate up"
_CLASSES: Final[dict[str, tuple[ExitCode, str]]] = {
    "jobkit.admin.errors.NotPermitted": (ExitCode.NOT_PERMITTED, ""),
    "jobkit.admin.errors.NotFound": (ExitCode.NOT_FOUND, ""),
    "jobkit.admin.errors.Invalid": (ExitCode.USAGE, ""),
    "jobkit.admin.errors.Conflict": (ExitCode.CONFLICT, ""),
    "jobkit.admin.errors.QueryRefused": (ExitCode.USAGE, "the query language: jobkit help query"),
    "jobkit.admin.errors.QueryTimeout": (
        ExitCode.DATABASE,
        "narrow the query, or give --db-timeout more time",
    ),
    "jobkit.admin.errors.DatabaseMissing": (ExitCode.DATABASE, MIGRATE),
    "jobkit.admin.errors.DatabaseUnreachable": (ExitCode.DATABASE, "look at it with: jobkit doctor"),
    "jobkit.errors.ConfigError": (ExitCode.CONFIG, "each value with its origin: jobkit config show"),
    "jobkit.errors.WorkerDefinitionError": (ExitCode.CONFIG, ""),
    "jobkit._known.WorkerUnavailable": (ExitCode.CONFIG, ""),
    "jobkit.errors.ScheduleError": (ExitCode.CONFIG, ""),
    "jobkit.errors.ArgsError": (ExitCode.USAGE, ""),
    "jobkit.errors.EnqueueConflict": (ExitCode.CONFLICT, "run it again"),
    "jobkit.errors.JobkitError": (ExitCode.FAILED, ""),
}
"""By full name, so that nothing is imported to look: an error's class is imported when it is raised."""
_FAULTS: Final[dict[str, tuple[ExitCode, str]]] = {
    "LOST": (ExitCode.DATABASE, "look at it with: jobkit doctor"),
    "TIMEOUT": (ExitCode.DATABASE, "give --db-timeout more time"),
    "LOCKED": (ExitCode.DATABASE, "another process holds the lock; run it again"),
    "READONLY": (ExitCode.DATABASE, "this user or file may not be written to"),
    "FULL": (ExitCode.DATABASE, "there is no space left for the database"),
    "CONFLICT": (ExitCode.CONFLICT, "run it again"),
    "MISSING": (ExitCode.SCHEMA, MIGRATE),
    "DENIED": (ExitCode.DATABASE, ""),
}


def failure_of(error: BaseException, database_url: str | None = None) -> Failure:
    """How this error is shown and with which code the process ends; `database_url` lets it name a file."""
    if isinstance(error, CommandError):
        return Failure(error.code, error.message, error.hint)
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return Failure(ExitCode.INTERRUPTED, "interrupted")
    if isinstance(error, click.UsageError):
        return Failure(ExitCode.USAGE, error.format_message(), _usage_hint(error))
    if isinstance(error, click.ClickException):
        return Failure(ExitCode.FAILED, error.format_message())
    for name in _names(error):
        if name == "jobkit.errors.NotMigrated":
            return _not_migrated(error)
        if name in _CLASSES:
            return Failure(_CLASSES[name][0], str(error), _CLASSES[name][1])
    return _of_database(error, database_url) or Failure(
        ExitCode.FAILED, f"{type(error).__name__}: {error}", "run again with --debug", expected=False
    )


def _names(error: BaseException) -> Iterator[str]:
    return (f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__)


def _usage_hint(error: click.UsageError) -> str:
    return f"see: {error.ctx.command_path} --help" if error.ctx is not None else ""


def _not_migrated(error: BaseException) -> Failure:
    from jobkit.admin.guard import not_migrated
    from jobkit.errors import NotMigrated

    assert isinstance(error, NotMigrated)
    return Failure(ExitCode.SCHEMA, not_migrated(error), MIGRATE)


def _of_database(error: BaseException, database_url: str | None) -> Failure | None:
    if not any(name.startswith("sqlalchemy.exc.") for name in _names(error)):
        return None
    from sqlalchemy import make_url

    from jobkit.admin._sqlite_files import explained
    from jobkit.admin.guard import NOT_MIGRATED
    from jobkit.storage.engine import Fault, classify

    if database_url and (about_file := explained(make_url(database_url), error)) is not None:
        return failure_of(about_file)
    if classify(error) is Fault.MISSING:
        return Failure(ExitCode.SCHEMA, NOT_MIGRATED, MIGRATE)

    code, hint = _FAULTS.get(classify(error).name, (ExitCode.FAILED, ""))
    text = str(getattr(error, "orig", None) or error).strip()
    return Failure(code, f"database: {text.splitlines()[0] if text else type(error).__name__}", hint)
