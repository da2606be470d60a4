"""Search: walks through jobs in an order, in slices, until a page is full or the time is used up.

Invariant: a job is handed out only if it matches in its redacted form and lies in the actor's scope; how far
a search has come depends on the rows it passed, never on what redaction hides in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, func, literal, select, true, tuple_
from sqlalchemy import and_ as sql_and

from jobkit.admin._ast import Compare, Exact, Query, Range, Value
from jobkit.admin._compile import Compiler, exact
from jobkit.admin._cursor import Key
from jobkit.admin._facts import Facts, columns_of
from jobkit.admin._fields import MAX_ID
from jobkit.admin._match import Surroundings, interval, matches
from jobkit.admin._orders import Base, Walk, base_of, walk_of
from jobkit.jobs import FINAL, JobState

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from jobkit.core import Core

__all__ = ["Found", "Searcher", "Tally"]

_FIRST_WINDOW: Final = 5_000
_LARGEST_WINDOW: Final = 100_000
_SLICE: Final = 0.15
"""Seconds that one slice should take."""
_SKEW: Final = timedelta(hours=1)
"""How far apart the clocks of those who insert may be, for ids to grow with the time of insertion."""
_BATCH: Final = 500
STAGED: Final = frozenset({JobState.SCHEDULED, JobState.RETRYABLE})
"""Rows that are fetched at once where each must be matched again."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a walk came to. `edge`: the key behind which nothing was searched; None: it reached the end."""

    jobs: list[Facts]
    edge: Key | None
    rows: int
    """How many rows (by id at most) were passed; 0 where an index led straight to the jobs."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Matches by state among the rows that were searched; `edge`: where it stopped, None at the end."""

    counts: dict[JobState, int]
    edge: Key | None
    rows: int
    capped: bool


_ABSENT: Final = {"args": "null", "errors": "[]"}


