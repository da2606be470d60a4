"""Forgery checks: which writing requests may have come from a page of ours.

Two checks that keep no state on the server, so that several processes need no common secret: the browser's own
word on where the request comes from, and a token that stands in a cookie and in the form. Invariant: no request
that writes passes on a cookie alone.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

__all__ = [
    "FIELD",
    "SAFE_METHODS",
    "new_token",
    "origin_refusal",
    "same_origin",
    "token_refusal",
    "valid_token",
]

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
FIELD: Final = "_token"
"""The form field that repeats the cookie's token."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_PORTS: Final = {"http": 80, "https": 443}


def new_token() -> str:
    """256 bits from the system's generator."""
    return secrets.token_urlsafe(32)


def valid_token(text: str | None) -> bool:
    """Whether the text has the shape of a token of ours."""
    return text is not None and _TOKEN.fullmatch(text) is not None


def _origin(text: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(text)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or parts.username is not None:
        return None
    return parts.scheme, parts.hostname.lower(), port


def same_origin(origin: str, own: Collection[str]) -> bool:
    """Whether an Origin header names one of our own origins: scheme, host and port."""
    found = _origin(origin)
    return found is not None and any(found == _origin(candidate) for candidate in own)


def origin_refusal(headers: Mapping[str, str], own: Collection[str], *, bearer: bool) -> str | None:
    """Why a writing request is refused by where it says it comes from; None where it may pass."""
    cookie = "cookie" in headers
    if bearer and not cookie:
        return None
    site = headers.get("sec-fetch-site")
    if site is not None:
        return None if site in ("same-origin", "none") else "the request comes from another site"
    origin = headers.get("origin")
    if origin is not None:
        return None if same_origin(origin, own) else "the request comes from another origin"
    if cookie or not bearer:
        return "the request does not say where it comes from"
    return None


def token_refusal(cookie: str | None, field: str | None) -> str | None:
    """Why a form is refused by its token; None where cookie and field agree."""
    if cookie is None or field is None or not valid_token(cookie):
        return "the form's token is missing; open the page again"
    return (
        None
        if hmac.compare_digest(cookie, field)
        else "the form's token is not this browser's; open the page again"
    )
