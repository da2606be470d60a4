"""What all arms share of claiming."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from jobkit.jobs import JobState, Transition
from jobkit.storage.arm import StorageArm
from jobkit.storage.base import Change, ClaimedJob, ClaimWish, Exchanged

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["SKEW", "Claiming", "in_order"]

SKEW: Final = timedelta(seconds=1)
"""How far another host's clock may be ahead without delaying its jobs."""


class Claiming(StorageArm):
    """`exchange` as a record and then claims; a subclass says how one claim is made."""

    @abstractmethod
    def claim(
        self,
        conn: Connection,
        queue: str,
        limit: int,
        *,
        node: str,
        at: datetime,
        skip: Collection[str] = (),
    ) -> list[ClaimedJob]:
        """See `Storage.claim`."""

    @abstractmethod
    def transition(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        """See `Storage.transition`."""

    def exchange(
        self,
        conn: Connection,
        changes: Sequence[Change],
        claims: Sequence[ClaimWish],
        *,
        node: str,
        at: datetime,
    ) -> Exchanged:
        """See `Storage.exchange`."""
        landed = self.transition(conn, changes)
        claimed: list[ClaimedJob] = []
        for wish in claims:
            claimed += self.claim(conn, wish.queue, wish.limit, node=node, at=at, skip=wish.skip)
        return Exchanged(landed, claimed)

    def _report_claims(self, conn: Connection, jobs: Sequence[ClaimedJob]) -> None:
        """Tells the observer of state changes."""
        if self.observers.transitions is not None:
            self._report(conn, map(_move, jobs))


def _move(job: ClaimedJob) -> Transition:
    return Transition(
        job.id, job.worker, job.queue, job.attempt, JobState.AVAILABLE, JobState.EXECUTING, job.attempted_at
    )


def in_order(jobs: list[ClaimedJob]) -> list[ClaimedJob]:
    """The jobs in the order of their queue, sorted in place."""
    if len(jobs) > 1:
        jobs.sort(key=_PLACE)
    return jobs


_PLACE: Final = attrgetter("priority", "scheduled_at", "id")
