"""Whether all is well: the findings of the same checks as `jobkit doctor`.

Invariant: a check that fails is a finding, never an error of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from jobkit.admin.doctor import diagnose
from jobkit.admin.guard import read_only
from jobkit.core import Core
from jobkit.hookspecs import Finding

if TYPE_CHECKING:
    from jobkit_dashboard.context import Context

__all__ = ["Checked", "health", "reachable"]


_PAGES: Final = {
    "clocks": "/nodes",
    "nodes": "/nodes",
    "queues": "/queues",
    "workers": "/jobs?state=available",
    "paused": "/queues?status=paused",
    "stuck": "/jobs?q=is:orphaned,stuck",
    "cron": "/cron",
    "settings": "/settings",
}
"""Where a check's findings can be looked at."""


@dataclass(frozen=True, slots=True)
class Checked:
    """All findings, the worst first, and when they were made."""

    findings: tuple[tuple[Finding, str], ...]
    """Each with the page that shows more of it; empty where there is none."""
    passed: int
    at: datetime


def reachable(app: Core) -> bool:
    """Whether the database answers. Raises what a read raises."""
    with read_only(app, timedelta(seconds=1)) as conn:
        return conn.exec_driver_sql("SELECT 1").scalar() == 1


def health(ctx: Context) -> Checked:
    """What is not well, worst first."""
    found = [
        (finding, _PAGES.get(diagnosis.id, ""))
        for diagnosis in diagnose(ctx.app)
        for finding in diagnosis.findings
    ]
    order = {"broken": 0, "attention": 1, "ok": 2}
    bad = sorted((pair for pair in found if pair[0].level != "ok"), key=lambda pair: order[pair[0].level])
    return Checked(tuple(bad), len(found) - len(bad), ctx.now)
