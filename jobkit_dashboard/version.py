"""The versions of what runs here: of the distribution that the dashboard comes with, and of the tables."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from jobkit.errors import JobkitError

if TYPE_CHECKING:
    from jobkit_dashboard.context import Context

__all__ = ["schema_version", "version"]


def schema_version(ctx: Context) -> str:
    """The last step that the tables have had: `3`, or `?` where that cannot be told."""
    return ctx.dash.samples.get("schema", lambda: _schema(ctx), least=60.0).value


def _schema(ctx: Context) -> str:
    from jobkit.admin.guard import read_only
    from jobkit.storage.migrations import CORE, status

    try:
        with read_only(ctx.app, timedelta(seconds=1)) as conn:
            steps = status(conn, ctx.app.tables)
    except JobkitError:
        return "?"
    applied = [step.version for step in steps if step.name == CORE.name and step.applied_at is not None]
    return str(max(applied, default="?"))


@cache
def version() -> str:
    """As installed."""
    from importlib_metadata import PackageNotFoundError
    from importlib_metadata import version as found

    try:
        return found("jobkit-queue")
    except PackageNotFoundError:
        return "unknown"
