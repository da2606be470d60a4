"""The list of jobs.

Invariant: what draws the table counts nothing; counts and facets come with the first refresh, or where they are asked
for. Rows that somebody is working with never move under their hands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from jobkit.admin._ast import quoted
from jobkit.admin._context import DEFAULT_BUDGET
from jobkit.admin._context import Context as AdminContext
from jobkit.admin._fields import CONDITIONS
from jobkit.admin._job_reads import PageRequest
from jobkit.admin._stamps import page_stamp
from jobkit.admin.errors import QueryRefused, QueryTimeout
from jobkit.admin.query import Problem
from jobkit.admin.views import Facets, JobPage, JobSummary, SortChoice, StateCounts
from jobkit.jobs import FINAL, JobState
from jobkit_dashboard.context import Context
from jobkit_dashboard.prefs import COLUMNS, columns_from
from jobkit_dashboard.replies import Page, Redirect
from jobkit_dashboard.times import parse_local
from jobkit_dashboard.words import say

__all__ = [
    "COSTLY",
    "STATE_INDEX",
    "Row",
    "add_filter",
    "jobs_mark",
    "jobs_page",
    "list_query",
    "marked",
    "page_request",
    "read_page",
]

PER: Final = (25, 50, 100, 200)
STATES: Final = tuple(JobState)
STATE_INDEX: Final = {state: index for index, state in enumerate(STATES)}
TABS: Final = (("", say("All")), ("incomplete", say("Incomplete")), ("failing", say("Failing")))
GROUPS: Final[dict[str, Sequence[JobState]]] = {
    "": STATES,
    "incomplete": [state for state in STATES if state not in FINAL],
    "failing": [JobState.RETRYABLE, JobState.DISCARDED],
}
_MOST_ROWS: Final = 200
COSTLY: Final = 0.003
"""Seconds: numbers that cost more are counted behind the viewer's back, once they have been counted at all."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. `now` says what became of it since it was drawn; `gone`: it was deleted meanwhile."""

    job: JobSummary | None
    id: int
    now: str = ""

    @property
    def gone(self) -> bool:
        """Whether there is no such job any more."""
        return self.job is None


@dataclass(frozen=True, slots=True)
class Tab:
    """One state tab."""

    name: str
    title: str
    count: str = ""
    total: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """What the second round brings. `age`: of the counts, in seconds."""

    states: StateCounts | None
    totals: StateCounts | None
    facets: Facets | None
    age: float
    slow: str = ""


def list_query(ctx: Context) -> tuple[str, str]:
    """The query as typed, and with the tab's term."""
    typed = ctx.query.text("q")
    state = ctx.query.text("state")
    if state in ("incomplete", "failing"):
        term = f"is:{state}"
    elif state in STATES:
        term = f"state:{state}"
    else:
        return typed, typed
    return typed, f"{typed} {term}".strip()


def jobs_page(ctx: Context) -> Page:
    """`R/jobs`."""
    typed, query = list_query(ctx)
    asked, slow = page_request(ctx), ""
    try:
        found = read_page(ctx, asked)
    except QueryTimeout as error:
        found, slow = JobPage((), None, None, query, "id", True), str(error)
    rows = (
        _held(ctx, found) if ctx.live and ctx.query.get("_rows") else [Row(job, job.id) for job in found.jobs]
    )
    counted = _counted(ctx, query) if (ctx.live or ctx.query.text("counts")) and not found.problems else None
    return Page(
        "jobs.html",
        say("Jobs"),
        {
            "typed": typed,
            "found": found,
            "rows": rows,
            "slow": slow,
            "per": asked.limit,
            "at": ctx.query.text("at") if asked.at else "",
            "pers": PER,
            "state": ctx.query.text("state"),
            "tabs": _tabs(counted),
            "counted": counted,
            "facets": counted.facets if counted else None,
            "columns": columns_from(ctx.query["cols"]) if "cols" in ctx.query else ctx.prefs.columns,
            "all_columns": COLUMNS,
            "sorts": _sorts(ctx, found),
            "time_title": _time_title(ctx.query.text("state")),
            "segments": marked(typed, found.problems),
            "fresh": _fresh(ctx, found),
            "drawn": ",".join(f"{row.id}.{STATE_INDEX[row.job.state]}" for row in rows if row.job),
            "printed": found.query,
            "place": _place(ctx, asked),
            "matching": _matching(ctx, counted),
            "first": not asked.cursor and not asked.at and not asked.end,
        },
        regions={
            "tabs": "jobs/tabs.html",
            "table": "jobs/table.html",
            "facets": "jobs/facets.html",
            "bulk": "jobs/bulk.html",
        },
        token=_token(rows, found, counted, _fresh(ctx, found)),
        nav="jobs",
    )


