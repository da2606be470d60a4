"""Whether all is well: the findings of the same checks as `jobkit doctor`.

Invariant: a check that fails is a finding, never an error of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from jobkit.admin.doctor import diagnose
from jobkit.admin.guard import read_only
from jobkit.core import Core
from jobkit.hookspecs import Finding

if TYPE_CHECKING:
    from jobkit_dashboard.context import Context

__all__ = ["Checked", "health", "reachable"]


@dataclass(frozen=True, slots=True)
class Checked:
    """All findings, the worst first, and when they were made."""

    findings: tuple[Finding, ...]
    passed: int
    at: datetime


def reachable(app: Core) -> bool:
    """Whether the database answers. Raises what a read raises."""
    with read_only(app, timedelta(seconds=1)) as conn:
        return conn.exec_driver_sql("SELECT 1").scalar() == 1


def health(ctx: Context) -> Checked:
    """What is not well, worst first."""
    found = [finding for diagnosis in diagnose(ctx.app) for finding in diagnosis.findings]
    order = {"broken": 0, "attention": 1, "ok": 2}
    bad = sorted((f for f in found if f.level != "ok"), key=lambda f: order[f.level])
    return Checked(tuple(bad), len(found) - len(bad), ctx.now)
