"""Reads of jobs: pages, counts, facets, and one job.

Invariant: a page never depends on a count, and nothing here runs without an end: every search has a budget.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, literal_column, select, text

from jobkit.admin._ast import Exact
from jobkit.admin._audit_rows import activity_of
from jobkit.admin._changes import changes_of
from jobkit.admin._compile import Compiler
from jobkit.admin._context import Context
from jobkit.admin._cursor import Cursor, Key, fingerprint
from jobkit.admin._facts import Facts, error_class
from jobkit.admin._orders import (
    SPARSE,
    Walk,
    choices,
    default_order,
    descending_by_nature,
    staged_rows,
    state_condition,
    walk_of,
)
from jobkit.admin._rules import action_states
from jobkit.admin._search import STAGED, Found, Searcher
from jobkit.admin._summaries import attempts_of, error_view, summary, timeline_of
from jobkit.admin.errors import NotFound
from jobkit.admin.query import Query, Term
from jobkit.admin.views import (
    ChangeCursor,
    ChangePage,
    Count,
    Facet,
    Facets,
    FacetValue,
    JobChange,
    JobCount,
    JobDetail,
    JobPage,
    JobSummary,
    Precision,
    Searched,
    SortChoice,
    StateCounts,
)
from jobkit.hookspecs import Resource
from jobkit.jobs import FINAL, JobState
from jobkit.redact import REDACTED
from jobkit.storage.schema import UTCDateTime

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["JobReads"]

_JOBS: Final = Resource("job")
MAX_PAGE: Final = 200
MAX_IDS: Final = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class PageRequest:
    """What a page of jobs is asked by."""

    query: str
    sort: str | None
    descending: bool | None
    cursor: str | None
    at: datetime | None
    end: bool
    limit: int
    budget: timedelta


class JobReads:
    """See `Reads`, whose methods these are."""

    def __init__(self, context: Context) -> None:
        self._context = context

    # -- pages

    def page(self, request: PageRequest) -> JobPage:
        """One page."""
        context = self._context
        context.require("view.jobs", _JOBS)
        parsed = context.parse(request.query)
        if parsed.problems:
            return JobPage((), None, None, request.query, "id", True, problems=parsed.problems)
        with context.reading() as conn:
            searcher = context.searcher(conn, parsed.query, request.budget)
            return _Pager(searcher, parsed.query, request).page()

    def sorts(self, query: str) -> tuple[SortChoice, ...]:
        """All orders."""
        self._context.require("view.jobs", _JOBS)
        with self._context.reading() as conn:
            searcher = self._context.searcher(conn, self._context.query(query))
            return choices(searcher.compiler, searcher.base, searcher.query)

    # -- counts

    def count(self, query: str, cap: int) -> JobCount:
        """How many match."""
        self._context.require("view.jobs", _JOBS)
        parsed = self._context.parse(query)
        if parsed.problems:
            return JobCount(Count(0), problems=parsed.problems)
        counts = self._counts(parsed.query, cap)
        total = sum(count.value for count in counts.counts.values())
        capped = total > cap or any(c.precision == "at_least" for c in counts.counts.values())
        if counts.total.precision == "estimate":
            return JobCount(counts.total, counts.searched)
        return JobCount(Count(min(total, cap), "at_least") if capped else Count(total), counts.searched)

    def states(self, query: str, cap: int) -> StateCounts:
        """By state."""
        self._context.require("view.jobs", _JOBS)
        return self._counts(self._context.query(query).without_states(), cap)

    def _counts(self, query: Query, cap: int) -> StateCounts:
        with self._context.reading() as conn:
            searcher = self._context.searcher(conn, query.without("sort"))
            if not searcher.query.without_states().terms:
                counts = _index_counts(searcher, cap)
                return StateCounts(counts, searcher.around.now)
            if finished_only(searcher.query):
                return StateCounts(_finished_counts(searcher, cap), searcher.around.now)
            tally = searcher.tally(cap + 1)
            precision = "exact" if tally.edge is None else "at_least"
            found = {
                state: Count(min(n, cap), "at_least" if n > cap else precision)  # type: ignore[arg-type]
                for state, n in tally.counts.items()
            }
            searched = None if tally.capped else searched_to(searcher, tally.edge, tally.rows)
            return StateCounts(found, searcher.around.now, searched)

    def facets(self, query: str, sample: int) -> Facets:
        """Most frequent values."""
        self._context.require("view.jobs", _JOBS)
        with self._context.reading() as conn:
            searcher = self._context.searcher(conn, self._context.query(query))
            walk = walk_of(searcher.compiler, searcher.base, searcher.query, "id", True)
            assert walk is not None
            found = searcher.walk(walk, sample)
        whole = found.edge is None and len(found.jobs) < sample
        return Facets(tuple(_facets(found.jobs)), len(found.jobs), whole)

    # -- single jobs

    def job(self, job_id: int) -> JobDetail:
        """One job with all of it."""
        context = self._context
        context.require("view.jobs", Resource("job", str(job_id)))
        with context.reading() as conn:
            searcher, found = self._by_ids(conn, [job_id])
            if not found:
                raise NotFound(self._missing(job_id))
            activity = activity_of(context.app, conn, job_id)
        job, around = found[0], searcher.around
        return JobDetail(
            job=summary(job, around),
            args=job.args,
            meta=job.meta,
            args_size=job.args_size,
            errors=tuple(map(error_view, reversed(job.errors))),
            attempts=attempts_of(job),
            timeline=timeline_of(job, activity),
            actions=action_states(context, job),
            activity=activity,
            unique_key=job.unique_key,
            timeout=around.timeout(job.worker) if job.worker in around.timeouts else None,
        )

    def _missing(self, job_id: int) -> str:
        keep = self._context.app.config.prune_after
        pruned = (
            "" if keep is None else f"; it may have been pruned (finished jobs older than {_span(keep)} are)"
        )
        return f"job {job_id} is not here{pruned}"

    def _by_ids(self, conn: Connection, ids: Sequence[int]) -> tuple[Searcher, list[Facts]]:
        searcher = self._context.searcher(conn, Query())
        return searcher, searcher.by_ids(ids)

    def summaries(self, ids: Sequence[int]) -> dict[int, JobSummary]:
        """By id."""
        self._context.require("view.jobs", _JOBS)
        with self._context.reading() as conn:
            searcher, found = self._by_ids(conn, list(ids)[:MAX_IDS])
            return {job.id: summary(job, searcher.around) for job in found}

    # -- what is new

    def newer(self, query: str, after_id: int, cap: int) -> int:
        """Matches with a higher id."""
        self._context.require("view.jobs", _JOBS)
        with self._context.reading() as conn:
            searcher = self._context.searcher(conn, self._context.query(query))
            walk = walk_of(searcher.compiler, searcher.base, searcher.query, "id", False)
            assert walk is not None
            return len(searcher.walk(walk, cap, after=(after_id,)).jobs)

    def changes_since(
        self, query: str, since: datetime, limit: int, cursor: ChangeCursor | None
    ) -> ChangePage:
        """Matches whose last change is not older."""
        self._context.require("view.jobs", _JOBS)
        with self._context.reading() as conn:
            searcher = self._context.searcher(conn, self._context.query(query))
            found = changes_of(searcher, since, limit, cursor)
            changes = tuple(JobChange(at, summary(job, searcher.around)) for at, job in found.jobs)
            return ChangePage(changes, found.next, found.note)


class _Pager:
    """One page: which order, from where, in which direction."""

    def __init__(self, searcher: Searcher, query: Query, request: PageRequest) -> None:
        self.searcher = searcher
        self.query = query.without("sort")
        self.request = request
        self.notes: list[str] = []
        self.walk = self._walk(query)
        self.filter = fingerprint(str(self.query), str(searcher.query))

    def _walk(self, query: Query) -> Walk:
        searcher, order = self.searcher, query.order
        sort = self.request.sort or (order.name if order else None)
        down = self.request.descending
        if down is None and order is not None and order.name == sort:
            down = order.descending
        walk = None if sort is None else self._served(sort, down)
        if sort is not None and walk is None:
            self.notes.append(f"no index serves the order {sort!r} under this filter")
        natural = None if sort is not None else self.request.descending
        walk = walk or self._served(default_order(searcher.base, searcher.query), natural)
        walk = walk or self._served("id", None)
        assert walk is not None
        return walk

    def _served(self, sort: str, down: bool | None) -> Walk | None:
        searcher = self.searcher
        if down is None:
            down = descending_by_nature(sort, searcher.base)
        return walk_of(searcher.compiler, searcher.base, searcher.query, sort, down)

    def page(self) -> JobPage:
        """Walk one job further than the page is long, to know whether there are more."""
        limit = min(max(self.request.limit, 1), MAX_PAGE)
        cursor = self._cursor()
        back = self.request.end if cursor is None else cursor.back
        after = self._start() if cursor is None else cursor.key
        found = self.searcher.walk(self.walk, limit + 1, after=after, back=back)
        jobs = found.jobs[:limit]
        onward = self._onward(found, jobs, limit)
        came_from = after is not None or self.request.end
        near = self.searcher.key_of(self.walk, jobs[0]) if jobs else after
        first = None if near is None or not came_from else near
        if back:
            jobs, onward, first = jobs[::-1], first if not self.request.end else None, onward
        return self._made(jobs, onward, first, found)

    def _onward(self, found: Found, jobs: list[Facts], limit: int) -> Key | None:
        if len(found.jobs) > limit:
            return self.searcher.key_of(self.walk, jobs[-1])
        return found.edge

    def _made(self, jobs: list[Facts], after: Key | None, before: Key | None, found: Found) -> JobPage:
        searcher = self.searcher
        full = len(found.jobs) > len(jobs)
        searched = None if full or not self.walk.by_id else searched_to(searcher, found.edge, found.rows)
        return JobPage(
            jobs=tuple(summary(job, searcher.around) for job in jobs),
            next=self._encoded(after, False),
            previous=self._encoded(before, True),
            query=str(self.query),
            sort=self.walk.sort,
            descending=self.walk.descending,
            note="; ".join(self.notes),
            searched=searched,
            max_id=searcher.highest_id or 0,
        )

    def _encoded(self, key: Key | None, back: bool) -> str | None:
        if key is None:
            return None
        return Cursor(self.walk.sort, self.walk.descending, key, self.filter, back).encode()

    def _cursor(self) -> Cursor | None:
        given = self.request.cursor
        if not given:
            return None
        cursor = Cursor.decode(given)
        mine = (self.walk.sort, self.walk.descending, self.filter)
        if cursor is not None and (cursor.sort, cursor.descending, cursor.filter) == mine:
            kinds = [isinstance(part, datetime) for part in cursor.key]
            if kinds == [_is_time(column) for column in self.walk.keys]:
                return cursor
        self.notes.append("the page's place belongs to another filter or order; this is the first page")
        return None

    def _start(self) -> Key | None:
        """The place just before the jump's time."""
        at = self.request.at
        if at is None:
            return None
        if self.walk.by_id:
            edge = self.searcher.id_at(at)
            if edge is None:
                return None
            return (edge + 1,) if self.walk.descending else (edge,)
        if len(self.walk.keys) == 2 and _is_time(self.walk.keys[0]):
            return at, (2**63 - 1 if self.walk.descending else -1)
        self.notes.append("this order has no time to jump to")
        return None


