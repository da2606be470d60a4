"""What an expected job has to have in common with a stored one: pure, no database.

Invariant: an expected value is compared in the form in which it would be stored, so a UUID, an enum or a
datetime in a test matches the text that the row holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast
from unittest.mock import ANY

import msgspec

from jobkit._encoding import encode_json
from jobkit.errors import ArgsError
from jobkit.jobs import JobState

__all__ = ["ANY", "TOLERANCE", "EnqueuedJob", "Expected", "difference"]

TOLERANCE: Final = timedelta(seconds=1)
"""How far an expected `scheduled_at` may lie from the stored one, on either side."""


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """A stored job that will still run. `args` and `meta` are JSON values as stored; times are aware and UTC."""

    id: int
    worker: str
    queue: str
    state: JobState
    args: dict[str, Any]
    meta: dict[str, Any]
    tags: tuple[str, ...]
    priority: int
    attempt: int
    max_attempts: int
    inserted_at: datetime
    scheduled_at: datetime


@dataclass(frozen=True, slots=True)
class Expected:
    """What a test asks for; None asks nothing. `args` and `meta` are matched in part, at every depth."""

    worker: str | None = None
    args: Mapping[str, object] | None = None
    queue: str | None = None
    meta: Mapping[str, object] | None = None
    tags: Iterable[str] | None = None
    scheduled_at: datetime | None = None

    def __post_init__(self) -> None:
        """Raises ArgsError for a naive `scheduled_at` and for tags that are one text."""
        at = self.scheduled_at
        if isinstance(at, datetime) and at.utcoffset() is None:
            raise ArgsError(f"scheduled_at: {at} has no time zone; give an aware datetime")
        if isinstance(self.tags, str):
            raise ArgsError(f"tags: a list of texts is expected, not the text {self.tags!r}")
        if self.tags is not None:
            object.__setattr__(self, "tags", tuple(self.tags))

    def differs(self, job: EnqueuedJob) -> str | None:
        """Where the job is another than the one expected, as a path such as `args.card.last4`; None where it is not."""
        if self.worker is not None and self.worker != job.worker:
            return "worker"
        if self.queue is not None and self.queue != job.queue:
            return "queue"
        if self.tags is not None and not set(self.tags) <= set(job.tags):
            return "tags"
        if self.scheduled_at is not None and not _near(self.scheduled_at, job.scheduled_at):
            return "scheduled_at"
        for name in ("args", "meta"):
            expected: object = getattr(self, name)
            if expected is not None and (found := difference(expected, getattr(job, name), name)):
                return found
        return None


def difference(expected: object, actual: object, path: str) -> str | None:
    """The path of the first value in which `expected` is not contained in `actual`, or None.

    Mappings may lack keys that `actual` has; lists must be equally long. `ANY`, and every other object that has
    no JSON form of its own, decides by its `==`.
    """
    if expected is ANY:
        return None
    if isinstance(expected, Mapping):
        return _in_mapping(cast("Mapping[object, object]", expected), actual, path)
    if isinstance(expected, list | tuple):
        return _in_list(expected, actual, path)
    return None if _equal(_stored(expected), actual) else path


def _in_mapping(expected: Mapping[object, object], actual: object, path: str) -> str | None:
    if not isinstance(actual, Mapping):
        return path
    for key, value in expected.items():
        name = key if isinstance(key, str) else str(_stored(key))
        if name not in actual:
            return f"{path}.{name}"
        if found := difference(value, actual[name], f"{path}.{name}"):
            return found
    return None


def _in_list(expected: list[object] | tuple[object, ...], actual: object, path: str) -> str | None:
    if not isinstance(actual, list) or len(actual) != len(expected):
        return path
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        if found := difference(one, other, f"{path}[{number}]"):
            return found
    return None


def _stored(value: object) -> object:
    try:
        stored: object = msgspec.json.decode(encode_json(value))
    except (TypeError, ValueError, RecursionError):
        return value
    return stored


def _equal(expected: object, actual: object) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual or (type(expected) not in (bool, int, float) and bool(expected == actual))
    return bool(expected == actual)


def _near(expected: object, actual: datetime) -> bool:
    if isinstance(expected, datetime):
        return abs(expected - actual) <= TOLERANCE
    return bool(expected == actual)
