"""Jobs as files: JSON lines or CSV, redacted like everything else that is shown.

Invariant: bounded in number, read page by page, and harmless when a spreadsheet opens it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Final

from jobkit.admin.errors import AdminError, QueryRefused
from jobkit.admin.views import AuditEntry, JobSummary
from jobkit_dashboard.context import Context
from jobkit_dashboard.render import to_json
from jobkit_dashboard.replies import Download, Reply
from jobkit_dashboard.text import visible
from jobkit_dashboard.views.jobs import list_query

__all__ = ["CSV_COLUMNS", "cell", "export_audit", "export_jobs"]

MOST: Final = 100_000
CSV_COLUMNS: Final = (
    "id", "state", "queue", "worker", "args", "tags", "priority", "attempt", "max_attempts", "node", "error",
    "inserted_at", "scheduled_at", "attempted_at", "finished_at", "cron",
)  # fmt: skip


def cell(value: object) -> str:
    """A value for CSV: nothing that a spreadsheet would take for a formula."""
    text = "" if value is None else value if isinstance(value, str) else str(value)
    formula = text[:1] in ("=", "+", "-", "@", "\t", "\r")
    return ("'" if formula else "") + visible(text)


def export_jobs(ctx: Context) -> Reply:
    """`R/jobs/export`: what the list shows, to its end or 100,000 jobs."""
    _, query = list_query(ctx)
    parsed = ctx.reads.parse(query)
    if parsed.problems:
        raise QueryRefused(parsed.problems)
    bound = ctx.query.get("max_id", "")
    highest = int(bound) if bound.isdecimal() and len(bound) < 20 else None
    if ctx.query.text("format") == "csv":
        return Download("jobs.csv", "text/csv", lambda: _csv(_jobs(ctx, query, highest)))
    return Download(
        "jobs.jsonl",
        "application/x-ndjson",
        lambda: (to_json(job) + "\n" for job in _jobs(ctx, query, highest)),
    )


def _jobs(ctx: Context, query: str, highest: int | None) -> Iterator[JobSummary]:
    cursor, count = None, 0
    while count < MOST:
        try:
            page = ctx.reads.jobs(query, sort="id", descending=True, cursor=cursor, limit=200)
        except AdminError:
            return  # the headers are out: a short file is all that can be said
        for job in page.jobs:
            if highest is None or job.id <= highest:
                count += 1
                yield job
        cursor = page.next
        if cursor is None:
            return


def _csv(jobs: Iterator[JobSummary]) -> Iterator[str]:
    yield _line(CSV_COLUMNS)
    for job in jobs:
        row = [_plain(job, name) for name in CSV_COLUMNS]
        yield _line(row)


def _plain(job: JobSummary, name: str) -> object:
    value = getattr(job, name)
    if name == "state":
        return job.state.value
    if name == "tags":
        return ", ".join(job.tags)
    return value.isoformat() if hasattr(value, "isoformat") else value


def _line(values: object) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow([cell(value) for value in values])  # type: ignore[attr-defined]
    return out.getvalue()


def export_audit(ctx: Context) -> Reply:
    """`R/audit/export`: audit rows as JSON lines, newest first."""
    return Download(
        "audit.jsonl", "application/x-ndjson", lambda: (to_json(entry) + "\n" for entry in _entries(ctx))
    )


def _entries(ctx: Context) -> Iterator[AuditEntry]:
    before, count = None, 0
    while count < MOST:
        page = ctx.reads.audit(before_id=before, limit=200)
        yield from page.entries
        count += len(page.entries)
        before = page.next
        if before is None:
            return
