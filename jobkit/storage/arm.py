"""What all arms share: tables, observers, and how a method gets its transaction.

Invariant: a method that finds no open transaction runs as a whole in one of its own, repeated on conflicts
and locks; within the caller's transaction it runs once, and errors are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from jobkit.jobs import JobState, Transition
from jobkit.storage.base import NO_OBSERVERS, Change, Observers
from jobkit.storage.engine import atomic, autocommits, in_transaction
from jobkit.storage.faults import retrying

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.storage.schema import Tables

__all__ = ["StorageArm", "batches"]

T = TypeVar("T")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in slices of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


class StorageArm:
    """Base of the arms."""

    def __init__(self, tables: Tables, observers: Observers = NO_OBSERVERS) -> None:
        self.tables: Final = tables
        self.observers: Final = observers

    @property
    def observed(self) -> bool:
        """See `Storage.observed`."""
        return self.observers.inserted is not None or self.observers.transitions is not None

    def _whole(self, conn: Connection, work: Callable[[], T]) -> T:
        """Runs `work` in one transaction: the caller's, else one of its own."""
        if in_transaction(conn):
            return work()

        def attempt() -> T:
            with atomic(conn):
                return work()

        return retrying(attempt)

    def _single(self, conn: Connection, work: Callable[[], T]) -> T:
        """As `_whole`, for work that is one statement: an autocommit connection needs no transaction for
        it.
        """
        if autocommits(conn) and not in_transaction(conn):
            return retrying(work)
        return self._whole(conn, work)

    def _report(self, conn: Connection, moves: Iterable[Transition]) -> None:
        """Tells the observer of state changes, inside the transaction that made them."""
        if self.observers.transitions is not None and (listed := list(moves)):
            self.observers.transitions(conn, listed)


def moved(change: Change, old: JobState, worker: str, queue: str, attempt: int) -> Transition | None:
    """What observers see of a change that landed; None for an edit that left the state alone."""
    if change.to is None or change.to is old:
        return None
    return Transition(change.job_id, worker, queue, attempt, old, change.to, change.at)
