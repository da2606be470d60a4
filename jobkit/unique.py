"""Uniqueness: which jobs count as the same, and for how long.

Invariant: a key depends on worker, queue, the selected args and the period's bucket alone, never on the
process that makes it, so that the unique index may decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from jobkit._canonical import canonical_bytes
from jobkit.errors import ArgsError
from jobkit.outcomes import MAX_DELAY

__all__ = ["Unique"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
States = Literal["incomplete", "all"]


@dataclass(frozen=True, slots=True)
class Unique:
    """Made by `Unique.args` or `Unique.worker`.

    keys: names of the args that count; None = every arg, also one that is added later.
    by: "args", or "worker" where no arg counts.
    period: length of the windows; None = for as long as the first job holds its key.
    states: "incomplete" = the key is free again once the job is in a final state, "all" = once its row is
    gone.
    """

    keys: tuple[str, ...] | None = None
    period: timedelta | None = None
    states: States = "incomplete"
    by: Literal["args", "worker"] = "args"

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", _checked_period(self.period))
        if self.states not in ("incomplete", "all"):
            raise ArgsError(f"Unique: states is 'incomplete' or 'all', not {self.states!r}")
        if self.by not in ("args", "worker"):
            raise ArgsError(f"Unique: by is 'args' or 'worker', not {self.by!r}")
        for key in self.keys or ():
            if not isinstance(key, str):
                raise ArgsError(f"Unique.args: a key is the name of an arg, not {type(key).__name__}")

    @classmethod
    def args(
        cls, *keys: str, period: timedelta | float | None = None, states: States = "incomplete"
    ) -> Unique:
        """Jobs of one worker and queue whose args (or those named by `keys`) are equal are the same job.

        period: timedelta or seconds, above 0 and at most 100 years. Windows are aligned to the clock: with 24
        hours they run from midnight UTC, that included, to the next, that excluded; so two jobs minutes apart
        may lie in two windows. Raises ArgsError.
        """
        return cls(tuple(sorted(set(keys))) or None, period, states)  # type: ignore[arg-type]

    @classmethod
    def worker(cls, *, period: timedelta | float | None = None, states: States = "incomplete") -> Unique:
        """All jobs of one worker and queue are the same job, whatever their args. Else as `Unique.args`."""
        return cls(None, period, states, "worker")  # type: ignore[arg-type]

    def key(self, worker: str, queue: str, args: Mapping[str, object], now: datetime) -> str:
        """The key as hexadecimal SHA-256. `args` are values (not JSON text), `now` is aware."""
        form = canonical_bytes([worker, queue, self._selected(args), self._window(now)])
        return hashlib.sha256(form).hexdigest()

    def period_bucket(self, now: datetime) -> int | None:
        """Number of the window that `now` lies in: floor(now / period), since 1970 UTC; None if not set."""
        return None if self.period is None else (now - _EPOCH) // self.period

    def _selected(self, args: Mapping[str, object]) -> Mapping[str, object] | None:
        if self.by == "worker":
            return None
        if self.keys is None:
            return dict(args)
        return {key: args[key] for key in self.keys if key in args}

    def _window(self, now: datetime) -> tuple[int, int] | None:
        # The length belongs to it: window 5 of an hour is not window 5 of a day.
        bucket = self.period_bucket(now)
        if self.period is None or bucket is None:
            return None
        return self.period // timedelta.resolution, bucket


def _checked_period(period: object) -> timedelta | None:
    if period is None:
        return None
    if isinstance(period, bool) or not isinstance(period, timedelta | int | float):
        raise ArgsError(f"Unique: period is a timedelta or seconds, not {type(period).__name__}")
    if not isinstance(period, timedelta):
        if not 0 < period <= MAX_DELAY.total_seconds():
            raise ArgsError("Unique: a period in seconds lies above 0 and at most at 100 years")
        period = timedelta(seconds=period)
    if not timedelta(0) < period <= MAX_DELAY:
        raise ArgsError(f"Unique: a period lies above 0 and at most at 100 years, got {period!r}")
    return period
