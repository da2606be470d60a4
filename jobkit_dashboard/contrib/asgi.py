"""The dashboard in an ASGI program that has no `Mount` of its own, such as Django's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from jobkit_dashboard.app import Dashboard

__all__ = ["mount"]

Message: TypeAlias = MutableMapping[str, Any]
ASGI: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


def mount(app: ASGI, path: str, dashboard: Dashboard) -> ASGI:
    """An ASGI application that sends what lies at and below `path` to the dashboard, and the rest to `app`."""
    prefix = path.rstrip("/")

    async def dispatch(scope: Message, receive: Any, send: Any) -> None:
        asked = scope.get("path", "")
        below = asked == prefix or asked.startswith(f"{prefix}/")
        if scope["type"] in ("http", "websocket") and below:
            await dashboard.asgi({**scope, "root_path": scope.get("root_path", "") + prefix}, receive, send)
        else:
            await app(scope, receive, send)

    return dispatch
