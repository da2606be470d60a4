"""The jobs before and after one in the list that it was opened from."""

from __future__ import annotations

from urllib.parse import parse_qsl

from jobkit.admin.errors import AdminError
from jobkit_dashboard.context import Context
from jobkit_dashboard.request import Fields
from jobkit_dashboard.views.jobs import page_request, read_page

__all__ = ["neighbours"]


def neighbours(ctx: Context, listed: str, job_id: int) -> tuple[int | None, int | None]:
    """Ids of the jobs above and below on the list's page; None at its ends, or where it is not on it any more."""
    _, _, query = listed.partition("?")
    try:
        fields = Fields(parse_qsl(query, max_num_fields=30))
    except ValueError:
        return None, None
    there = Context(ctx.dash, ctx.request, ctx.actor, query=fields)
    asked = page_request(there)
    try:
        found = read_page(ctx, asked)
    except AdminError:
        return None, None
    ids = [job.id for job in found.jobs]
    if job_id not in ids:
        return None, None
    at = ids.index(job_id)
    return (ids[at - 1] if at else None), (ids[at + 1] if at + 1 < len(ids) else None)
