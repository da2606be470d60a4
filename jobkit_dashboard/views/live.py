"""The live refresh and the completion: small answers for scripts.

Invariant: a refresh checks all that the page itself checks, and says nothing where nothing has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from jobkit.admin.errors import NotFound
from jobkit_dashboard.context import Context
from jobkit_dashboard.guard.limits import Refused
from jobkit_dashboard.render import stamp
from jobkit_dashboard.replies import Json, Page, Raw, Reply, Unchanged
from jobkit_dashboard.request import Fields
from jobkit_dashboard.routing import Match, Route

__all__ = ["TOKEN", "live", "suggest"]

TOKEN: Final = "x-jobkit-token"
_LONG: Final = 4_096
_SLOW: Final = 0.1
"""A page that takes longer than that is drawn behind the poll's back: the next poll brings it."""
_SPARE: Final = 3
"""A page that is slow to draw takes at most a third of the time."""
_GOOD: Final = 10.0
"""Seconds after which a page is drawn anew though its rows are what they were: time changes some of it."""


@dataclass(slots=True)
class _Drawn:
    """A page's changed parts, drawn when the first viewer needs them."""

    page: Page
    token: str
    still: Callable[[], bool] | None = None
    made: float = 0.0
    html: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


def live(ctx: Context) -> Reply:
    """`R/-/live?page=...&since=...`: 204 where nothing has changed, else the page's parts."""
    there = _page_context(ctx)
    prefs = there.prefs
    key = (
        "live", ctx.query.get("page"), ctx.query.get("_rows"), ctx.query.get("_after"), there.audience, prefs,
        ctx.request.root,
    )  # fmt: skip
    drawn = ctx.dash.samples.get(
        key, lambda: _draw(there), spare=_SPARE, behind=_SLOW, still=lambda drawn: _unchanged(there, drawn)
    ).value
    if drawn.token == ctx.query.get("since"):
        return Unchanged()
    with drawn.lock:
        if drawn.html is None:
            drawn.html = ctx.dash.renderer.regions(drawn.page, there)
    return Raw(ctx.dash.renderer.signed(drawn.html, ctx), "text/html", headers={TOKEN: drawn.token})


def _page_context(ctx: Context) -> Context:
    """The page that is refreshed, as its own viewer would ask for it. Raises NotFound, NotPermitted."""
    page = ctx.query.get("page", "")
    parts = urlsplit(page[:_LONG])
    root = ctx.request.root
    if parts.scheme or parts.netloc or not parts.path.startswith(f"{root}/"):
        raise NotFound("there is no such page to refresh")
    found = ctx.dash.router.find("GET", parts.path[len(root) :])
    if not isinstance(found, Match) or not found.route.live:
        raise NotFound("this page is not refreshed")
    try:
        pairs = parse_qsl(parts.query, max_num_fields=100)
    except ValueError:
        raise Refused(400, "too many fields") from None
    pairs += [(name, ctx.query[name]) for name in ("_rows", "_after") if name in ctx.query]
    there = Context(
        ctx.dash, ctx.request, ctx.actor, values=found.values, query=Fields(pairs), path=parts.path[len(root) :],
        live=True, form_token=ctx.form_token,
    )  # fmt: skip
    there.require(found.route.permission)
    return there


def _route(there: Context) -> Route:
    found = there.dash.router.find("GET", there.path)
    assert isinstance(found, Match)
    return found.route


def _draw(there: Context) -> _Drawn:
    route = _route(there)
    # Before the page is read, so that what changes meanwhile is noticed.
    still = None if route.mark is None else route.mark(there)
    page = route.handler(there)
    if not isinstance(page, Page):
        raise NotFound("this page is not refreshed")
    return _Drawn(page, stamp(page.token), still, there.app.clock.monotonic())


def _unchanged(there: Context, drawn: _Drawn) -> bool:
    """Whether the page would show the same again, found out without drawing it."""
    if drawn.still is None or there.app.clock.monotonic() - drawn.made > _GOOD:
        return False
    return drawn.still()


def suggest(ctx: Context) -> Reply:
    """`R/-/suggest?q=...&at=...`: completions at a place of a query."""
    text = ctx.query.get("q", "")[:1_000]
    at = ctx.query.get("at", "")
    position = int(at) if at.isdecimal() and len(at) < 5 else None
    found = ctx.reads.suggest(text, position)
    items = [
        {"text": s.text, "start": s.start, "length": s.length, "kind": s.kind, "hint": s.hint} for s in found
    ]
    return Json({"items": items})
