"""What a run may say of itself: Done, Snooze, Cancel, Discard.

An outcome may be returned from `perform` or raised from deep inside it, so each is an exception too.
Invariant: an outcome means the same in the process that made it and, through its JSON form, in the one that
records it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

__all__ = ["MAX_DELAY", "Cancel", "Discard", "Done", "Outcome", "Snooze"]

MAX_DELAY: Final = timedelta(days=36_525)
"""The longest delay that is accepted anywhere: 100 years."""


class Outcome(Exception):
    """Base of the four outcomes. Equal by class and value; may be returned or raised."""

    __slots__ = ()

    def _values(self) -> tuple[object, ...]:
        return ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Outcome) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._values()))})"

    def __reduce__(self) -> tuple[type[Outcome], tuple[object, ...]]:
        return type(self), self._values()

    def to_json(self) -> dict[str, object]:
        """A JSON object that `outcome_from_json` turns back into an equal outcome."""
        return {"outcome": "done"}


class Done(Outcome):
    """The work is done: the job becomes `completed`. Returning None says the same."""

    __slots__ = ()


class Snooze(Outcome):
    """Not now: the job becomes `scheduled` again after `delay`, and the attempt does not count.

    `delay`: a timedelta, or seconds as int or float; at least 0 and at most 100 years, else ValueError;
    anything else is a TypeError.
    """

    __slots__ = ("delay",)

    def __init__(self, delay: timedelta | float) -> None:
        super().__init__()
        self.delay: timedelta = checked_delay(delay, what="Snooze")

    def _values(self) -> tuple[object, ...]:
        return (self.delay,)

    def to_json(self) -> dict[str, object]:
        """See `Outcome.to_json`; the delay is in whole microseconds."""
        return {"outcome": "snooze", "microseconds": self.delay // timedelta(microseconds=1)}


class _WithReason(Outcome):
    __slots__ = ("reason",)

    def __init__(self, reason: str = "") -> None:
        super().__init__()
        if not isinstance(reason, str):
            raise TypeError(f"{type(self).__name__}'s reason must be text, not {type(reason).__name__}")
        self.reason: str = reason

    def _values(self) -> tuple[object, ...]:
        return (self.reason,)

    def to_json(self) -> dict[str, object]:
        """See `Outcome.to_json`."""
        return {"outcome": type(self).__name__.lower(), "reason": self.reason}

    def __str__(self) -> str:
        return self.reason


class Cancel(_WithReason):
    """The work no longer matters (its record is gone): the job becomes `cancelled`."""

    __slots__ = ()


class Discard(_WithReason):
    """Retrying cannot help (bad input): the job becomes `discarded`."""

    __slots__ = ()


def checked_delay(delay: object, *, what: str) -> timedelta:
    """`delay` as a timedelta between 0 and 100 years.

    Raises TypeError for anything but a timedelta or a number (bool refused), ValueError outside the range.
    """
    if isinstance(delay, timedelta):
        value = delay
    elif isinstance(delay, bool) or not isinstance(delay, int | float):
        raise TypeError(f"{what} takes a timedelta or seconds, not {type(delay).__name__}")
    elif delay != delay or abs(delay) > MAX_DELAY.total_seconds():  # NaN differs from itself
        raise ValueError(f"{what}: {delay!r} seconds is out of range (0 to 100 years)")
    else:
        value = timedelta(seconds=delay)
    if not timedelta(0) <= value <= MAX_DELAY:
        raise ValueError(f"{what}: a delay lies between 0 and 100 years, got {value!r}")
    return value


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    """The outcome that `to_json` described; ValueError for anything else."""
    kind = data.get("outcome")
    if kind == "done":
        return Done()
    if kind == "snooze":
        return Snooze(timedelta(microseconds=int(data["microseconds"])))
    if kind == "cancel":
        return Cancel(str(data["reason"]))
    if kind == "discard":
        return Discard(str(data["reason"]))
    raise ValueError(f"not an outcome: {kind!r}")