def _is_time(column: object) -> bool:
    return isinstance(getattr(column, "type", None), UTCDateTime)


def searched_to(searcher: Searcher, edge: Key | None, rows: int) -> Searched | None:
    """How far a search by id has come; None where it looked at nothing in vain."""
    if not rows:
        return None
    to_id = edge[0] if edge else (searcher.bounds[0] or 0)
    assert isinstance(to_id, int)
    return Searched(rows, to_id, searcher.inserted_at(to_id), edge is None)


# -- counts from indexes


def _index_counts(searcher: Searcher, cap: int) -> Mapping[JobState, Count]:
    """Counts of whole states: up to the cap by the partial indexes, beyond it as the database estimates."""
    states = searcher.query.states
    counts = {state: Count(0) for state in JobState}
    counts |= {state: _index_count(searcher, state, cap) for state in states - STAGED}
    return counts | {state: count for state, count in _staged_counts(searcher).items() if state in states}


def finished_only(query: Query) -> bool:
    """Whether the query only says when jobs became final, which the indexes of the final states answer."""
    rest = query.without_states()
    return bool(rest.terms) and all(term.field == "finished" and not term.negated for term in rest)


def _finished_counts(searcher: Searcher, cap: int) -> dict[JobState, Count]:
    found = {state: Count(0) for state in JobState}
    for state in searcher.query.states & FINAL:
        alone = Compiler(searcher.app.tables, searcher.conn.dialect.name, searcher.around, frozenset({state}))
        within = alone.condition(searcher.query.without_states())
        rows = (
            select(literal_column("1"))
            .select_from(alone.jobs)
            .where(state_condition(alone, frozenset({state})), within)
            .limit(cap + 1)
            .subquery()
        )
        count = searcher.conn.scalar(select(func.count()).select_from(rows)) or 0
        found[state] = Count(cap, "at_least") if count > cap else Count(count)
    return found


