"""Jobs that have to do with one: the one that it came from, the runs of its schedule around it, the one that holds its
unique key.

Invariant: what is read is read by key, a handful of rows; whatever would have to be searched for is a link instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobkit.admin.errors import AdminError
from jobkit.admin.views import JobDetail, JobSummary
from jobkit_dashboard.context import Context
from jobkit_dashboard.words import say

__all__ = ["Related", "related"]

_AROUND = 2
_RUNS = 30


@dataclass(frozen=True, slots=True)
class Related:
    """One kin: in words, the jobs, and the query that lists them all (empty: there are no others)."""

    title: str
    jobs: tuple[JobSummary, ...] = ()
    query: str = ""


def related(ctx: Context, job: JobDetail) -> list[Related]:
    """What is known to belong together with the job."""
    meta = job.meta if isinstance(job.meta, Mapping) else {}
    parent = _whole(meta.get("parent_id"))
    runs = _runs(ctx, job)
    known = _summaries(ctx, [*([parent] if parent else []), *runs])
    own = job.job.id
    found = [
        Related(say("Started by"), _those(known, [parent] if parent else [])),
        Related(say("Runs of its schedule around it"), _those(known, runs), _cron(job)),
        Related(say("Holds its unique key"), _holder(ctx, job)),
        Related(say("Jobs that it started"), query=f"meta.parent_id:{own} id:>{own}"),
    ]
    return [kin for kin in found if kin.jobs or kin.query]


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else None


def _cron(job: JobDetail) -> str:
    from jobkit_dashboard.text import term

    return term(job.job.cron, "cron") if job.job.cron else ""


def _runs(ctx: Context, job: JobDetail) -> list[int]:
    """The runs just before and after it, by the entry's own history."""
    if not job.job.cron or not ctx.may("view.cron"):
        return []
    try:
        entry = ctx.reads.cron_entry(job.job.cron, upcoming=0, history=_RUNS)
    except AdminError:
        return []
    ids = [run.job_id for run in entry.history if run.job_id is not None]
    if job.job.id not in ids:
        return []
    at = ids.index(job.job.id)
    return [found for found in ids[max(at - _AROUND, 0) : at + _AROUND + 1] if found != job.job.id]


def _holder(ctx: Context, job: JobDetail) -> tuple[JobSummary, ...]:
    """The job that keeps others with this key from being inserted, where it is another one."""
    from jobkit_dashboard.text import term

    # A job that has ended holds its key no longer, but remembers it.
    kept = job.meta.get("unique_key") if isinstance(job.meta, Mapping) else None
    key = job.unique_key or kept
    if not isinstance(key, str) or not key:
        return ()
    try:
        found = ctx.reads.jobs(term(key, "unique"), limit=1).jobs
    except AdminError:
        return ()
    return tuple(holder for holder in found if holder.id != job.job.id)


def _summaries(ctx: Context, ids: list[int]) -> Mapping[int, JobSummary]:
    return ctx.reads.summaries(ids) if ids else {}


def _those(known: Mapping[int, JobSummary], ids: list[int]) -> tuple[JobSummary, ...]:
    return tuple(known[job_id] for job_id in ids if job_id in known)
