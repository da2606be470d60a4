"""Where job code runs: on the event loop, in a thread, or in a child process.

Invariant: a runner reports the end of each run exactly once, on the event loop, when job code has really
ended, with what was returned or raised as a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextvars import Context

    from jobkit._hooktable import Implementation
    from jobkit.runtime.runs import Run

__all__ = ["JobRunner", "RunnerHost"]


class RunnerHost(Protocol):
    """What a runner tells, always on the event loop (`around` and `context` from anywhere)."""

    def begin(self, run: Run) -> bool:
        """Job code is about to run. False where the run was told to end before: it has been ended."""
        ...

    def ended(self, run: Run, result: BaseException) -> None:
        """Job code has ended with an Outcome, or with any other exception."""
        ...

    def around(self) -> Sequence[Implementation]:
        """The middleware of this moment."""
        ...

    def context(self, run: Run) -> Context:
        """A context of its own for the run; `enter` must be called first in it."""
        ...

    def enter(self, run: Run) -> None:
        """Make the app and the job the current ones of the context that calls."""
        ...


class JobRunner(Protocol):
    """One way of running jobs."""

    def start(self, run: Run) -> None:
        """Run the job soon. Returns at once."""
        ...

    def stop(self, run: Run) -> None:
        """Ask the run to end, or end it; `run.why` says who asks, and `run.flag` is up."""
        ...

    def nudge(self, run: Run) -> None:
        """`run.flag` has just been raised: let job code elsewhere know."""
        ...

    def close(self) -> None:
        """Let go of threads and children; runs that still live are not waited for."""
        ...

    def join(self, timeout: float) -> None:
        """After `close`: wait for what ends soon by itself. Not on the event loop."""
        ...
