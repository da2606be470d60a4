"""The orders of the jobs list, and which index serves each.

Invariant: an order is offered only where an index gives it under the current filter, or where the states
that the filter leaves hold few enough rows to be sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, ColumnElement, case, cast, func, literal, literal_column, select, true
from sqlalchemy import and_ as sql_and
from sqlalchemy import or_ as sql_or

from jobkit.admin._ast import Query
from jobkit.admin._compile import Compiler
from jobkit.admin.views import SortChoice
from jobkit.jobs import FINAL, JobState

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = [
    "SPARSE",
    "Base",
    "Walk",
    "base_of",
    "choices",
    "default_order",
    "few",
    "staged_rows",
    "state_condition",
    "walk_of",
]

SPARSE: Final = 10_000
"""So many rows may be filtered and sorted without an index's help."""

Keys = tuple[ColumnElement[Any], ...]
_STAGED: Final = frozenset({JobState.SCHEDULED, JobState.RETRYABLE})
_TITLES: Final = {
    "id": "newest first",
    "time": "by the time of the state",
    "inserted": "by insertion",
    "scheduled": "by due time",
    "priority": "by priority, as they are claimed",
    "attempt": "by attempt",
    "duration": "by duration",
}


@dataclass(frozen=True, slots=True)
class Base:
    """What the states of a filter say: which rows there can be at all. `sparse`: few."""

    states: frozenset[JobState]
    sparse: bool
    condition: ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class Walk:
    """An order: its key columns, all in one direction, ending with the id; which rows it goes through.

    `windowed` by id: the key is the id alone.
    """

    sort: str
    descending: bool
    keys: Keys
    base: ColumnElement[bool]
    sparse: bool

    @property
    def by_id(self) -> bool:
        """Whether the order is that of the ids."""
        return len(self.keys) == 1


def _partial(state: JobState | frozenset[JobState]) -> ColumnElement[bool]:
    """The very text of a partial index's condition, which planners compare with it."""
    if isinstance(state, JobState):
        return _raw(f"state = '{state.value}'")
    return _raw("state IN ('scheduled', 'retryable')")


def staged_rows() -> ColumnElement[bool]:
    """Scheduled and retryable rows, as the staging index has them."""
    return _partial(_STAGED)


def _raw(text: str) -> ColumnElement[bool]:
    return literal_column(f"({text})")


def state_condition(compiler: Compiler, states: frozenset[JobState]) -> ColumnElement[bool]:
    """The rows in these states, by partial indexes."""
    if states == frozenset(JobState):
        return true()
    parts = [_partial(state) for state in sorted(states)]
    if states & _STAGED:
        parts = [
            sql_and(_partial(_STAGED), part) if state in _STAGED else part
            for state, part in zip(sorted(states), parts, strict=True)
        ]
    if len(parts) <= 1 or compiler.postgres:
        return sql_or(*parts) if parts else literal(False)
    # SQLite uses partial indexes for a union, not for OR.
    union = (
        select(compiler.c.id)
        .where(parts[0])
        .union_all(*(select(compiler.c.id).where(part) for part in parts[1:]))
    )
    return compiler.c.id.in_(union)


def base_of(conn: Connection, compiler: Compiler, query: Query) -> Base:
    """Looks at the states that the query leaves, and whether they hold few rows."""
    states = query.states
    sparse = few(conn, compiler, states)
    single = len(states) == 1 or states <= _STAGED
    condition = state_condition(compiler, states) if sparse or single else true()
    return Base(states, sparse, condition)


def few(conn: Connection, compiler: Compiler, states: frozenset[JobState]) -> bool:
    """Whether these states hold no more rows than can be filtered and sorted at once."""
    if states == frozenset(JobState):
        # SQLite looks one of the two up, but scans for both
        low, high = (conn.scalar(select(end(compiler.c.id))) for end in (func.min, func.max))
        return low is None or high is None or high - low < SPARSE
    left = SPARSE
    for part in _counted(states):
        rows = select(literal_column("1")).select_from(compiler.jobs).where(part).limit(left + 1).subquery()
        left -= conn.scalar(select(func.count()).select_from(rows)) or 0
        if left < 0:
            return False
    return True


def _counted(states: frozenset[JobState]) -> list[ColumnElement[bool]]:
    """Index conditions that cover the states; the cheap ones first."""
    parts = [_partial(state) for state in sorted(states - _STAGED)]
    return [*parts, _partial(_STAGED)] if states & _STAGED else parts


# -- keys


