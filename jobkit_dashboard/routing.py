"""The route table: every address with its permission.

Invariant: a route without a permission cannot be made; a route that writes answers POST only, and does not exist in a
read-only dashboard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from jobkit_dashboard.context import Context
    from jobkit_dashboard.replies import Reply

__all__ = ["PUBLIC", "SIGNED_IN", "Handler", "Match", "Route", "Router"]

PUBLIC: Final = "public"
"""Open to whoever passes the Host check: login, style sheets, health."""
SIGNED_IN: Final = "signed in"
"""Open to every actor: personal settings, logging out."""

Handler: TypeAlias = "Callable[[Context], Reply]"
_PART: Final = re.compile(r"\{(\w+)(?::(int|rest))?\}")
_KINDS: Final = {None: r"[^/]{1,200}", "int": r"[0-9]{1,19}", "rest": r".{0,500}"}


@dataclass(frozen=True, slots=True)
class Route:
    """One address and method.

    `writes`: changes what belongs to jobkit; `live`: its page can be refreshed in place; `search`: counts against the
    number of searches at once; `large`: takes job args, so its body may be 1 MiB; `mark`: gives what tells, more
    cheaply than the page, whether the page would still show the same.
    """

    method: Literal["GET", "POST"]
    pattern: str
    permission: str
    handler: Handler
    writes: bool = False
    live: bool = False
    search: bool = False
    large: bool = False
    api: bool = False
    mark: Callable[[Context], Callable[[], bool]] | None = None

    def __post_init__(self) -> None:
        """Refuse a route that could be reached without anybody having said who may; raises ValueError."""
        named = self.permission in (PUBLIC, SIGNED_IN) or re.fullmatch(
            r"[a-z_]+(\.[a-z0-9_]+)+", self.permission
        )
        if not named:
            raise ValueError(f"{self.method} {self.pattern} declares no permission: {self.permission!r}")
        if self.writes and self.method != "POST":
            raise ValueError(f"{self.method} {self.pattern} writes, so it must be a POST")


@dataclass(frozen=True, slots=True)
class Match:
    """A route with what its pattern took from the path."""

    route: Route
    values: dict[str, str]


class Router:
    """Finds routes by method and path."""

    def __init__(self, routes: Iterable[Route], *, read_only: bool) -> None:
        self.routes: Sequence[Route] = tuple(r for r in routes if not (read_only and r.writes))
        self._compiled = [(_compiled(route.pattern), route) for route in self.routes]

    def find(self, method: str, path: str) -> Match | frozenset[str]:
        """The route, or the methods that this path has."""
        asked = "GET" if method == "HEAD" else method
        allowed: set[str] = set()
        for pattern, route in self._compiled:
            found = pattern.fullmatch(path)
            if found is not None and route.method == asked:
                return Match(route, found.groupdict())
            if found is not None:
                allowed |= {"GET", "HEAD"} if route.method == "GET" else {"POST"}
        return frozenset(allowed)


def _compiled(pattern: str) -> re.Pattern[str]:
    out, at = "", 0
    for part in _PART.finditer(pattern):
        out += re.escape(pattern[at : part.start()]) + f"(?P<{part[1]}>{_KINDS[part[2]]})"
        at = part.end()
    return re.compile(out + re.escape(pattern[at:]))
