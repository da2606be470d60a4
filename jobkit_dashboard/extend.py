"""What plugins give to the dashboard; public for plugin authors, free of any web framework.

Invariant: values and callables only; nothing here is HTML. Pages and panels are drawn by templates of the plugin's
own, with autoescape, or as plain rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from jobkit.hookspecs import Actor

if TYPE_CHECKING:
    from jobkit.admin.reads import Reads
    from jobkit.admin.views import JobDetail

__all__ = [
    "Action", "Asset", "GoTo", "NavItem", "Panel", "PluginContext", "PluginPage", "PluginRoute", "RouteReply",
]  # fmt: skip

_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PATH: Final = re.compile(r"(?:[a-z0-9_-]+(?:/[a-z0-9_-]+)*)?")
_PERMISSION: Final = re.compile(r"[a-z_]+(?:\.[a-z0-9_]+)+")


def _check(what: str, value: str, pattern: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{what} {value!r} does not match {pattern.pattern}")


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a plugin's page, panel or action gets: who asks, what they may read, and what they sent.

    `query` and `form` hold the last value of each field. `url(path, **params)` makes a link into the dashboard.
    """

    plugin: str
    actor: Actor
    reads: Reads
    now: datetime
    request_id: str
    url: Callable[..., str]
    may: Callable[[str], bool]
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NavItem:
    """A link in the navigation to a page of the plugin (`path` below `R/x/PLUGIN/`).

    `badge` gives a short text or None; it must be cheap, and is asked at most once a second.
    """

    id: str
    label: str
    permission: str
    path: str = ""
    order: int = 100
    badge: Callable[[], str | None] | None = None

    def __post_init__(self) -> None:
        """Check the values; raises ValueError."""
        _check("NavItem.id", self.id, _ID)
        _check("NavItem.path", self.path, _PATH)
        _check("NavItem.permission", self.permission, _PERMISSION)


@dataclass(frozen=True, slots=True)
class PluginPage:
    """What a page shows: a template of the plugin's (`templates/` of its package), or plain rows of name and value."""

    title: str
    data: Mapping[str, object] = field(default_factory=dict)
    template: str | None = None
    rows: Sequence[tuple[str, object]] = ()


@dataclass(frozen=True, slots=True)
class GoTo:
    """After a POST: the path below `R/x/PLUGIN/` to go to."""

    path: str = ""


RouteReply: TypeAlias = PluginPage | GoTo


@dataclass(frozen=True, slots=True)
class PluginRoute:
    """A page under `R/x/PLUGIN/path`. The permission is mandatory; a POST has passed the forgery checks."""

    path: str
    handler: Callable[[PluginContext], RouteReply]
    permission: str
    methods: tuple[Literal["GET", "POST"], ...] = ("GET",)

    def __post_init__(self) -> None:
        """Check the values; raises ValueError."""
        _check("PluginRoute.path", self.path, _PATH)
        _check("PluginRoute.permission", self.permission, _PERMISSION)
        if not self.methods or not set(self.methods) <= {"GET", "POST"}:
            raise ValueError(f"PluginRoute.methods must be of GET and POST, not {self.methods!r}")


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel on a job's page. `data()` runs when it is drawn; without a template its mapping is shown as rows."""

    id: str
    title: str
    permission: str
    data: Callable[[], Mapping[str, object]]
    template: str | None = None
    order: int = 100

    def __post_init__(self) -> None:
        """Check the values; raises ValueError."""
        _check("Panel.id", self.id, _ID)
        _check("Panel.permission", self.permission, _PERMISSION)


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do with one job. `run(ctx, job)` does it and returns a sentence about the result.

    It asks first where `confirm` is a sentence.
    """

    id: str
    label: str
    permission: str
    run: Callable[[PluginContext, JobDetail], str]
    confirm: str = ""

    def __post_init__(self) -> None:
        """Check the values; raises ValueError."""
        _check("Action.id", self.id, _ID)
        _check("Action.permission", self.permission, _PERMISSION)


@dataclass(frozen=True, slots=True)
class Asset:
    """A style sheet or an ES module, a file of the plugin's package, served from our own origin under a hash."""

    kind: Literal["css", "js-module"]
    package: str
    path: str
