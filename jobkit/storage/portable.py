"""The portable arm: plain SQL that any database speaks, no RETURNING into logic, no ON CONFLICT, no JSON
functions.

Invariant: a claim selects due ids in order, updates those that are still available, and reads back what its
lease won; a change reads the row, computes in Python, and writes under the fence it read, so a race is
noticed by the count.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    Update,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from jobkit.errors import EnqueueConflict
from jobkit.jobs import FINAL, JobRow, JobState, Transition
from jobkit.storage.arm import batches, moved
from jobkit.storage.base import (
    ERRORS_KEPT,
    NO_OBSERVERS,
    Change,
    ClaimedJob,
    ClaimWish,
    Observers,
)
from jobkit.storage.changes import FINAL_TIMES, Group, error_json, grouped, in_input_order
from jobkit.storage.claims import SKEW, Claiming, in_order
from jobkit.storage.engine import reading, savepoint
from jobkit.storage.fleet import Fleet
from jobkit.storage.inserts import TRIES, Inserts
from jobkit.storage.recurring import RecurringEntries
from jobkit.storage.upkeep import Upkeep

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from jobkit.storage.schema import Tables

__all__ = ["PortableStorage"]

_MANY: Final = 500
"""How many ids or rows go into one statement."""
_CLAIM_TRIES: Final = 5


class PortableStorage(Claiming, Inserts, Upkeep, Fleet, RecurringEntries):
    """The default for any dialect."""

    def __init__(self, tables: Tables, observers: Observers = NO_OBSERVERS) -> None:
        super().__init__(tables, observers)
        self._updates: dict[tuple[bool, frozenset[str]], Update] = {}

    # --- claiming

    def due_queues(
        self, conn: Connection, queues: Sequence[str], *, now: datetime, skip: Collection[str] = ()
    ) -> list[str]:
        """See `Storage.due_queues`."""
        if not queues:
            return []
        due = [
            select(literal(queue)).where(exists().where(self._claimable(queue, now, skip)))
            for queue in queues
        ]
        with reading(conn):
            return [row[0] for row in conn.execute(union_all(*due))]

    def _claimable(self, queue: str, now: datetime, skip: Collection[str]) -> ColumnElement[bool]:
        c = self.tables.jobs.c
        due = and_(c.state == "available", c.queue == queue, c.scheduled_at <= now + SKEW)
        return and_(due, c.worker.not_in(sorted(skip))) if skip else due

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
        won: list[ClaimedJob] = []
        for attempt in range(_CLAIM_TRIES):
            with reading(conn):
                ids = self._due_ids(conn, ClaimWish(queue, limit - len(won), skip), at)
            jobs = self._whole(conn, partial(self._claim_ids, conn, ids, node, at)) if ids else []
            won += jobs
            if len(jobs) == len(ids):
                break
            time.sleep(random.uniform(0, 0.002 * (attempt + 1)))  # rivals won some: look again at once
        return in_order(won)

    def _due_ids(self, conn: Connection, wish: ClaimWish, at: datetime) -> list[int]:
        c = self.tables.jobs.c
        query = select(c.id).where(self._claimable(wish.queue, at, wish.skip))
        query = query.order_by(c.priority, c.scheduled_at, c.id).limit(wish.limit)
        return list(conn.execute(query).scalars())

    def _live(self, node: str) -> ColumnElement[bool]:
        c = self.tables.nodes.c
        return exists().where(c.node == node, c.lost_at.is_(None))

    def _claim_ids(self, conn: Connection, ids: Sequence[int], node: str, at: datetime) -> list[ClaimedJob]:
        jobs = self.tables.jobs
        c = jobs.c
        won: list[ClaimedJob] = []
        for some in batches(ids, _MANY):
            open_ = and_(c.id.in_(some), c.state == "available", self._live(node))
            taken = (
                update(jobs)
                .where(open_)
                .values(state="executing", attempt=c.attempt + 1, attempted_by=node, attempted_at=at)
            )
            if conn.execute(taken).rowcount:
                won += self._won(conn, some, node, at)
        self._report_claims(conn, won)
        return won

    def _won(self, conn: Connection, ids: Sequence[int], node: str, at: datetime) -> list[ClaimedJob]:
        c = self.tables.jobs.c
        mine = and_(c.id.in_(ids), c.state == "executing", c.attempted_by == node, c.attempted_at == at)
        query = select(
            c.id,
            c.worker,
            c.queue,
            c.args,
            c.meta,
            c.tags,
            c.attempt,
            c.max_attempts,
            c.priority,
            c.inserted_at,
            c.scheduled_at,
        )
        rows = conn.execute(query.where(mine).order_by(c.priority, c.scheduled_at, c.id))
        return [ClaimedJob(*row, node, at) for row in rows]

    # --- changes

    def transition(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        """See `Storage.transition`."""
        if not changes:
            return []
        groups = grouped(changes)
        landed = self._whole(conn, lambda: [self._apply(conn, group) for group in groups])
        return in_input_order(changes, landed)

    def _apply(self, conn: Connection, group: Group) -> list[Change]:
        rows = self._read(conn, sorted(group.by_id))
        landed = [change for change in group.changes if _fits(change, rows.get(change.job_id))]
        params: dict[frozenset[str], list[dict[str, object]]] = {}
        for change in landed:
            row = rows[change.job_id]
            values = _new_values(change, row)
            fence = {"f_id": row.id, "f_state": row.state, "f_by": row.attempted_by, "f_at": row.attempted_at}
            assigned = {f"v_{name}": value for name, value in values.items()}
            params.setdefault(frozenset(values), []).append(fence | assigned)
        for names, some in params.items():
            if names:
                self._write(conn, group.shape.leased, names, some)
        moves = (_move(change, rows[change.job_id]) for change in landed)
        self._report(conn, (move for move in moves if move is not None))
        return landed

    def _read(self, conn: Connection, ids: Sequence[int]) -> dict[int, Row[Any]]:
        c = self.tables.jobs.c
        query = select(
            c.id,
            c.state,
            c.attempted_by,
            c.attempted_at,
            c.attempt,
            c.max_attempts,
            c.unique_key,
            c.meta,
            c.errors,
            c.worker,
            c.queue,
        ).with_for_update()
        rows: dict[int, Row[Any]] = {}
        for some in batches(ids, _MANY):
            rows |= {row.id: row for row in conn.execute(query.where(c.id.in_(some)).order_by(c.id))}
        return rows

    def _write(
        self, conn: Connection, leased: bool, names: frozenset[str], params: list[dict[str, object]]
    ) -> None:
        statement = self._update(leased, names)
        if conn.dialect.supports_sane_multi_rowcount:
            hits = conn.execute(statement, params).rowcount
        else:
            hits = sum(conn.execute(statement, one).rowcount for one in params)
        if hits != len(params):
            raise EnqueueConflict("a job changed while it was being written; run the transaction again")

    def _update(self, leased: bool, names: frozenset[str]) -> Update:
        statement = self._updates.get((leased, names))
        if statement is None:
            c = self.tables.jobs.c
            fence = [c.id == bindparam("f_id"), c.state == bindparam("f_state")]
            if leased:
                fence += [c.attempted_by == bindparam("f_by"), c.attempted_at == bindparam("f_at")]
            values = {name: bindparam(f"v_{name}", type_=c[name].type) for name in sorted(names)}
            statement = self._updates[leased, names] = update(self.tables.jobs).where(*fence).values(**values)
        return statement

    # --- pruning

    def prune(self, conn: Connection, *, before: datetime, limit: int) -> int:
        """See `Storage.prune`."""
        pruned = 0
        for state, column in FINAL_TIMES.items():
            if pruned < limit:
                pruned += self._prune(conn, state, column, before, limit - pruned)
        return pruned

    def _prune(self, conn: Connection, state: JobState, column: str, before: datetime, limit: int) -> int:
        jobs = self.tables.jobs
        old = and_(jobs.c.state == state.value, jobs.c[column] < before)
        query: Select[Any] = select(jobs.c.id).where(old).order_by(jobs.c[column], jobs.c.id).limit(limit)
        with reading(conn):
            ids = list(conn.execute(query).scalars())
        gone = 0
        for some in batches(ids, _MANY):
            statement = delete(jobs).where(jobs.c.id.in_(some), old)
            gone += self._single(conn, lambda s=statement: conn.execute(s).rowcount)  # type: ignore[misc]
        return gone

    # --- inserting

    def _needs_transaction(self, rows: Sequence[JobRow]) -> bool:
        return len(rows) > 1 or super()._needs_transaction(rows)

    def _insert_plain(self, conn: Connection, row: JobRow, tell: str | None) -> int:
        key = conn.execute(insert(self.tables.jobs).values(**_row_values(row))).inserted_primary_key
        assert key is not None
        return int(key[0])

    def _insert_batch(
        self, conn: Connection, plain: Sequence[JobRow], keyed: Mapping[str, JobRow]
    ) -> tuple[list[int], dict[str, int]]:
        """Keys that are there already are left out; a rival's insert in between makes us look again."""
        plain_ids = self._insert_many(conn, plain)
        for _ in range(TRIES):
            held = self._holders(conn, sorted(keyed))
            keys = sorted(set(keyed) - set(held))
            if not keys:
                return plain_ids, {}
            try:
                with savepoint(conn):
                    ids = self._insert_many(conn, [keyed[key] for key in keys])
                return plain_ids, dict(zip(keys, ids, strict=True))
            except IntegrityError:
                if not self._holders(conn, keys) and self._sees_all(conn):
                    raise  # another constraint
        raise EnqueueConflict("a unique job was inserted by others again and again; try again")

    def _insert_many(self, conn: Connection, rows: Sequence[JobRow]) -> list[int]:
        if not rows:
            return []
        jobs = self.tables.jobs
        statement = insert(jobs).returning(jobs.c.id, sort_by_parameter_order=True)
        return list(conn.execute(statement, [_row_values(row) for row in rows]).scalars())

    def _sees_all(self, conn: Connection) -> bool:
        """Whether a look-up sees what was committed since this transaction began."""
        level = conn.get_isolation_level()
        if level in ("REPEATABLE READ", "SERIALIZABLE") and conn.dialect.name != "sqlite":
            raise EnqueueConflict(
                "a job with this unique key was committed after this transaction's snapshot; "
                "run the transaction again"
            )
        return True