class Searcher:
    """One query over one connection."""

    def __init__(
        self, app: Core, conn: Connection, query: Query, around: Surroundings, budget: timedelta
    ) -> None:
        self.app = app
        self.conn = conn
        self.query = query
        self.around = around
        self.compiler = Compiler(app.tables, conn.dialect.name, around, query.states)
        self.condition = self.compiler.condition(query)
        self.exact = exact(query)
        self._columns = columns_of(app.tables)
        self._end = app.clock.monotonic() + budget.total_seconds()

    @cached_property
    def base(self) -> Base:
        """What the query's states say of the rows."""
        return base_of(self.conn, self.compiler, self.query)

    # -- walking

    def walk(self, walk: Walk, limit: int, *, after: Key | None = None, back: bool = False) -> Found:
        """Up to `limit` matches behind `after` in this order; `back`: in the opposite direction."""
        down = walk.descending is not back
        if self._direct(walk):
            return Found(*self._matching(walk, limit, down, [self._behind(walk, after, down)]), 0)
        jobs: list[Facts] = []
        rows = 0
        edge: Key | None = after
        for window in self._windows(walk, after, down):
            found, stopped = self._matching(walk, limit - len(jobs), down, window.conditions)
            jobs += found
            rows += window.rows
            edge = stopped or window.edge
            if len(jobs) >= limit or edge is None or self.out_of_time:
                break
        else:
            edge = None
        return Found(jobs, edge, rows)

    @property
    def out_of_time(self) -> bool:
        """Whether the budget is used up."""
        return self.app.clock.monotonic() >= self._end

    def _direct(self, walk: Walk) -> bool:
        """Whether one statement answers at once: few rows, unique keys, or an index that filters nothing
        out.
        """
        if walk.sparse or self._pinned:
            return True
        rest = self.query.without_states().without("sort")
        if walk.sort == "priority":
            rest = rest.without("queue")
        if walk.sort == "time" and self.base.states <= FINAL:
            rest = rest.without("finished")  # a range of the very index that is walked
        every = self.base.states == frozenset(JobState)
        if len(self.base.states) == 1 and self.base.states <= STAGED:
            return False
        return not rest.terms and (every or not walk.by_id)

    @property
    def _pinned(self) -> bool:
        return any(
            term.field in ("id", "unique")
            and not term.negated
            and all(isinstance(value, Exact) for value in term.values)
            for term in self.query
        )

    def _behind(self, walk: Walk, after: Key | None, down: bool) -> ColumnElement[bool]:
        if after is None:
            return true()
        return _compared(walk, after, "<" if down else ">")

    # -- windows

    def _windows(self, walk: Walk, after: Key | None, down: bool) -> Iterator[_Window]:
        size = _FIRST_WINDOW
        at = after
        slices = self._id_window if walk.by_id else self._key_window
        while True:
            began = self.app.clock.monotonic()
            window = slices(walk, at, down, size)
            if window is None:
                return
            yield window
            if window.edge is None:
                return
            at = window.edge
            size = _adapted(size, self.app.clock.monotonic() - began)

    def _id_window(self, walk: Walk, at: Key | None, down: bool, size: int) -> _Window | None:
        """The next ids, by arithmetic, since their index is the table itself; gaps are skipped."""
        low, high = self.bounds
        if low is None or high is None:
            return None
        begin = (high if down else low) if at is None else _number(at[0]) + (-1 if down else 1)
        start = self._next_id(min(begin, high) if down else max(begin, low), down)
        if start is None or not low <= start <= high:
            return None
        size = min(size, _LARGEST_WINDOW)
        stop = max(start - size + 1, low) if down else min(start + size - 1, high)
        first, last = min(start, stop), max(start, stop)
        within = [self.compiler.c.id >= first, self.compiler.c.id <= last]
        done = stop == (low if down else high)
        return _Window(within, None if done else (stop,), last - first + 1)

    def _next_id(self, at: int, down: bool) -> int | None:
        c = self.compiler.c
        found = select(func.max(c.id)).where(c.id <= at) if down else select(func.min(c.id)).where(c.id >= at)
        at_id: int | None = self.conn.scalar(found)
        return at_id

    def _key_window(self, walk: Walk, at: Key | None, down: bool, size: int) -> _Window | None:
        """The next `size` rows of an index."""
        behind = self._behind(walk, at, down)
        size = min(size, _LARGEST_WINDOW)
        ordered = [key.desc() if down else key.asc() for key in walk.keys]
        where = sql_and(walk.base, behind)
        last = self.conn.execute(
            select(*walk.keys).where(where).order_by(*ordered).limit(1).offset(size - 1)
        ).first()
        if last is None:
            return _Window([behind], None, size)
        edge = tuple(last)
        return _Window([behind, _compared(walk, edge, ">=" if down else "<=")], edge, size)

    @cached_property
    def bounds(self) -> tuple[int | None, int | None]:
        """The lowest and the highest id that can match."""
        lowest, highest = (select(end(self.compiler.c.id)) for end in (func.min, func.max))
        low, high = self.conn.scalar(lowest), self.conn.scalar(highest)
        if low is None or high is None:
            return None, None
        asked = id_range(self.query)
        low, high = max(low, asked[0]), min(high, asked[1])
        since, until = inserted_range(self.query, self.around.now)
        if since is not None:
            low = max(low, (self.id_at(since - _SKEW) or 0) + 1)
        if until is not None:
            high = min(high, self.id_at(until + _SKEW) or 0)
        return low, high

    # -- rows

    def _matching(
        self, walk: Walk, limit: int, down: bool, conditions: Sequence[ColumnElement[bool]]
    ) -> tuple[list[Facts], Key | None]:
        """The first matches of one window, in order; the place where time ran out in it, if it did."""
        found: list[Facts] = []
        behind: ColumnElement[bool] = true()
        while True:
            size = limit - len(found) if self.exact else max(_BATCH, limit)
            rows = self._rows(walk, down, size, [*conditions, behind])
            for row in rows:
                job = Facts(dict(row._mapping), self.app.redactor, self.around.now)
                if self.exact or matches(self.query, job, self.around):
                    found.append(job)
                    if len(found) == limit:
                        return found, None
            if len(rows) < size or self.exact:
                return found, None
            last = tuple(rows[-1])[-len(walk.keys) :]
            if self.out_of_time:
                return found, last
            behind = _compared(walk, last, "<" if down else ">")

    def _rows(
        self, walk: Walk, down: bool, limit: int, conditions: Sequence[ColumnElement[bool]]
    ) -> Sequence[Row[Any]]:
        keys = [key.label(f"key_{at}") for at, key in enumerate(walk.keys)]
        statement = (
            select(*self._columns, *keys)
            .where(walk.base, self.condition, *conditions)
            .order_by(*(key.desc() if down else key.asc() for key in self._ordered(walk)))
            .limit(limit)
        )
        return self.conn.execute(statement).all()

    def _ordered(self, walk: Walk) -> Sequence[ColumnElement[Any]]:
        """The keys to sort by. The few rows of sparse states are fetched by their own index and sorted: planners would
        rather walk all the ids there are until enough of them have the right state.
        """
        if walk.sparse and walk.by_id and self.base.states != frozenset(JobState):
            return [walk.keys[0].op("+")(0)]
        return walk.keys

    def ids(self, walk: Walk, limit: int, *, after: Key | None = None) -> tuple[list[int], Key | None]:
        """As `walk`, by id, but the ids alone: nothing of a job is read where its columns decide."""
        if not self.exact:
            found = self.walk(walk, limit, after=after)
            return [job.id for job in found.jobs], found.edge
        c, ids = self.compiler.c, list[int]()
        windows: Iterable[_Window] = [_Window([self._behind(walk, after, False)], None, 0)]
        if not self._direct(walk):
            windows = self._windows(walk, after, False)
        for window in windows:
            where = (walk.base, self.condition, *window.conditions)
            ids += self.conn.scalars(select(c.id).where(*where).order_by(c.id).limit(limit - len(ids)))
            if len(ids) >= limit or window.edge is None or self.out_of_time:
                return ids, window.edge
        return ids, None

    # -- single jobs and places

    def by_ids(self, ids: Sequence[int], *, brief: bool = False) -> list[Facts]:
        """The jobs of these ids that match, in the order of the ids. `brief`: args and errors may be left
        out.
        """
        columns = self._columns
        if brief and self.exact:
            columns = [column for column in columns if column.name not in ("args", "errors")]
        wanted = [job_id for job_id in dict.fromkeys(ids) if 0 <= job_id <= MAX_ID]
        where = (self.compiler.c.id.in_(wanted), self.condition)
        rows = self.conn.execute(select(*columns).where(*where)).all()
        found = {job.id: job for job in self._matched(rows)}
        return [found[job_id] for job_id in wanted if job_id in found]

    def _matched(self, rows: Sequence[Row[Any]]) -> list[Facts]:
        jobs = [Facts({**_ABSENT, **row._mapping}, self.app.redactor, self.around.now) for row in rows]
        return [job for job in jobs if self.exact or matches(self.query, job, self.around)]

    @cached_property
    def highest_id(self) -> int | None:
        """The highest id there is."""
        highest: int | None = self.conn.scalar(select(func.max(self.compiler.c.id)))
        return highest

    def inserted_at(self, at_id: int) -> datetime | None:
        """When the job at this place, or the next older one, was inserted."""
        c = self.compiler.c
        at: datetime | None = self.conn.scalar(
            select(c.inserted_at).where(c.id <= at_id).order_by(c.id.desc()).limit(1)
        )
        return at

    def id_at(self, at: datetime) -> int | None:
        """The highest id of a job inserted at or before that time (0: none), by halving: ids grow with
        time, but for a little disorder among those who insert at once.
        """
        c = self.compiler.c
        low, high = 0, self.highest_id or 0
        while low < high:
            middle = (low + high + 1) // 2
            row = self.conn.execute(
                select(c.id, c.inserted_at).where(c.id >= middle).order_by(c.id).limit(1)
            ).first()
            if row is not None and row[1] <= at:
                low = row[0]
            else:
                high = middle - 1
        return low

    # -- counting

    def tally(self, cap: int) -> Tally:
        """How many match, by state, counted up to `cap` in all."""
        counts = dict.fromkeys(JobState, 0)
        walk = walk_of(self.compiler, self.base, self.query, "id", True)
        assert walk is not None
        if walk.sparse or self._pinned:
            edge = self._count(walk, [], counts, cap)
            return Tally(counts, edge, 0, capped=False)
        rows, edge = 0, None
        for window in self._windows(walk, None, True):
            stopped = self._count(walk, window.conditions, counts, cap)
            rows, edge = rows + window.rows, stopped or window.edge
            if edge is None or self.out_of_time or sum(counts.values()) >= cap:
                break
        return Tally(counts, edge, rows, capped=sum(counts.values()) >= cap and edge is not None)

    def _count(
        self,
        walk: Walk,
        conditions: Sequence[ColumnElement[bool]],
        counts: dict[JobState, int],
        cap: int,
    ) -> Key | None:
        if not self.exact:
            jobs, stopped = self._matching(walk, cap, True, conditions)
            for job in jobs:
                counts[job.state] += 1
            return stopped
        state = self.compiler.c.state
        rows = self.conn.execute(
            select(state, func.count()).where(walk.base, self.condition, *conditions).group_by(state)
        )
        for name, count in rows:
            counts[JobState(name)] += count
        return None

    def key_of(self, walk: Walk, job: Facts) -> Key:
        """The job's place in the order."""
        return tuple(job.row[f"key_{at}"] for at in range(len(walk.keys)))


