"""Waiting for jobs to end, and what the outcome says to the shell."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.session import Session
from jobkit.cli.words import many

if TYPE_CHECKING:
    from jobkit.admin.views import JobSummary

__all__ = ["wait_for"]

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
MOST: Final = 1_000
FINAL: Final = frozenset({"completed", "discarded", "cancelled"})


def wait_for(
    session: Session,
    ids: Sequence[int],
    *,
    goal: Literal["completed", "final"] = "completed",
    timeout: timedelta | None = None,
    fail_on: Collection[str] = (),
) -> dict[int, JobSummary]:
    """Wait until all have ended. Raises CommandError: 124 when the time is up, 5 where a job is missing, 1 where one
    ended otherwise than it should.
    """
    end = None if timeout is None else time.monotonic() + timeout.total_seconds()
    pause, known = FIRST_PAUSE, dict[int, "JobSummary"]()
    while True:
        open_ids = [job for job in ids if job not in known or str(known[job].state) not in FINAL]
        found = _look(session, open_ids)
        _check_missing(open_ids, found, known)
        known |= found
        states = {job: str(summary.state) for job, summary in known.items()}
        failed = {job: state for job, state in states.items() if state in fail_on}
        if failed or all(state in FINAL for state in states.values()):
            _judge(states, failed, goal)
            return known
        if end is not None and time.monotonic() >= end:
            left = sum(state not in FINAL for state in states.values())
            raise CommandError(
                f"the time is up; {left} of {many(len(ids), 'job')} {'has' if left == 1 else 'have'} not ended",
                ExitCode.WAIT_TIMEOUT,
            )
        time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))
        pause = min(pause * 1.5, LONGEST_PAUSE)


def _look(session: Session, ids: Sequence[int]) -> dict[int, JobSummary]:
    found: dict[int, JobSummary] = {}
    for start in range(0, len(ids), MOST):
        found |= session.reads.summaries(ids[start : start + MOST])
    return found


def _check_missing(ids: Sequence[int], found: Collection[int], known: Collection[int]) -> None:
    missing = [job for job in ids if job not in found]
    if missing:
        gone = "was deleted or pruned meanwhile" if missing[0] in known else "does not exist"
        raise CommandError(f"job {missing[0]} {gone}", ExitCode.NOT_FOUND)


def _judge(states: dict[int, str], failed: dict[int, str], goal: str) -> None:
    wrong = failed or ({} if goal == "final" else {j: s for j, s in states.items() if s != "completed"})
    if wrong:
        job, state = next(iter(wrong.items()))
        more = f" and {many(len(wrong) - 1, 'more job')}" if len(wrong) > 1 else ""
        raise CommandError(
            f"job {job}{more}: {state}", ExitCode.FAILED, hint=f"look at it: jobkit jobs show {job}"
        )