def _state_time(compiler: Compiler) -> ColumnElement[Any]:
    c = compiler.c
    waiting = case((c.state == JobState.EXECUTING.value, c.attempted_at), else_=c.scheduled_at)
    return func.coalesce(c.completed_at, c.discarded_at, c.cancelled_at, waiting, type_=c.scheduled_at.type)


def _duration(compiler: Compiler) -> ColumnElement[Any]:
    c = compiler.c
    end = case((c.state == JobState.EXECUTING.value, compiler.now), else_=compiler.finished)
    span = compiler.micros(end) - compiler.micros(c.attempted_at)
    return cast(func.coalesce(span, -1), BigInteger())


def _indexed_time(compiler: Compiler, base: Base) -> Keys | None:
    c = compiler.c
    if len(base.states) == 1 and base.states <= FINAL:
        (state,) = base.states
        return c[f"{state.value}_at"], c.id
    if base.states <= _STAGED and base.states:
        return c.scheduled_at, c.id
    return None


def _time(compiler: Compiler, base: Base, query: Query) -> Keys | None:
    if (indexed := _indexed_time(compiler, base)) is not None:
        return indexed
    return (_state_time(compiler), compiler.c.id) if base.sparse else None


def _scheduled(compiler: Compiler, base: Base, query: Query) -> Keys | None:
    if base.sparse or base.states <= _STAGED:
        return compiler.c.scheduled_at, compiler.c.id
    return None


def _priority(compiler: Compiler, base: Base, query: Query) -> Keys | None:
    c = compiler.c
    claimed = base.states == frozenset({JobState.AVAILABLE}) and query.only_value("queue") is not None
    return (c.priority, c.scheduled_at, c.id) if claimed or base.sparse else None


def _when_sparse(
    expression: Callable[[Compiler], ColumnElement[Any]],
) -> Callable[[Compiler, Base, Query], Keys | None]:
    def keys(compiler: Compiler, base: Base, query: Query) -> Keys | None:
        return (expression(compiler), compiler.c.id) if base.sparse else None

    return keys


_KEYS: Final[Mapping[str, Callable[[Compiler, Base, Query], Keys | None]]] = {
    "id": lambda compiler, base, query: (compiler.c.id,),
    "inserted": lambda compiler, base, query: (compiler.c.id,),
    "time": _time,
    "scheduled": _scheduled,
    "priority": _priority,
    "attempt": _when_sparse(lambda compiler: compiler.c.attempt),
    "duration": _when_sparse(_duration),
}
_DESCENDING: Final = frozenset({"id", "inserted", "attempt", "duration"})


def descending_by_nature(sort: str, base: Base) -> bool:
    """The direction of an order when none is given: what needs attention comes first."""
    if sort == "time":
        return not base.states.isdisjoint(FINAL)
    return sort in _DESCENDING


def default_order(base: Base, query: Query) -> str:
    """Inside one state its own time; in a backlog the order of claims; else the newest."""
    if base.states == frozenset({JobState.AVAILABLE}) and not base.sparse:
        return "priority" if query.only_value("queue") is not None else "id"
    if len(base.states) == 1 or base.states <= _STAGED:
        return "time"
    return "id"


def walk_of(compiler: Compiler, base: Base, query: Query, sort: str, descending: bool) -> Walk | None:
    """The walk in this order; None where nothing serves it."""
    if sort not in _KEYS or (keys := _KEYS[sort](compiler, base, query)) is None:
        return None
    condition = base.condition
    if len(keys) == 1 and not base.sparse:
        condition = true()  # the ids' own index; a partial one would have to be sorted
    if sort in ("time", "scheduled") and not base.sparse and base.states <= _STAGED:
        condition = _partial(_STAGED)  # the index holds both states; which one is the filter's to tell
    if sort == "priority" and not base.sparse:
        condition = sql_and(condition, compiler.c.queue == query.only_value("queue"))
    return Walk(sort, descending, keys, condition, base.sparse)


def choices(compiler: Compiler, base: Base, query: Query) -> tuple[SortChoice, ...]:
    """All orders, those without an index for this filter with the reason."""
    found = []
    for name, keys in _KEYS.items():
        served = keys(compiler, base, query) is not None
        reason = "" if served else f"no index serves it for more than {SPARSE:,} rows of these states"
        if not served and name == "priority":
            reason = "it needs state:available and one queue"
        found.append(SortChoice(name, _TITLES[name], descending_by_nature(name, base), served, reason))
    return tuple(found)
