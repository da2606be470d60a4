"""Whether a page of jobs would show anything new, without showing it.

Invariant: takes the very walk that the page takes, within the same scope and limits, but redacts, decodes and words
nothing, so that asking costs a fraction of the page. What it gives is only good for being compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobkit.admin._context import Context
from jobkit.admin._job_reads import MAX_IDS, PageRequest, _Pager
from jobkit.admin.query import Query
from jobkit.admin.views import JobPage
from jobkit.hookspecs import Resource

if TYPE_CHECKING:
    from jobkit.admin._cursor import Key
    from jobkit.admin._facts import Facts
    from jobkit.admin._search import Found

__all__ = ["page_stamp"]


def page_stamp(context: Context, request: PageRequest, held: Sequence[int] = ()) -> object:
    """Equal to an earlier one while the page's rows, the rows `held`, and the highest id are what they were.

    What only the time changes (a job becoming overdue) is not in it. Raises what reading the page raises.
    """
    context.require("view.jobs", Resource("job"))
    parsed = context.parse(request.query)
    if parsed.problems:
        return parsed.problems
    with context.reading() as conn:
        searcher = context.searcher(conn, parsed.query, request.budget)
        pager = _Passing(searcher, parsed.query, request)
        pager.page()
        kept = context.searcher(conn, Query()).by_ids(list(held)[:MAX_IDS]) if held else []
        return hash((pager.passed, tuple(map(_stamp, kept)), searcher.highest_id, searcher.around.live))


class _Passing(_Pager):
    """Goes where a page goes, and keeps the raw rows in place of what would be shown of them."""

    passed: object = None

    def _made(self, jobs: list[Facts], after: Key | None, before: Key | None, found: Found) -> JobPage:
        self.passed = (tuple(map(_stamp, jobs)), after, before)
        return JobPage((), None, None, "", self.walk.sort, self.walk.descending)


def _stamp(job: Facts) -> int:
    return hash(repr(tuple(job.row.values())))
