"""The dashboard in a WSGI program: Flask, Django under WSGI, or any other.

Needs the extra `wsgi`. Invariant: the dashboard asks nothing of the server that a plain request does not give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from jobkit_dashboard.app import Dashboard

__all__ = ["mount", "wrap"]

WSGI: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def wrap(dashboard: Dashboard) -> WSGI:
    """The dashboard as a WSGI application; its requests run on an event loop in a thread of its own."""
    from a2wsgi import ASGIMiddleware

    app: WSGI = ASGIMiddleware(dashboard.asgi)  # type: ignore[arg-type, assignment]
    return app


def mount(app: WSGI, path: str, dashboard: Dashboard) -> WSGI:
    """A WSGI application that sends what lies at and below `path` to the dashboard, and the rest to `app`."""
    prefix = path.rstrip("/")
    inner = wrap(dashboard)

    def dispatch(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        asked: str = environ.get("PATH_INFO", "")
        if asked != prefix and not asked.startswith(f"{prefix}/"):
            return app(environ, start_response)
        moved = {
            **environ,
            "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + prefix,
            "PATH_INFO": asked[len(prefix) :],
        }
        return inner(moved, start_response)

    return dispatch