def id_range(query: Query) -> tuple[int, int]:
    """The ids between which all matches lie, as far as the query's `id:` terms say."""
    low, high = 0, MAX_ID
    for term in query:
        if term.field == "id" and not term.negated:
            ranges = [_range_of(value) for value in term.values]
            low = max(low, min(start for start, _ in ranges))
            high = min(high, max(end for _, end in ranges))
    return low, high


def inserted_range(query: Query, now: datetime) -> tuple[datetime | None, datetime | None]:
    """The times of insertion between which all matches lie, as far as `inserted:` says."""
    since: datetime | None = None
    until: datetime | None = None
    for term in query:
        if term.field != "inserted" or term.negated or len(term.values) != 1:
            continue
        start, end = interval(term.values[0], now)
        since = start if since is None else max(since, start or since)
        until = end if until is None else min(until, end or until)
    return since, until


def _range_of(value: Value) -> tuple[int, int]:
    if isinstance(value, Exact):
        return _number(value.value), _number(value.value)
    if isinstance(value, Range):
        low = 0 if value.low is None else _number(value.low)
        return low, MAX_ID if value.high is None else _number(value.high)
    assert isinstance(value, Compare)
    at = _number(value.scalar)
    return {"<": (0, at), "<=": (0, at), "=": (at, at)}.get(value.op, (at, MAX_ID))


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


@dataclass(frozen=True, slots=True)
class _Window:
    conditions: list[ColumnElement[bool]]
    edge: Key | None
    rows: int


def _compared(walk: Walk, key: Key, op: str) -> ColumnElement[bool]:
    """A comparison of whole keys, which indexes serve."""
    columns = walk.keys
    if len(columns) == 1:
        return columns[0].op(op, is_comparison=True)(key[0])
    values = tuple_(*(literal(value, column.type) for value, column in zip(key, columns, strict=True)))
    return tuple_(*columns).op(op, is_comparison=True)(values)


def _adapted(size: int, seconds: float) -> int:
    """Twice as many where a slice was quick, half where it was slow."""
    if seconds < _SLICE / 2:
        return min(size * 2, _LARGEST_WINDOW)
    return max(size // 2, 500) if seconds > _SLICE * 2 else size
