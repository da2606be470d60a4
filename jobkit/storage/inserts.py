"""Inserting jobs, unique ones included: what is one statement in each arm, and how its answer is read.

Invariants: the unique index decides what is a duplicate, nothing else does; "duplicate" is only said of a
row that can be seen; the caller's transaction stays usable unless the database itself aborted it.
"""

from __future__ import annotations

import logging
import weakref
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy import Select, bindparam, select
from sqlalchemy.exc import DBAPIError

from jobkit.errors import EnqueueConflict, EnqueueLocked, NotMigrated
from jobkit.jobs import Inserted, JobRow
from jobkit.storage.arm import StorageArm, batches
from jobkit.storage.base import InsertedJob
from jobkit.storage.engine import atomic, autocommits, in_transaction, savepoint, sqlite_configured
from jobkit.storage.faults import Fault, classify

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["BatchInsert", "Inserts", "translated"]

log = logging.getLogger("jobkit.storage")

TRIES: Final = 5
"""How often a key is tried whose holder was released between the insert and the look-up."""
_SNAPSHOTS: Final = frozenset({"REPEATABLE READ", "SERIALIZABLE"})
_LOCKED: Final = (
    "the SQLite database stayed locked. jobkit cannot wait inside a transaction that is not its own: call "
    "jobkit.configure_sqlite(engine) where the engine is made, so that transactions take the write lock first"
)
_warned: weakref.WeakSet[object] = weakref.WeakSet()


@contextmanager
def translated(conn: Connection) -> Iterator[None]:
    """Driver errors that a caller can act on become jobkit's."""
    try:
        yield
    except DBAPIError as error:
        fault = classify(error)
        if fault is Fault.CONFLICT:
            raise EnqueueConflict("the database aborted this transaction; run it again") from error
        if fault is Fault.LOCKED and conn.dialect.name == "sqlite":
            raise EnqueueLocked(_LOCKED) from error
        if fault is Fault.LOCKED:
            raise EnqueueConflict("a lock was not granted in time; run the transaction again") from error
        if fault is Fault.MISSING:
            raise NotMigrated("jobkit's tables are missing or outdated; run `jobkit migrate up`") from error
        raise


def warn_unconfigured(conn: Connection) -> None:
    """Once per engine: enqueueing through a SQLite engine that jobkit did not configure."""
    if sqlite_configured(conn) or conn.dialect in _warned:
        return
    _warned.add(conn.dialect)
    log.warning(
        "enqueueing through a SQLite engine without jobkit.configure_sqlite(engine): transactions may fail "
        "with 'database is locked' when others write"
    )