def _staged_counts(searcher: Searcher) -> dict[JobState, Count]:
    """Scheduled and retryable share an index, so both are counted among its first rows."""
    c = searcher.compiler.c
    first = select(c.state).where(staged_rows()).order_by(c.scheduled_at, c.id).limit(SPARSE + 1).subquery()
    rows = searcher.conn.execute(select(first.c.state, func.count()).group_by(first.c.state))
    counted = {JobState(state): int(count) for state, count in rows}
    precision: Precision = "exact" if sum(counted.values()) <= SPARSE else "at_least"
    return {state: Count(counted.get(state, 0), precision) for state in STAGED}


def _index_count(searcher: Searcher, state: JobState, cap: int) -> Count:
    rows = (
        select(literal_column("1"))
        .select_from(searcher.compiler.jobs)
        .where(state_condition(searcher.compiler, frozenset({state})))
        .limit(cap + 1)
        .subquery()
    )
    found = searcher.conn.scalar(select(func.count()).select_from(rows)) or 0
    if found <= cap:
        return Count(found)
    estimate = _estimate(searcher, state)
    return Count(cap, "at_least") if estimate is None or estimate <= cap else Count(estimate, "estimate")


_INDEX_OF: Final = {
    JobState.AVAILABLE: "jobs_claim_idx",
    JobState.EXECUTING: "jobs_executing_idx",
    JobState.COMPLETED: "jobs_completed_idx",
    JobState.CANCELLED: "jobs_cancelled_idx",
    JobState.DISCARDED: "jobs_discarded_idx",
}