def read_page(ctx: Context, asked: PageRequest) -> JobPage:
    """The page of the list that was asked for. Raises QueryTimeout and what else reading jobs raises."""
    return ctx.reads.jobs(
        asked.query,
        sort=asked.sort,
        descending=asked.descending,
        cursor=asked.cursor,
        at=asked.at,
        end=asked.end,
        limit=asked.limit,
    )


def page_request(ctx: Context) -> PageRequest:
    """The page of the list that the address names."""
    per = ctx.query.text("per")
    return PageRequest(
        query=list_query(ctx)[1],
        sort=ctx.query.text("sort") or None,
        descending={"asc": False, "desc": True}.get(ctx.query.text("dir")),
        cursor=ctx.query.get("cursor") or None,
        at=parse_local(ctx.query.text("at"), ctx.prefs.tz),
        end=ctx.query.text("end") == "1",
        limit=int(per) if per in map(str, PER) else 50,
        budget=DEFAULT_BUDGET,
    )


def jobs_mark(ctx: Context) -> Callable[[], bool]:
    """Tells whether the list, the rows that the viewer holds, and the numbers beside it are what they were."""
    held = [job_id for job_id, _ in _drawn(ctx.query.get("_rows", ""))]
    asked = page_request(ctx)
    try:
        rows = page_stamp(AdminContext(ctx.app, ctx.actor, ctx.reads.timeout), asked, held)
    except (QueryTimeout, QueryRefused):
        return lambda: False
    numbers = _shown(_counted(ctx, asked.query))
    return lambda: rows.still() and _shown(_counted(ctx, asked.query)) == numbers


def add_filter(ctx: Context) -> Redirect:
    """`R/jobs/filter`: the form of filters, turned into a query; works without scripts."""
    terms = [ctx.query.text("q")]
    for name in ("queue", "worker", "tag"):
        value = ctx.query.text(name, 200)
        if value:
            terms.append(f"{name}:{_value(value)}")
    if ctx.query.text("is") in STATES:
        terms.append(f"state:{ctx.query.text('is')}")
    if ctx.query.text("flag") in CONDITIONS:
        terms.append(f"is:{ctx.query.text('flag')}")
    if ctx.query.text("text"):
        terms.append(quoted(ctx.query.text("text", 200)))
    since, until = ctx.query.text("since", 10), ctx.query.text("until", 10)
    if since or until:
        terms.append(f"inserted:{since}..{until}")
    return Redirect(ctx.url("/jobs", q=" ".join(filter(None, terms))))


def _value(text: str) -> str:
    """A value for the query: stars at the ends keep their meaning, all else is taken as it is."""
    return text if re.fullmatch(r"\*?[\w./@-]+\*?", text) else quoted(text)


def _sorts(ctx: Context, found: JobPage) -> Sequence[SortChoice]:
    if found.problems:
        return ()
    key = ("sorts", ctx.audience, found.query)
    return ctx.dash.samples.get(key, lambda: ctx.reads.sorts(found.query), least=60.0).value


def _held(ctx: Context, found: JobPage) -> list[Row]:
    """The rows that the viewer has on the screen, in their order, with what became of each."""
    drawn = _drawn(ctx.query.get("_rows", ""))
    jobs = ctx.reads.summaries([job_id for job_id, _ in drawn])
    rows = []
    for job_id, state in drawn:
        job = jobs.get(job_id)
        changed = job is not None and state is not None and job.state is not state
        rows.append(Row(job, job_id, f"now {job.state.value}" if job is not None and changed else ""))
    return rows


def _drawn(text: str) -> list[tuple[int, JobState | None]]:
    rows: list[tuple[int, JobState | None]] = []
    for part in text.split(",")[:_MOST_ROWS]:
        job_id, _, state = part.partition(".")
        if job_id.isdecimal() and len(job_id) < 20:
            known = state.isdecimal() and int(state) < len(STATES)
            rows.append((int(job_id), STATES[int(state)] if known else None))
    return rows


