"""What a handler works with: who asks, what was sent, and the two doors to the database.

Invariant: a handler reads through `reads` and writes through `actions`, both bound to the actor of this request.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from jobkit.admin.access import allowed
from jobkit.admin.actions import Actions
from jobkit.admin.errors import NotPermitted
from jobkit.admin.reads import Reads
from jobkit.hookspecs import Actor, Resource
from jobkit_dashboard.guard.redirects import safe_target
from jobkit_dashboard.prefs import Prefs
from jobkit_dashboard.request import Fields, Incoming

if TYPE_CHECKING:
    from jobkit_dashboard.app import Dashboard

__all__ = ["NOBODY", "Context"]

NOBODY = Actor("nobody", "", "web")


class Context:
    """One request of one actor. `values` is what the route took from the path; `live` says that a refresh asks."""

    def __init__(
        self,
        dash: Dashboard,
        request: Incoming,
        actor: Actor,
        *,
        values: dict[str, str] | None = None,
        query: Fields | None = None,
        path: str | None = None,
        live: bool = False,
        form_token: str = "",
    ) -> None:
        self.dash = dash
        self.app = dash.core
        self.request = request
        self.actor = actor
        self.values = values or {}
        self.query = request.query if query is None else query
        self.path = request.path if path is None else path
        self.live = live
        self.form_token = form_token
        self.form = request.form
        self.now: datetime = self.app.clock.now()
        self._may: dict[str, bool] = {}

    @cached_property
    def prefs(self) -> Prefs:
        """The person's settings."""
        return Prefs.read(self.request.cookies.get(self.dash.cookie_name("prefs", self.request)))

    @cached_property
    def reads(self) -> Reads:
        """What this actor may see."""
        return Reads(self.app, self.actor)

    @cached_property
    def actions(self) -> Actions:
        """What this actor may do."""
        return Actions(self.app, self.actor, request_id=self.request.request_id)

    @property
    def read_only(self) -> bool:
        """Whether nothing may be changed here, by anybody."""
        return self.dash.read_only

    def may(self, permission: str) -> bool:
        """Whether to offer it: the actor has the permission, and this dashboard is not read-only."""
        if self.read_only and not permission.startswith("view."):
            return permission == "jobs.export" and self._permitted(permission)
        return self._permitted(permission)

    def may_any(self, *permissions: str) -> bool:
        """Whether to offer at least one of them."""
        return any(map(self.may, permissions))

    def require(self, permission: str) -> None:
        """Raises NotPermitted."""
        if not self._permitted(permission):
            raise NotPermitted(permission)

    def _permitted(self, permission: str) -> bool:
        if permission not in self._may:
            kind = permission.rpartition(".")[0].removesuffix("s")
            self._may[permission] = allowed(self.app, self.actor, permission, Resource(kind))
        return self._may[permission]

    @property
    def audience(self) -> str:
        """Those who see the same: by roles, or by person where plugins decide person by person."""
        has, roles = self.app.registry.has, ",".join(sorted(self.actor.roles))
        if has("jobkit_row_scope") or has("jobkit_authorize"):
            return f"{roles} of {self.actor.id}"
        return roles

    # -- links

    def url(self, path: str, /, **params: object) -> str:
        """A link below our root; empty parameters are left out, tuples repeat."""
        return self.request.root + quote(path, safe="/~:@!$&'()*+,;=-._") + query_string(params)

    def here(self, /, **changes: object) -> str:
        """This page with other parameters; None takes one away."""
        params: dict[str, object] = {name: self.query.all(name) for name in self.query}
        for passing in ("did", "op", "plugin", "n", "_rows", "_after"):
            params.pop(passing, None)
        params.update(changes)
        return self.request.root + quote(self.path) + query_string(params)

    def back(self, given: str | None, otherwise: str) -> str:
        """A place to go back to that came in with a form, if it lies under our root."""
        root = self.request.root
        found = safe_target(given, root)
        return found if given and found == given else root + otherwise


def query_string(params: dict[str, object]) -> str:
    """`?a=1&b=2`, or nothing."""
    pairs = [(name, str(value)) for name, given in params.items() for value in _each(given)]
    return "?" + urlencode(pairs, quote_via=quote, errors="replace") if pairs else ""


def _each(given: object) -> Iterable[object]:
    if isinstance(given, (list, tuple)):
        return given
    return () if given is None or given == "" else (given,)
