"""jobkit_dashboard: web pages for jobkit, server-rendered and closed by default.

It is a plugin like any other: reads and actions come from `jobkit.admin`, and importing this package or its entry
module loads no web framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobkit_dashboard.app import Dashboard

__all__ = ["Dashboard"]


def __getattr__(name: str) -> object:
    if name == "Dashboard":
        from jobkit_dashboard.app import Dashboard

        return Dashboard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
