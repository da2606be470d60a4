"""Which exception a failed run amounts to, for tests that let it out.

Invariant: what job code raised comes out as it is; only what would end the test run or cancel the test
becomes an ordinary exception.
"""

from __future__ import annotations

from jobkit.errors import ArgsError
from jobkit.outcomes import Outcome
from jobkit.runtime.executor import Ended

__all__ = ["failure_of", "outcome_or_raise"]

_TIMED_OUT = "TimeoutError: timed out after "


def failure_of(ended: Ended) -> Exception | None:
    """The exception of a run that failed; None where it ended with an outcome of its own."""
    text, error = ended.settled.error or "", ended.error
    if text.startswith(_TIMED_OUT) and not isinstance(error, TimeoutError):
        failure: Exception = TimeoutError(text.partition("\n")[0].removeprefix("TimeoutError: "))
        failure.__cause__ = error
        return failure
    if error is None:
        return ArgsError(text) if text.startswith("unknown worker") else None
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"the job raised {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def outcome_or_raise(ended: Ended) -> Outcome:
    """The outcome of a run; raises what it failed with."""
    failure = failure_of(ended)
    if failure is not None:
        raise failure
    assert ended.outcome is not None
    return ended.outcome
