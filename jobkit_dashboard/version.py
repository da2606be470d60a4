"""The version of the distribution that the dashboard comes with."""

from __future__ import annotations

from functools import cache

__all__ = ["version"]


@cache
def version() -> str:
    """As installed."""
    from importlib_metadata import PackageNotFoundError
    from importlib_metadata import version as found

    try:
        return found("jobkit-queue")
    except PackageNotFoundError:
        return "unknown"
