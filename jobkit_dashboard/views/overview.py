"""The overview: is it healthy, and if not, what is to be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from jobkit.admin.errors import AdminError, NotPermitted
from jobkit.admin.views import Count, Facets, FacetValue, StateCounts
from jobkit.jobs import JobState
from jobkit_dashboard.cache import Sample
from jobkit_dashboard.context import Context
from jobkit_dashboard.health import Checked, health
from jobkit_dashboard.replies import Page
from jobkit_dashboard.views.jobs import COSTLY
from jobkit_dashboard.words import say

__all__ = ["overview_page"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tile:
    """One number with where it leads."""

    title: str
    text: str
    path: str
    params: dict[str, str]
    note: str = ""
    tone: str = ""


def overview_page(ctx: Context) -> Page:
    """`R/`."""
    samples, audience = ctx.dash.samples, ctx.audience

    def sample(permission: str, name: str, read: Callable[[], T], least: float = 1.0) -> Sample[T] | None:
        return _if(ctx, permission, lambda: samples.get((name, audience), read, least=least, behind=COSTLY))

    checked = samples.get(("health", audience), lambda: health(ctx), least=5.0, behind=0.0)
    queues = _value(sample("view.queues", "queues", ctx.reads.queues)) or ()
    nodes = _value(sample("view.nodes", "nodes", ctx.reads.nodes)) or ()
    cron = _value(sample("view.cron", "cron", ctx.reads.cron, 2.0)) or ()
    counts = _if(
        ctx,
        "view.jobs",
        lambda: samples.get(("states", audience, ""), lambda: ctx.reads.states(""), behind=COSTLY),
    )
    failed = (
        _value(sample("view.jobs", "failing", lambda: ctx.reads.jobs("is:failing", limit=25).jobs[:5])) or ()
    )
    audit = _if(ctx, "view.audit", lambda: ctx.reads.audit(limit=5).entries) or ()
    upcoming = sorted((e for e in cron if e.next_run is not None), key=lambda e: e.next_run or ctx.now)[:5]
    capacity = sum(node.capacity for node in nodes if not node.stale)
    recent = _value(sample("view.jobs", "recent", lambda: _recent(ctx), 5.0))
    tiles = _tiles(counts.value, capacity, recent) if counts is not None else []
    failing = _value(
        sample("view.jobs", "failing workers", lambda: ctx.reads.facets("is:failing", sample=500), 10.0)
    )
    return Page(
        "overview.html",
        say("Overview"),
        {
            "checked": checked.value,
            "verdict": _verdict(checked.value),
            "tiles": tiles,
            "counts_age": samples.age(counts) if counts is not None else None,
            "queues": queues[:8],
            "more_queues": max(len(queues) - 8, 0),
            "upcoming": upcoming,
            "failed": failed,
            "entries": audit,
            "failing_workers": _workers(failing),
            "failing_sample": failing.sample if failing is not None else 0,
            "steps": _steps(ctx, bool(nodes), counts.value if counts is not None else None),
        },
        regions={"overview": "overview/body.html"},
        token=(
            [(f.level, f.text) for f, _ in checked.value.findings],
            [(t.title, t.text) for t in tiles],
            [(q.name, q.status, q.executing, q.available.text, q.oldest_available_at) for q in queues[:8]],
            [(e.key, e.next_run) for e in upcoming],
            [(j.id, j.attempt, j.state) for j in failed],
            [e.id for e in audit],
        ),
        nav="overview",
    )


def _if(ctx: Context, permission: str, read: Callable[[], T]) -> T | None:
    """What this actor may see of it; a part that cannot be read does not keep the others from being shown."""
    if not ctx.may(permission):
        return None
    try:
        return read()
    except NotPermitted:
        return None
    except AdminError:
        if permission == "view.jobs":
            raise
        return None


def _value(sample: Sample[T] | None) -> T | None:
    return None if sample is None else sample.value


def _verdict(checked: Checked) -> tuple[str, str]:
    levels = {finding.level for finding, _ in checked.findings}
    if "broken" in levels:
        return "broken", say("Broken")
    return ("attention", say("Needs attention")) if "attention" in levels else ("ok", say("All is well"))


@dataclass(frozen=True, slots=True)
class Recent:
    """What ended lately, capped: within the last minute, and badly within the last hour."""

    finished: Count
    failed: Count


def _recent(ctx: Context) -> Recent:
    minute, hour = ctx.reads.states("finished:<1m"), ctx.reads.states("finished:<1h")
    return Recent(minute.total, hour.counts[JobState.DISCARDED])


def _workers(facets: Facets | None) -> tuple[FacetValue, ...]:
    """The five workers that fail most."""
    found = facets.facets if facets is not None else ()
    return next((facet.values[:5] for facet in found if facet.qualifier == "worker"), ())


def _tiles(states: StateCounts, capacity: int, recent: Recent | None) -> list[Tile]:
    def tile(state: JobState, note: str = "", tone: str = "") -> Tile:
        count = states.counts[state]
        return Tile(
            say(state.value.capitalize()),
            count.text,
            "/jobs",
            {"state": state.value},
            note,
            tone if count.value else "",
        )

    return [
        tile(
            JobState.EXECUTING,
            say("of {count} slots", count=f"{capacity:,}") if capacity else say("no node is running"),
        ),
        tile(JobState.AVAILABLE, say("waiting now")),
        tile(JobState.SCHEDULED, say("for later")),
        tile(JobState.RETRYABLE, say("failed, will be tried again"), "amber"),
        tile(
            JobState.DISCARDED,
            say("failed for good")
            if recent is None
            else say("{count} in the last hour", count=recent.failed.text),
            "red",
        ),
        tile(
            JobState.COMPLETED,
            say("kept until pruned")
            if recent is None
            else say("{count} finished in the last minute", count=recent.finished.text),
        ),
    ]


def _steps(ctx: Context, any_node: bool, states: StateCounts | None) -> list[tuple[str, str, bool]]:
    """What is left to do on a first run; empty once all is done."""
    any_job = states is not None and states.total.value > 0
    steps = [
        (say("Make the tables"), "jobkit migrate", True),
        (say("Run a node"), "jobkit run", any_node),
        (say("Enqueue a job"), "jobkit enqueue WORKER '{}'", any_job),
    ]
    return [] if all(done for _, _, done in steps) else steps