def _fresh(ctx: Context, found: JobPage) -> int:
    """How many matching jobs have been inserted since the viewer's page was drawn."""
    after = ctx.query.get("_after", "")
    if not (ctx.live and after.isdecimal() and len(after) < 20) or found.problems:
        return 0
    return ctx.reads.newer(found.query, int(after))


def _counted(ctx: Context, query: str) -> Counted:
    samples, audience = ctx.dash.samples, ctx.audience
    try:
        states = samples.get(("states", audience, query), lambda: ctx.reads.states(query), behind=COSTLY)
        totals = samples.get(("states", audience, ""), lambda: ctx.reads.states(""), least=5.0, behind=COSTLY)
        facets = samples.get(
            ("facets", audience, query), lambda: ctx.reads.facets(query), least=5.0, behind=COSTLY
        )
    except QueryTimeout as error:
        return Counted(None, None, None, 0.0, str(error))
    except QueryRefused:
        return Counted(None, None, None, 0.0)
    return Counted(states.value, totals.value, facets.value, samples.age(states))


def _place(ctx: Context, asked: PageRequest) -> int | None:
    """How many jobs come before the page, as far as the way to it tells."""
    if not asked.cursor and not asked.at and not asked.end:
        return 0
    count = ctx.query.text("n")
    return int(count) if asked.cursor and count.isascii() and count.isdecimal() and len(count) < 12 else None


def _matching(ctx: Context, counted: Counted | None) -> str:
    """How many jobs match, tab included; empty until they have been counted."""
    if counted is None or counted.states is None:
        return ""
    return _sum(counted.states, GROUPS.get(ctx.query.text("state")) or _only(ctx.query.text("state")))


def _only(state: str) -> Sequence[JobState]:
    return [JobState(state)] if state in STATES else STATES


def _tabs(counted: Counted | None) -> list[Tab]:
    def tab(name: str, title: str, states: Sequence[JobState]) -> Tab:
        if counted is None or counted.states is None or counted.totals is None:
            return Tab(name, title)
        return Tab(name, title, _sum(counted.states, states), _sum(counted.totals, states))

    tabs = [tab(name, title, GROUPS[name]) for name, title in TABS]
    return tabs + [tab(state.value, state.value.capitalize(), [state]) for state in STATES]


def _sum(counts: StateCounts, states: Sequence[JobState]) -> str:
    first, *rest = [counts.counts[state] for state in states]
    for count in rest:
        first = first + count
    return first.text


def _time_title(state: str) -> str:
    if state in ("completed", "discarded", "cancelled"):
        return say("Finished")
    return {
        "executing": say("Started"),
        "scheduled": say("Due"),
        "retryable": say("Due"),
        "available": say("Due"),
    }.get(state, say("Time"))


def _token(rows: Sequence[Row], found: JobPage, counted: Counted | None, fresh: int) -> object:
    """What the page shows, without what only time changes."""
    shown = [
        (row.id, row.now)
        + (() if row.job is None else _stable(row.job))
        for row in rows
    ]  # fmt: skip
    return (shown, found.next, found.previous, found.problems, found.note, fresh, _shown(counted))


def _shown(counted: Counted | None) -> object:
    """The numbers as they are printed."""
    if counted is None or counted.states is None or counted.totals is None:
        return None
    counts = [count.text for count in (*counted.states.counts.values(), *counted.totals.counts.values())]
    return counts, counted.facets


def _stable(job: JobSummary) -> tuple[object, ...]:
    return (
        job.state, job.attempt, job.max_attempts, job.queue, job.priority, job.tags, job.node, job.error,
        job.scheduled_at, job.attempted_at, job.finished_at, job.markers,
    )  # fmt: skip


def marked(typed: str, problems: Sequence[Problem]) -> list[tuple[str, Problem | None]]:
    """The query in pieces, each with the problem that it has."""
    pieces: list[tuple[str, Problem | None]] = []
    at = 0
    for problem in sorted(problems, key=lambda problem: problem.start):
        start = min(max(problem.start, at), len(typed))
        end = min(max(problem.start + problem.length, start), len(typed))
        if typed[at:start]:
            pieces.append((typed[at:start], None))
        pieces.append((typed[start:end], problem))
        at = end
    return pieces + ([(typed[at:], None)] if typed[at:] else [])
