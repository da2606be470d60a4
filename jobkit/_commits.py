"""Callers' transactions: what each has inserted, and when it has ended.

SQLAlchemy's commit event fires before the database commits, and also where the commit then fails, so it is only the
moment to begin asking. Invariant: a row that went with a rollback, of the whole or to a savepoint, is never in a
`Commit`.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import RootTransaction

__all__ = ["Commit", "Transactions"]

FIRST_PAUSE: Final = 0.0003
"""Seconds between two looks at a transaction, at first; later an eighth of the time that it has taken so far."""
PATIENCE: Final = 2.0
"""Seconds after which a row that cannot be seen is left to polling."""


@dataclass(slots=True)
class Commit:
    """A transaction that is about to commit, or has: `last` is the id whose row proves it."""

    last: int
    queues: frozenset[str]
    transaction: RootTransaction | None
    began: float = field(default_factory=time.monotonic)
    due: float = 0.0
    looks: int = 0

    @property
    def ended(self) -> bool:
        """Whether the call that commits has come back, with or without success. Costs no statement."""
        return self.transaction is None or not self.transaction.is_active

    def postpone(self, now: float, *, until: float = 0.0) -> bool:
        """Look again later; False where this has gone on for too long."""
        self.looks += 1
        taken = now - self.began
        self.due = max(now + FIRST_PAUSE, now + taken / 8, until)
        return taken < PATIENCE


class Committing(Protocol):
    """Who is told of a commit."""

    def committing(self, commit: Commit) -> None: ...


@dataclass(slots=True)
class _Items:
    """What one open transaction has inserted."""

    rows: list[tuple[int, str]] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)

    def cut_to(self, savepoint: str) -> None:
        """Forget what came after the savepoint; one older than the first row has no mark."""
        del self.rows[self.marks.get(savepoint, 0) :]


class Transactions:
    """The open transactions with rows of one app."""

    def __init__(self, told: Committing) -> None:
        self._told = weakref.ref(told)
        self._open: weakref.WeakKeyDictionary[Connection, _Items] = weakref.WeakKeyDictionary()

    def inserted(self, conn: Connection, rows: Iterable[tuple[int, str]]) -> None:
        """Rows (id and queue) were inserted into the caller's open transaction on `conn`."""
        _watch(conn.engine, self)
        items = self._open.get(conn)
        if items is None:
            items = self._open[conn] = _Items()
        items.rows.extend(rows)

    def committing(self, conn: Connection) -> None:
        """The transaction on `conn` is about to commit."""
        items = self._open.pop(conn, None)
        if items is None or not items.rows or (told := self._told()) is None:
            return
        last = max(id for id, _ in items.rows)
        queues = frozenset(queue for _, queue in items.rows)
        told.committing(Commit(last, queues, conn.get_transaction()))

    def rolled_back(self, conn: Connection) -> None:
        """The transaction on `conn` was rolled back."""
        self._open.pop(conn, None)

    def savepoint(self, conn: Connection, name: str) -> None:
        """A savepoint begins on `conn`."""
        if items := self._open.get(conn):
            items.marks[name] = len(items.rows)

    def rolled_back_to(self, conn: Connection, name: str) -> None:
        """The transaction on `conn` went back to a savepoint."""
        if items := self._open.get(conn):
            items.cut_to(name)


# Listeners stand on the caller's engine once, not on each connection: that also covers connections already
# open, and costs nothing for transactions that insert no job.
_watched: Final[weakref.WeakKeyDictionary[Engine, weakref.WeakSet[Transactions]]] = (
    weakref.WeakKeyDictionary()
)


def _watch(engine: Engine, transactions: Transactions) -> None:
    watching = _watched.get(engine)
    if watching is None:
        made: weakref.WeakSet[Transactions] = weakref.WeakSet()
        _listen(engine, made)
        # where two come at once, one pair of ears stays without anybody behind it
        watching = _watched.setdefault(engine, made)
    watching.add(transactions)


def _listen(engine: Engine, watching: weakref.WeakSet[Transactions]) -> None:
    def committing(conn: Connection, *_: object) -> None:
        for one in list(watching):
            one.committing(conn)

    def rolled_back(conn: Connection, *_: object) -> None:
        for one in list(watching):
            one.rolled_back(conn)

    def savepoint(conn: Connection, name: str) -> None:
        for one in list(watching):
            one.savepoint(conn, name)

    def rolled_back_to(conn: Connection, name: str, _context: object) -> None:
        for one in list(watching):
            one.rolled_back_to(conn, name)

    event.listen(engine, "commit", committing)
    event.listen(engine, "commit_twophase", committing)
    event.listen(engine, "rollback", rolled_back)
    event.listen(engine, "rollback_twophase", rolled_back)
    event.listen(engine, "savepoint", savepoint)
    event.listen(engine, "rollback_savepoint", rolled_back_to)
