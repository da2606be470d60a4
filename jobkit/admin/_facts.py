"""One row of the jobs table as reads see it: columns as they are, JSON decoded and redacted at first use.

Invariant: no text of a job leaves this module unredacted, and a row whose JSON is broken is still a row.
Declared secret paths come from the row itself (`meta.secret_paths`), so no worker class is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement

from jobkit.jobs import JobState
from jobkit.redact import Redactor

if TYPE_CHECKING:
    from jobkit.storage.schema import Tables

__all__ = ["COLUMNS", "Facts", "JobError", "columns_of", "error_class"]

COLUMNS: Final = (
    "id",
    "state",
    "queue",
    "worker",
    "args",
    "meta",
    "tags",
    "errors",
    "attempt",
    "max_attempts",
    "priority",
    "unique_key",
    "attempted_by",
    "inserted_at",
    "scheduled_at",
    "attempted_at",
    "completed_at",
    "cancelled_at",
    "discarded_at",
)
_NOTHING: Final[Mapping[str, object]] = {}
_RAN: Final = frozenset({JobState.COMPLETED, JobState.DISCARDED})


def columns_of(tables: Tables) -> list[ColumnElement[Any]]:
    """What `Facts` needs of a row."""
    return [tables.jobs.c[name] for name in COLUMNS]


def _loaded(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str | bytes) else text
    except (ValueError, RecursionError):
        return None


def error_class(text: str) -> str:
    """The exception's class: what stands before the first colon of an error's first line."""
    return text.partition("\n")[0].partition(":")[0].strip()


class JobError:
    """One stored failure, redacted again."""

    __slots__ = ("at", "attempt", "text")

    def __init__(self, attempt: int, at: datetime | None, text: str) -> None:
        self.attempt = attempt
        self.at = at
        self.text = text


class Facts:
    """What may be known of one job at `now`."""

    def __init__(self, row: Mapping[str, Any], redactor: Redactor, now: datetime) -> None:
        self.row = row
        self._redactor = redactor
        self.now = now
        self.id: int = row["id"]
        self.state = JobState(row["state"])
        self.queue: str = row["queue"]
        self.worker: str = row["worker"]
        self.node: str | None = row["attempted_by"]
        self.priority: int = row["priority"]
        self.attempt: int = row["attempt"]
        self.max_attempts: int = row["max_attempts"]
        self.unique_key: str | None = row["unique_key"]
        self.inserted_at: datetime = row["inserted_at"]
        self.scheduled_at: datetime = row["scheduled_at"]
        self.attempted_at: datetime | None = row["attempted_at"]
        self.finished_at: datetime | None = row["completed_at"] or row["discarded_at"] or row["cancelled_at"]

    # -- redacted content

    @cached_property
    def args(self) -> object:
        """The args; redacted text where they are no JSON."""
        value = _loaded(self.row["args"])
        if value is None:
            return self._redactor.text(_text(self.row["args"]), worker=self.worker, kind="args")
        return self._redactor.value(value, worker=self.worker, secret_paths=self.secret_paths)

    @cached_property
    def meta(self) -> object:
        """The meta, without what jobkit notes for redaction."""
        shown = {key: value for key, value in self._meta.items() if key != "secret_paths"}
        return self._redactor.value(shown, path="meta", worker=self.worker, kind="meta")

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags."""
        raw = _loaded(self.row["tags"])
        items = [str(tag) for tag in raw] if isinstance(raw, list) else []
        shown = self._redactor.value(items, path="tags", worker=self.worker, kind="tags")
        return tuple(map(str, shown)) if isinstance(shown, list) else (str(shown),)

    @cached_property
    def stored_tags(self) -> tuple[str, ...]:
        """The tags as they stand in the row: to be written back, never shown."""
        raw = _loaded(self.row["tags"])
        return tuple(str(tag) for tag in raw) if isinstance(raw, list) else ()

    @cached_property
    def errors(self) -> tuple[JobError, ...]:
        """The stored failures, oldest first."""
        raw = _loaded(self.row["errors"])
        return tuple(map(self._error, raw)) if isinstance(raw, list) else ()

    @cached_property
    def error(self) -> str:
        """The last failure's text; empty without one."""
        raw = _loaded(self.row["errors"])
        return self._error(raw[-1]).text if isinstance(raw, list) and raw else ""

    def _error(self, entry: object) -> JobError:
        found: Mapping[str, object] = entry if isinstance(entry, dict) else {"error": entry}
        attempt, at = found.get("attempt"), found.get("at")
        text = self._redactor.text(str(found.get("error", "")), worker=self.worker, kind="error")
        return JobError(attempt if isinstance(attempt, int) else 0, _instant(at), text)

    # -- what jobkit itself keeps in meta

    @cached_property
    def _meta(self) -> Mapping[str, object]:
        found = _loaded(self.row["meta"])
        return found if isinstance(found, dict) else _NOTHING

    @property
    def secret_paths(self) -> Iterable[str]:
        """The paths that the worker declared secret, relative to the args."""
        declared = self._meta.get("secret_paths")
        return [path for path in declared if isinstance(path, str)] if isinstance(declared, list) else []

    @property
    def cron(self) -> str | None:
        """The recurring entry that it is a run of."""
        key = self._meta.get("cron")
        return key if isinstance(key, str) else None

    @property
    def snoozed(self) -> int:
        """How often it was snoozed."""
        count = self._meta.get("snoozed")
        return count if isinstance(count, int) and not isinstance(count, bool) else 0

    @property
    def kept_unique_key(self) -> str | None:
        """The key that a unique job had when it was inserted, held now or not."""
        key = self._meta.get("unique_key")
        return key if isinstance(key, str) else self.unique_key

    @property
    def has_errors(self) -> bool:
        """Whether any failure is stored."""
        return _text(self.row["errors"]) not in ("[]", "")

    @property
    def has_tags(self) -> bool:
        """Whether it has tags."""
        return _text(self.row["tags"]) not in ("[]", "")

    @property
    def has_meta(self) -> bool:
        """Whether there is any meta but what jobkit notes for itself."""
        return bool(self._meta.keys() - OWN_META)

    @property
    def args_size(self) -> int:
        """Bytes of the args as JSON text."""
        text = self.row["args"]
        return len(text if isinstance(text, bytes) else str(text).encode("utf-8", "replace"))

    # -- spans

    @property
    def duration(self) -> timedelta | None:
        """How long the last run took, or has taken so far; None where that is not known."""
        if self.attempted_at is None:
            return None
        if self.state is JobState.EXECUTING:
            return self.now - self.attempted_at
        if self.state in _RAN and self.finished_at is not None:
            return self.finished_at - self.attempted_at
        return None

    @property
    def wait(self) -> timedelta | None:
        """How long it was due before it started, or has been due so far; None where that is not known."""
        if self.state is JobState.AVAILABLE:
            return self.now - self.scheduled_at
        if self.attempted_at is None or (self.state is not JobState.EXECUTING and self.state not in _RAN):
            return None
        return self.attempted_at - self.scheduled_at


OWN_META: Final = frozenset({"unique_states", "unique_key", "secret_paths", "snoozed", "cron", "batch"})


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _instant(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None