class Inserts(StorageArm):
    """`insert` and `visible`; a subclass inserts what is left and says which rows it wrote."""

    def tells(self, rows: Sequence[JobRow]) -> bool:
        """See `Storage.tells`."""
        return False

    def insert(self, conn: Connection, rows: Sequence[JobRow], *, tell: str | None = None) -> list[Inserted]:
        """See `Storage.insert`."""
        if not rows:
            return []
        if self._needs_transaction(rows) and autocommits(conn) and not in_transaction(conn):
            with atomic(conn):
                return self._insert(conn, rows, tell)
        return self._insert(conn, rows, tell)

    def _needs_transaction(self, rows: Sequence[JobRow]) -> bool:
        """Whether more than one statement writes."""
        return self.observers.inserted is not None

    def _insert(self, conn: Connection, rows: Sequence[JobRow], tell: str | None) -> list[Inserted]:
        with translated(conn):
            if len(rows) == 1 and rows[0].unique_key is None:
                results = [Inserted(self._insert_plain(conn, rows[0], tell))]
            elif all(row.unique_key is None for row in rows):
                results = [Inserted(id_) for id_ in self._insert_batch(conn, rows, {})[0]]
            else:
                results = self._insert_all(conn, rows)
            self._tell_inserted(conn, rows, results)
        return results

    def visible(self, conn: Connection, ids: Collection[int]) -> set[int]:
        """See `Storage.visible`."""
        found: set[int] = set()
        for some in batches(sorted(ids), 500):
            rows = conn.execute(self._visible_query, {"ids": list(some)})
            found.update(row[0] for row in rows)
        return found

    @property
    def _visible_query(self) -> Select[int]:
        jobs = self.tables.jobs
        return select(jobs.c.id).where(jobs.c.id.in_(bindparam("ids", expanding=True)))

    def _insert_all(self, conn: Connection, rows: Sequence[JobRow]) -> list[Inserted]:
        plain = [index for index, row in enumerate(rows) if row.unique_key is None]
        keyed: dict[str, int] = {}
        for index, row in enumerate(rows):
            if row.unique_key is not None:
                keyed.setdefault(row.unique_key, index)
        plain_ids, ids = self._insert_some(
            conn, [rows[i] for i in plain], {k: rows[i] for k, i in keyed.items()}
        )
        results: dict[int, Inserted] = {i: Inserted(id_) for i, id_ in zip(plain, plain_ids, strict=True)}
        for index, row in enumerate(rows):
            if (key := row.unique_key) is not None:
                id_, new = ids[key]
                results[index] = Inserted(id_, duplicate=not new or keyed[key] != index)
        return [results[index] for index in range(len(rows))]

    def _insert_some(
        self, conn: Connection, plain: Sequence[JobRow], keyed: Mapping[str, JobRow]
    ) -> tuple[list[int], dict[str, tuple[int, bool]]]:
        """Ids of `plain` in order; for each key its id, and whether it is new."""
        found: dict[str, tuple[int, bool]] = {}
        plain_ids: list[int] = []
        for attempt in range(TRIES):
            missing = {key: row for key, row in keyed.items() if key not in found}
            if attempt and not missing:
                break
            new_ids, new = self._insert_batch(conn, plain if attempt == 0 else (), missing)
            plain_ids += new_ids
            found |= {key: (id_, True) for key, id_ in new.items()}
            left = [key for key in missing if key not in new]
            if not left:
                break
            found |= {key: (id_, False) for key, id_ in self._holders(conn, left).items()}
        if len(found) < len(keyed):
            raise EnqueueConflict("a unique job's key changed hands again and again; try again")
        return plain_ids, found

    def _holders(self, conn: Connection, keys: Sequence[str]) -> dict[str, int]:
        """Which rows hold these keys, as far as this transaction can see."""
        jobs = self.tables.jobs
        holders: dict[str, int] = {}
        for some in batches(keys, 500):
            rows = conn.execute(select(jobs.c.unique_key, jobs.c.id).where(jobs.c.unique_key.in_(some)))
            holders |= {row[0]: row[1] for row in rows}
        return holders

    def _tell_inserted(self, conn: Connection, rows: Sequence[JobRow], results: Sequence[Inserted]) -> None:
        observe = self.observers.inserted
        if observe is None:
            return
        pairs = zip(results, rows, strict=True)
        if new := [InsertedJob(result.id, row) for result, row in pairs if not result.duplicate]:
            observe(conn, new)

    @abstractmethod
    def _insert_plain(self, conn: Connection, row: JobRow, tell: str | None) -> int:
        """Inserts one row without a key, and notifies the channel where the arm can; the row's id."""

    @abstractmethod
    def _insert_batch(
        self, conn: Connection, plain: Sequence[JobRow], keyed: Mapping[str, JobRow]
    ) -> tuple[list[int], dict[str, int]]:
        """Inserts what conflicts with nothing: the ids of `plain` in order, and the new ids by key."""


class BatchInsert(Inserts):
    """Inserts of arms that take a whole batch in one statement with ON CONFLICT."""

    @abstractmethod
    def _insert_rows(
        self, conn: Connection, rows: Sequence[JobRow], *, guarded: bool
    ) -> list[tuple[int, str | None]]:
        """One statement: keyless rows first, keyed ones by key; (id, key) of those written.

        `guarded`: write nothing at an isolation level where a conflict would abort the transaction.
        """

    def _insert_batch(
        self, conn: Connection, plain: Sequence[JobRow], keyed: Mapping[str, JobRow]
    ) -> tuple[list[int], dict[str, int]]:
        rows = [*plain, *(keyed[key] for key in sorted(keyed))]
        if not rows:
            return [], {}
        written = self._insert_rows(conn, rows, guarded=bool(keyed))
        if not written and self._snapshot_level(conn):
            written = self._insert_in_savepoint(conn, rows)
        # Ids ascend in the order of the statement, so those without a key belong to `plain` in order.
        plain_ids = sorted([id_ for id_, key in written if key is None])
        return plain_ids, {key: id_ for id_, key in written if key}

    def _snapshot_level(self, conn: Connection) -> bool:
        return conn.dialect.name == "postgresql" and conn.get_isolation_level() in _SNAPSHOTS

    def _insert_in_savepoint(self, conn: Connection, rows: Sequence[JobRow]) -> list[tuple[int, str | None]]:
        try:
            with savepoint(conn):
                return self._insert_rows(conn, rows, guarded=False)
        except DBAPIError as error:
            if classify(error) is not Fault.CONFLICT:
                raise
            raise EnqueueConflict(
                "a job with this unique key was committed after this transaction's snapshot; "
                "run the transaction again"
            ) from error
