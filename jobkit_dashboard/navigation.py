"""The navigation with its badges.

Invariant: badges come from one shared snapshot, never from counts of a page's own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Final

from jobkit.admin.errors import AdminError
from jobkit.errors import NotMigrated
from jobkit_dashboard.context import Context
from jobkit_dashboard.words import say

__all__ = ["Link", "navigation"]

log = logging.getLogger("jobkit.dashboard")

_PAGES: Final = (
    ("overview", say("Overview"), "/"),
    ("jobs", say("Jobs"), "/jobs"),
    ("queues", say("Queues"), "/queues"),
    ("nodes", say("Nodes"), "/nodes"),
    ("cron", say("Cron"), "/cron"),
    ("plugins", say("Plugins"), "/plugins"),
    ("audit", say("Audit"), "/audit"),
)


@dataclass(frozen=True, slots=True)
class Link:
    """One entry. `hint` says in words what the badge counts."""

    id: str
    label: str
    path: str
    badge: str = ""
    hint: str = ""


def navigation(ctx: Context) -> list[Link]:
    """What this actor may go to."""
    badges = _badges(ctx)
    links = [
        Link(name, label, path, *badges.get(name, ("", "")))
        for name, label, path in _PAGES
        if ctx.may(f"view.{name}")
    ]
    for brought in ctx.dash.nav:
        item = brought.item
        if ctx.may(item.permission):
            badge = ctx.dash.samples.get(
                ("badge", brought.plugin, item.id), partial(ctx.dash.extensions.badge, brought)
            )
            links.append(
                Link(brought.plugin, item.label, f"/x/{brought.plugin}/{item.path}", str(badge.value))
            )
    return links


def _badges(ctx: Context) -> dict[str, tuple[str, str]]:
    try:
        return ctx.dash.samples.get(
            ("badges", ctx.audience), lambda: _counted(ctx), least=5.0, behind=0.0
        ).value
    except (AdminError, NotMigrated):
        return {}  # the page itself says what is wrong
    except Exception:
        log.exception("the badges of the navigation could not be counted")
        return {}


def _counted(ctx: Context) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    if ctx.may("view.queues"):
        bad = sum(q.status in ("no nodes", "paused", "part paused") for q in ctx.reads.queues())
        found["queues"] = _badge(bad, say("paused or without nodes"))
    if ctx.may("view.nodes"):
        found["nodes"] = _badge(sum(node.stale for node in ctx.reads.nodes()), say("stale"))
    if ctx.may("view.cron"):
        entries = ctx.reads.cron(history=1)
        found["cron"] = _badge(
            sum(entry.status in ("missed", "invalid") for entry in entries), say("missed or invalid")
        )
    return found


def _badge(count: int, hint: str) -> tuple[str, str]:
    return (str(count), hint) if count else ("", "")
