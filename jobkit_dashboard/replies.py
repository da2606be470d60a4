"""What handlers give back: plain values, made into HTTP in one place.

Invariant: no handler builds HTML or headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["Cookie", "Download", "Json", "Page", "Raw", "Redirect", "Reply", "Unchanged"]


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template with `data`.

    `regions` are the parts that the live refresh draws anew, name -> template; `token` stands for all that they show.
    """

    template: str
    title: str
    data: Mapping[str, object] = field(default_factory=dict)
    status: int = 200
    regions: Mapping[str, str] = field(default_factory=dict)
    token: object = None
    nav: str = ""
    prefs: str | None = None


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie to set; without a value it is removed."""

    kind: Literal["session", "form", "prefs"]
    value: str | None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Redirect:
    """303 to a path under our root, made by `Context.url`."""

    url: str
    cookies: tuple[Cookie, ...] = ()


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON document."""

    data: object
    status: int = 200


@dataclass(frozen=True, slots=True)
class Download:
    """A file to save; `chunks` is called once and read in a thread."""

    name: str
    media_type: str
    chunks: Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes as they are: static files, health, refreshed parts."""

    content: bytes | str
    media_type: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unchanged:
    """204: nothing to tell."""


Reply: TypeAlias = Page | Redirect | Json | Download | Raw | Unchanged
