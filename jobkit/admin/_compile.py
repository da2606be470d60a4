"""From a query to SQL: a condition over the jobs table, with every value as a parameter.

Invariant: the condition holds for every job that the plain evaluator matches. Where `exact` says so it holds
for no other; else (terms about content) each candidate must still be matched in its redacted form. Under a
minus sign such a term does not narrow at all: what it leaves out would tell what is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Text,
    and_,
    case,
    cast,
    extract,
    false,
    func,
    literal,
    not_,
    or_,
    true,
)

from jobkit.admin._ast import BARE, GROUPS, Compare, Custom, Exact, Query, Range, Term, Value, Wild
from jobkit.admin._facts import OWN_META
from jobkit.admin._json_sql import Bool, dialect_json
from jobkit.admin._match import OVERDUE, Surroundings, folded, in_micros, interval
from jobkit.jobs import FINAL, JobState

if TYPE_CHECKING:
    from jobkit.storage.schema import Tables

__all__ = ["CONTENT", "Compiler", "exact"]

CONTENT: Final = frozenset({BARE, "args", "meta", "tag", "error", "error.class"})
"""Fields whose values redaction may hide."""


def exact(query: Query) -> bool:
    """Whether the compiled condition alone decides."""
    return not any(term.field in CONTENT for term in query)


class Compiler:
    """Compiles for one database and one moment."""

    def __init__(
        self,
        tables: Tables,
        dialect: str,
        around: Surroundings,
        states: frozenset[JobState] = frozenset(JobState),
    ) -> None:
        self.states = states
        self.jobs = tables.jobs
        self.c = tables.jobs.c
        self.postgres = dialect == "postgresql"
        self.json = dialect_json(dialect)
        self.around = around

    def condition(self, query: Query) -> Bool:
        """All terms of the query."""
        return and_(true(), *(self._term(term) for term in query if term.field != "sort"))

    def _term(self, term: Term) -> Bool:
        if term.field in CONTENT and term.negated:
            return true()
        found = or_(false(), *(self._value(term, value) for value in term.values))
        return not_(func.coalesce(found, false())) if term.negated else found

    def _value(self, term: Term, value: Value) -> Bool:
        if isinstance(value, Custom):
            hook = value.qualifier.compile_pg if self.postgres else value.qualifier.compile_sqlite
            return hook(self.jobs, value.value)
        if term.path:
            return self.json.at(self.c[term.field], term.path, value)
        return _FIELDS[term.field](self, value)

    # -- columns

    def name(self, column: ColumnElement[str], value: Value) -> Bool:
        """A name: equal, or with stars; case counts."""
        if isinstance(value, Exact):
            return column == str(value.value)
        assert isinstance(value, Wild)
        text, length = value.text, len(value.text)
        if not text:
            return column.is_not(None)
        if value.open_start and value.open_end:
            return (func.strpos if self.postgres else func.instr)(column, text) > 0
        if not value.open_start:
            return func.substr(column, 1, length) == text
        return (func.right(column, length) if self.postgres else func.substr(column, -length)) == text

    def number(self, column: ColumnElement[int], value: Value) -> Bool:
        """A number: equal, compared, or in a range."""
        if isinstance(value, Exact):
            return column == value.value
        if isinstance(value, Compare):
            return column.op(value.op, is_comparison=True)(value.scalar)
        assert isinstance(value, Range)
        low = true() if value.low is None else column >= value.low
        high = true() if value.high is None else column <= value.high
        return and_(low, high)

    def time(self, column: ColumnElement[datetime], value: Value) -> Bool:
        """An instant: absolute, or as an age."""
        start, end = interval(value, self.around.now)
        return and_(
            column.is_not(None),
            true() if start is None else column >= start,
            true() if end is None else column < end,
        )

    @property
    def finished(self) -> ColumnElement[datetime]:
        """When the job became final; where only one state can match, its own column, which has an index."""
        if len(self.states) == 1 and self.states <= FINAL:
            own: ColumnElement[datetime] = self.c[f"{next(iter(self.states)).value}_at"]
            return own
        found: ColumnElement[datetime] = func.coalesce(
            self.c.completed_at, self.c.discarded_at, self.c.cancelled_at, type_=self.c.completed_at.type
        )
        return found

    # -- spans, in whole microseconds

    def micros(self, column: ColumnElement[datetime]) -> ColumnElement[int]:
        """The instant as a number."""
        if self.postgres:
            return cast(extract("epoch", column) * 1_000_000, BigInteger())
        text = cast(column, Text())
        seconds = cast(func.strftime("%s", func.substr(text, 1, 19)), Integer())
        return seconds * 1_000_000 + cast(func.substr(text, 21, 6), Integer())

    @property
    def now(self) -> ColumnElement[datetime]:
        """This query's moment as a value of the columns' type."""
        return literal(self.around.now, self.c.inserted_at.type)

    def ran(self, value: Value) -> Bool:
        """How long the last run took, or takes."""
        c = self.c
        end = case(
            (c.state == JobState.EXECUTING.value, self.now),
            (c.state.in_([JobState.COMPLETED.value, JobState.DISCARDED.value]), self.finished),
        )
        return self._span(c.attempted_at, end, value)

    def waited(self, value: Value) -> Bool:
        """How long it was due before its start, or is due."""
        c = self.c
        started = [JobState.EXECUTING.value, JobState.COMPLETED.value, JobState.DISCARDED.value]
        end = case((c.state == JobState.AVAILABLE.value, self.now), (c.state.in_(started), c.attempted_at))
        return self._span(c.scheduled_at, end, value)

    def _span(self, start: ColumnElement[datetime], end: ColumnElement[datetime], value: Value) -> Bool:
        span = self.micros(end) - self.micros(start)
        return and_(span.is_not(None), self.number(span, in_micros(value)))

    # -- conditions

    def condition_named(self, value: Value) -> Bool:
        """`is:`"""
        assert isinstance(value, Exact)
        name = str(value.value)
        if name in GROUPS:
            return self.c.state.in_([state.value for state in GROUPS[name]])
        return _CONDITIONS[name](self)

    def orphaned(self) -> Bool:
        """Executing under a node that is gone."""
        here = and_(true(), self.c.attempted_by.in_(sorted(self.around.live)))
        return and_(self.c.state == JobState.EXECUTING.value, not_(func.coalesce(here, false())))

    def stuck(self) -> Bool:
        """Executing longer than the worker's timeout."""
        by_timeout: dict[timedelta | None, list[str]] = {}
        for worker, timeout in self.around.timeouts.items():
            by_timeout.setdefault(timeout, []).append(worker)
        late = [
            and_(self.c.worker.in_(workers), self._started_before(timeout))
            for timeout, workers in by_timeout.items()
            if timeout is not None
        ]
        unknown = self.c.worker.not_in(sorted(self.around.timeouts))
        late.append(and_(unknown, self._started_before(self.around.timeout(""))))
        return and_(self.c.state == JobState.EXECUTING.value, or_(*late))

    def _started_before(self, timeout: timedelta | None) -> Bool:
        assert timeout is not None
        return self.c.attempted_at < self.around.now - timeout

    def overdue(self) -> Bool:
        """Available and due for long."""
        due = self.c.scheduled_at < self.around.now - OVERDUE
        return and_(self.c.state == JobState.AVAILABLE.value, due)

    def paused(self) -> Bool:
        """Waiting in a paused queue."""
        ended = [state.value for state in (*sorted(FINAL), JobState.EXECUTING)]
        return and_(self.c.state.not_in(ended), self.c.queue.in_(sorted(self.around.paused)))

    def has(self, value: Value) -> Bool:
        """`has:`"""
        assert isinstance(value, Exact)
        return _HAS[str(value.value)](self)

    # -- content: candidates only

    def bare(self, value: Value) -> Bool:
        """Text in worker, tags, args or errors; digits are also an id."""
        assert isinstance(value, Exact)
        needle, c = folded(value.text), self.c
        found = [self.json.contains(c.worker, needle)]
        found += [self.json.holds(column, needle) for column in (c.tags, c.args, c.errors)]
        if isinstance(value.value, int):
            found.append(c.id == value.value)
        return or_(*found)

    def text_in(self, column: ColumnElement[str], value: Value) -> Bool:
        """Text in the values of a JSON column."""
        assert isinstance(value, Exact)
        return self.json.holds(column, folded(str(value.value)))

    def part_of(self, column: ColumnElement[str], value: Value) -> Bool:
        """A name that stands somewhere in a JSON column."""
        text = str(value.value) if isinstance(value, Exact) else getattr(value, "text", "")
        return self.json.holds(column, folded(text)) if text else true()