def _estimate(searcher: Searcher, state: JobState) -> int | None:
    """What Postgres' last ANALYZE says of the rows in the state's partial index."""
    if not searcher.compiler.postgres or state not in _INDEX_OF:
        return None
    table = searcher.app.tables.jobs
    name = searcher.app.tables.prefix + _INDEX_OF[state]
    quoted = searcher.conn.dialect.identifier_preparer.quote
    full = f"{quoted(table.schema)}.{quoted(name)}" if table.schema else quoted(name)
    statement = text("SELECT reltuples FROM pg_class WHERE oid = to_regclass(:name)")
    found = searcher.conn.scalar(statement, {"name": full})
    return None if found is None or found < 0 else int(round(found, -2))


# -- facets

_FACETS: Final = ("queue", "worker", "node", "tag", "priority", "cron", "error.class")


def _facets(jobs: Sequence[Facts]) -> list[Facet]:
    counted: dict[str, Counter[str]] = {name: Counter() for name in _FACETS}
    for job in jobs:
        for name, value in _facet_values(job):
            if REDACTED in value:
                continue
            counted[name][value] += 1
    return [
        Facet(
            name, tuple(FacetValue(value, n, _facet_term(name, value)) for value, n in found.most_common(10))
        )
        for name, found in counted.items()
        if found
    ]


def _facet_values(job: Facts) -> list[tuple[str, str]]:
    found = [("queue", job.queue), ("worker", job.worker), ("priority", str(job.priority))]
    found += [("tag", tag) for tag in job.tags]
    if job.node:
        found.append(("node", job.node))
    if job.cron:
        found.append(("cron", job.cron))
    if name := error_class(job.error):
        found.append(("error.class", name))
    return found


def _facet_term(name: str, value: str) -> str:
    exact = Exact(int(value), value) if name == "priority" else Exact(value, value)
    return str(Term(name, (exact,)))


def _span(span: timedelta) -> str:
    days = span / timedelta(days=1)
    return f"{days:g} days" if days >= 1 else f"{span.total_seconds():g} s"