def _row_values(row: JobRow) -> dict[str, object]:
    return {
        "state": row.state.value,
        "queue": row.queue,
        "worker": row.worker,
        "args": row.args,
        "meta": row.meta,
        "tags": row.tags,
        "max_attempts": row.max_attempts,
        "priority": row.priority,
        "inserted_at": row.inserted_at,
        "scheduled_at": row.scheduled_at,
        "unique_key": row.unique_key,
    }


def _fits(change: Change, row: Row[Any] | None) -> bool:
    if row is None:
        return False
    lease = change.lease
    if lease is None:
        return row.state in change.expect
    return (row.state, row.attempted_by, row.attempted_at) == ("executing", lease.node, lease.at)


def _new_values(change: Change, row: Row[Any]) -> dict[str, object]:
    values = _state_values(change, row)
    if change.scheduled_at is not None:
        values["scheduled_at"] = change.scheduled_at
    if change.attempt_delta:
        values["attempt"] = max(row.attempt + change.attempt_delta, 0)
    if change.error is not None:
        values["errors"] = _appended(row.errors, error_json(change.error))
    if change.snoozed:
        meta = json.loads(row.meta)
        values["meta"] = json.dumps(meta | {"snoozed": meta.get("snoozed", 0) + 1})
    if change.spare_attempt:
        values["max_attempts"] = max(row.max_attempts, row.attempt + 1)
    edits = {name: getattr(change, name) for name in ("queue", "priority", "max_attempts", "tags")}
    return values | {name: value for name, value in edits.items() if value is not None}


def _state_values(change: Change, row: Row[Any]) -> dict[str, object]:
    if change.to is None:
        return {}
    values: dict[str, object] = {"state": change.to.value}
    if row.state in FINAL:
        values |= dict.fromkeys(FINAL_TIMES.values())
    if change.to in FINAL:
        values[FINAL_TIMES[change.to]] = change.at
        if row.unique_key is not None and json.loads(row.meta).get("unique_states") != "all":
            values["unique_key"] = None
    return values


def _appended(errors: str, entry: str) -> str:
    return json.dumps([*json.loads(errors), json.loads(entry)][-ERRORS_KEPT:])


def _move(change: Change, row: Row[Any]) -> Transition | None:
    attempt = max(row.attempt + change.attempt_delta, 0)
    queue = row.queue if change.queue is None else change.queue
    return moved(change, JobState(row.state), row.worker, queue, attempt)