_CONDITIONS: Final[Mapping[str, Callable[[Compiler], Bool]]] = {
    "orphaned": Compiler.orphaned,
    "stuck": Compiler.stuck,
    "overdue": Compiler.overdue,
    "paused": Compiler.paused,
    "snoozed": lambda s: func.coalesce(s.json.count(s.c.meta, "snoozed"), 0) > 0,
    "cron": lambda s: s.json.key(s.c.meta, "cron").is_not(None),
    "unique": lambda s: s.c.unique_key.is_not(None),
}

_HAS: Final[Mapping[str, Callable[[Compiler], Bool]]] = {
    "error": lambda s: cast(s.c.errors, Text()).not_in(["[]", ""]),
    "tags": lambda s: cast(s.c.tags, Text()).not_in(["[]", ""]),
    "meta": lambda s: s.json.other_keys(s.c.meta, sorted(OWN_META)),
    "unique": lambda s: or_(s.c.unique_key.is_not(None), s.json.key(s.c.meta, "unique_key").is_not(None)),
}

_FIELDS: Final[Mapping[str, Callable[[Compiler, Any], Bool]]] = {
    BARE: Compiler.bare,
    "id": lambda s, value: s.number(s.c.id, value),
    "state": lambda s, value: s.c.state == str(value.value),
    "is": Compiler.condition_named,
    "has": Compiler.has,
    "queue": lambda s, value: s.name(s.c.queue, value),
    "worker": lambda s, value: s.name(s.c.worker, value),
    "node": lambda s, value: s.name(s.c.attempted_by, value),
    "unique": lambda s, value: s.name(s.c.unique_key, value),
    "cron": lambda s, value: s.name(s.json.key(s.c.meta, "cron"), value),
    "tag": lambda s, value: s.part_of(s.c.tags, value),
    "priority": lambda s, value: s.number(s.c.priority, value),
    "attempt": lambda s, value: s.number(s.c.attempt, value),
    "max": lambda s, value: s.number(s.c.max_attempts, value),
    "args": lambda s, value: s.text_in(s.c.args, value),
    "meta": lambda s, value: s.text_in(s.c.meta, value),
    "error": lambda s, value: s.text_in(s.c.errors, value),
    "error.class": lambda s, value: s.part_of(s.c.errors, value),
    "inserted": lambda s, value: s.time(s.c.inserted_at, value),
    "scheduled": lambda s, value: s.time(s.c.scheduled_at, value),
    "started": lambda s, value: s.time(s.c.attempted_at, value),
    "finished": lambda s, value: s.time(s.finished, value),
    "ran": Compiler.ran,
    "wait": Compiler.waited,
}
