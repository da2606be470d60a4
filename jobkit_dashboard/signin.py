"""The login of a dashboard that stands alone: one-time links, and passwords where there is a file of them.

Invariant: a session's id is known to one browser only; it is new at every login and dead after logging out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from jobkit.hookspecs import Actor
from jobkit_dashboard.passwords import Users
from jobkit_dashboard.store import LINK_LIFE, Store

if TYPE_CHECKING:
    from jobkit_dashboard.app import Dashboard

__all__ = ["SignIn", "new_link"]


class SignIn:
    """Sessions of our own. `users`: who may come in by password; without them only links open the door."""

    def __init__(self, users: Users | None = None) -> None:
        self.users = users

    def actor(self, dash: Dashboard, connection: HTTPConnection) -> Actor | None:
        """Whose session the request's cookie names."""
        secret = session_secret(dash, connection)
        if secret is None:
            return None
        polling = connection.scope["path"].endswith("/-/live")
        stored = dash.store.find("session", secret, touch=not polling)
        return None if stored is None else stored.actor


def session_secret(dash: Dashboard, connection: HTTPConnection) -> str | None:
    """The session's secret in the request's cookies."""
    request = connection.scope["jobkit.request"]
    return connection.cookies.get(dash.cookie_name("session", request))


def new_link(store: Store, actor: Actor | None = None) -> str:
    """The secret of a link that works once, within ten minutes."""
    who = actor or Actor("local", "local operator", "web", frozenset({"admin"}))
    return store.make("link", who, LINK_LIFE)
