"""What an action would do to many jobs, before anybody confirms it.

Invariant: nothing is written, and what is shown is the set that the operation will act on: the same query,
the same highest id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from jobkit.admin._ast import Query
from jobkit.admin._desk import Desk, Draft
from jobkit.admin._facts import Facts
from jobkit.admin._orders import walk_of
from jobkit.admin._rules import RULES, Rule, refusal
from jobkit.admin._search import Searcher
from jobkit.admin._summaries import summary
from jobkit.admin.query import parse
from jobkit.admin.results import Ids, Matching, Preview, Selection, Skip
from jobkit.admin.views import Count, Precision
from jobkit.hookspecs import Resource
from jobkit.jobs import JobState

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Previewer"]

SPLIT: Final = 10_000
COUNTED: Final = 100_000
SAMPLES: Final = 5
MANY: Final = 1_000
BUDGET: Final = timedelta(seconds=1.5)


class Previewer:
    """One actor's previews."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def preview(self, action: str, selection: Selection) -> Preview:
        """Counts, splits and samples."""
        rule = RULES[action]
        draft = Draft(rule.permission, "job")
        self._desk.require(rule.permission, Resource("job"), draft)
        query = Query()
        if isinstance(selection, Matching):
            query = self._desk.context.query(selection.query).without("sort")
        with self._desk.context.reading() as conn:
            if isinstance(selection, Ids):
                return self._of_ids(conn, rule, selection)
            return self._of_query(conn, rule, query, selection.max_id)

    def _of_ids(self, conn: Connection, rule: Rule, selection: Ids) -> Preview:
        searcher = self._desk.context.searcher(conn, Query())
        jobs = searcher.by_ids(selection.ids)
        counts = Counter(job.state for job in jobs)
        missing = len(set(selection.ids)) - len(jobs)
        return self._made(rule, searcher, jobs, counts, "exact", None, max(selection.ids, default=0), missing)

    def _of_query(self, conn: Connection, rule: Rule, query: Query, max_id: int | None) -> Preview:
        highest = self._desk.context.searcher(conn, query).highest_id or 0
        max_id = highest if max_id is None else min(max_id, highest)
        frozen = query & parse(f"id:..{max_id}").query
        searcher = self._desk.context.searcher(conn, frozen, BUDGET)
        tally = searcher.tally(COUNTED)
        precision: Precision = "exact" if tally.edge is None else "at_least"
        walk = walk_of(searcher.compiler, searcher.base, searcher.query, "id", True)
        assert walk is not None
        jobs = searcher.walk(walk, SPLIT).jobs
        return self._made(rule, searcher, jobs, Counter(tally.counts), precision, str(query), max_id, 0)

    def _made(
        self,
        rule: Rule,
        searcher: Searcher,
        jobs: Sequence[Facts],
        counts: Counter[JobState],
        precision: Precision,
        query: str | None,
        max_id: int,
        missing: int,
    ) -> Preview:
        total = sum(counts.values())
        fit = sum(count for state, count in counts.items() if state in rule.states)
        fitting = [job for job in jobs if job.state in rule.states]
        stops = rule.action == "cancel" and bool(counts[JobState.EXECUTING])
        return Preview(
            action=rule.action,
            query=query,
            max_id=max_id,
            total=Count(total, precision),
            will_change=Count(fit, precision),
            by_state={state: counts[state] for state in JobState if counts[state]},
            by_queue=dict(Counter(job.queue for job in fitting).most_common(20)),
            by_worker=dict(Counter(job.worker for job in fitting).most_common(20)),
            skips=_skips(rule, counts, missing),
            samples=tuple(summary(job, searcher.around) for job in fitting[:SAMPLES]),
            type_count=rule.action == "delete" or stops or total > MANY,
            words=_words(rule, Count(fit, precision)),
        )


def _skips(rule: Rule, counts: Counter[JobState], missing: int) -> tuple[Skip, ...]:
    found = [
        Skip(state, counts[state], _plural(counts[state], refusal(rule.action, state)))
        for state in JobState
        if counts[state] and state not in rule.states
    ]
    if missing:
        found.append(Skip(None, missing, _plural(missing, "is not here (any more)")))
    return tuple(found)


def _plural(count: int, reason: str) -> str:
    if count != 1 and reason.startswith("is "):
        reason = "are " + reason[3:]
    return f"{count:,} {reason}"


def _words(rule: Rule, count: Count) -> str:
    name = rule.action.replace("_", " ")
    return f"{name} {count.text} job{'' if count.value == 1 else 's'}: each {rule.effect}"
