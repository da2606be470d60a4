"""What the arms of Postgres and SQLite share: one statement for each shape of change, one for a batch of
inserts.

Invariant: a statement's text depends on its shape alone, never on data or on how many rows it takes, so each
is made once and stays prepared.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from jobkit.jobs import JobState
from jobkit.storage.arm import moved
from jobkit.storage.base import NO_OBSERVERS, Change, ClaimedJob, Observers
from jobkit.storage.changes import (
    FINAL_TIMES,
    Group,
    Shape,
    claimed_at,
    error_json,
    grouped,
    in_input_order,
)
from jobkit.storage.claims import Claiming, in_order
from jobkit.storage.fleet import Fleet
from jobkit.storage.inserts import BatchInsert
from jobkit.storage.recurring import RecurringEntries
from jobkit.storage.statement import Row, Sql
from jobkit.storage.upkeep import Upkeep

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.storage.schema import Tables

__all__ = ["CLAIMED", "COLUMNS", "NativeStorage"]

CLAIMED: Final = (
    "id, worker, queue, CAST(args AS text), CAST(meta AS text), CAST(tags AS text), attempt, max_attempts, "
    "priority, inserted_at, scheduled_at"
)
"""What a claim returns: the first fields of ClaimedJob."""

COLUMNS: Final[dict[str, Callable[[Change], object]]] = {
    "job": lambda change: change.job_id,
    "claimed": claimed_at,
    "at": lambda change: change.at,
    "scheduled": lambda change: change.scheduled_at,
    "error": lambda change: error_json(change.error) if change.error else None,
    "queue": lambda change: change.queue,
    "priority": lambda change: change.priority,
    "max_attempts": lambda change: change.max_attempts,
    "tags": lambda change: change.tags,
}
"""The parameter columns of a change, and what goes into them."""


def columns_of(shape: Shape) -> tuple[str, ...]:
    """The parameter columns that this shape needs."""
    optional = {
        "claimed": shape.leased,
        "at": shape.final_time is not None,
        "scheduled": shape.scheduled,
        "error": shape.error,
    }
    return ("job", *(name for name, needed in optional.items() if needed), *shape.edits)


class NativeStorage(Claiming, BatchInsert, Upkeep, Fleet, RecurringEntries):
    """Template of an arm that has UPDATE ... FROM ... RETURNING. Subclasses say how their SQL spells it."""

    def __init__(self, tables: Tables, observers: Observers = NO_OBSERVERS) -> None:
        super().__init__(tables, observers)
        self._changes: dict[Shape, Sql] = {}

    # --- how the dialect spells it

    @abstractmethod
    def _source(self, columns: Sequence[str]) -> str:
        """The parameter rows as a FROM item named c."""

    @abstractmethod
    def _values(self, conn: Connection, group: Group, columns: Sequence[str]) -> dict[str, object]:
        """The parameters that `_source` names."""

    @abstractmethod
    def _lease_fence(self) -> str:
        """That j is still executing under :node and c.claimed."""

    @abstractmethod
    def _json(self, column: str) -> str:
        """c's text column as a JSON value."""

    @abstractmethod
    def _with_error(self) -> str:
        """j.errors with c.error appended, the oldest dropped."""

    @abstractmethod
    def _with_snooze(self) -> str:
        """j.meta with snoozed counted up."""

    @abstractmethod
    def _larger(self, one: str, other: str) -> str:
        """The larger of two expressions."""

    @abstractmethod
    def _unique_states(self) -> str:
        """j.meta's unique_states as text."""

    @abstractmethod
    def _moment(self, at: datetime) -> object:
        """An instant as a parameter."""

    _returned_from: str
    """The prefix of the changed row's columns in RETURNING."""
    _pruners: list[Sql]
    """Deletes :limit rows older than :before, one statement for each final state."""

    def prune(self, conn: Connection, *, before: datetime, limit: int) -> int:
        """See `Storage.prune`."""
        pruned = 0
        for statement in self._pruners:
            if pruned < limit:
                params = {"before": self._moment(before), "limit": limit - pruned}
                pruned += self._single(conn, partial(statement.count, conn, params))
        return pruned

    # --- changes

    def transition(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        """See `Storage.transition`."""
        if not changes:
            return []
        groups = grouped(changes)
        one_statement = len(groups) == 1 and self.observers.transitions is None
        run = self._single if one_statement else self._whole
        return in_input_order(changes, run(conn, lambda: [self._apply(conn, group) for group in groups]))

    def _apply(self, conn: Connection, group: Group) -> list[Change]:
        if self.observers.transitions is None:
            return group.landed([row[0] for row in self._change(conn, group)])
        if group.shape.leased:
            return self._apply_from(conn, group, JobState.EXECUTING)
        landed: list[Change] = []
        for state in sorted(group.shape.expect):  # one by one, so that the old state is known
            rest = group.for_state(state, {change.job_id for change in landed})
            if rest.by_id:
                landed += self._apply_from(conn, rest, state)
        return landed

    def _apply_from(self, conn: Connection, group: Group, old: JobState) -> list[Change]:
        rows = {row[0]: row for row in self._change(conn, group)}
        landed = group.landed(rows)
        moves = (moved(change, old, *rows[change.job_id][1:4]) for change in landed)
        self._report(conn, (move for move in moves if move is not None))
        return landed

    def _change(self, conn: Connection, group: Group) -> list[Row]:
        shape = group.shape
        statement = self._changes.get(shape)
        if statement is None:
            statement = self._changes[shape] = Sql(self._update(shape), self.tables)
        params = self._values(conn, group, columns_of(shape))
        params["node"] = group.node
        return statement.rows(conn, params)

    def _update(self, shape: Shape) -> str:
        p = self._returned_from
        returned = ["id"] if self.observers.transitions is None else ["id", "worker", "queue", "attempt"]
        if shape.leased:
            fence = self._lease_fence()
        else:
            states = ", ".join(f"'{state.value}'" for state in sorted(shape.expect)) or "NULL"
            fence = f"j.state IN ({states})"
        return (
            f"UPDATE {{jobs}} AS j SET {', '.join(self._assignments(shape))} "
            f"FROM {self._source(columns_of(shape))} WHERE j.id = c.job AND {fence} "
            f"RETURNING {', '.join(p + name for name in returned)}"
        )

    def _assignments(self, shape: Shape) -> list[str]:
        sets = self._state_assignments(shape)
        if shape.scheduled:
            sets.append("scheduled_at = c.scheduled")
        if shape.delta:
            sets.append(f"attempt = {self._larger(f'j.attempt + ({shape.delta})', '0')}")
        if shape.error:
            sets.append(f"errors = {self._with_error()}")
        if shape.snoozed:
            sets.append(f"meta = {self._with_snooze()}")
        if shape.spare:
            sets.append(f"max_attempts = {self._larger('j.max_attempts', 'j.attempt + 1')}")
        for name in shape.edits:
            sets.append(f"{name} = {self._json(name) if name == 'tags' else f'c.{name}'}")
        return sets or ["state = j.state"]

    def _state_assignments(self, shape: Shape) -> list[str]:
        if shape.to is None:
            return []
        sets = [f"state = '{shape.to.value}'"]
        if shape.final_time:
            kept = f"j.unique_key IS NOT NULL AND {self._unique_states()} = 'all'"
            sets.append(f"{shape.final_time} = c.at")
            sets.append(f"unique_key = CASE WHEN {kept} THEN j.unique_key END")
        if shape.leaves_final:
            sets += [f"{name} = NULL" for name in FINAL_TIMES.values() if name != shape.final_time]
        return sets


def sorted_claims(rows: Sequence[Row], node: str, at: datetime) -> list[ClaimedJob]:
    """The claimed rows in the order of the queue: RETURNING promises none."""
    return in_order([ClaimedJob(*row, node, at) for row in rows])  # type: ignore[call-arg]
