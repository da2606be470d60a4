"""Where a plugin's documentation is, as its distribution says.

Invariant: only web addresses come out of here; metadata is text of others, and `javascript:` is one of the things that
it may hold. Nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

__all__ = ["docs_of", "web_address"]

_ORDER: Final = ("documentation", "docs", "doc", "homepage")
"""As labels are compared: letters and digits alone, in lower case."""
_LONGEST: Final = 500
_FORBIDDEN: Final = re.compile(r"[\s\x00-\x20\x7f-\x9f\\\"'<>`]")


def web_address(text: str) -> str | None:
    """The address if it is one of the web (http or https, a host, nobody's name in it), else None."""
    if len(text) > _LONGEST or not text.isascii() or _FORBIDDEN.search(text):
        return None
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return text if usable and "@" not in parts.netloc else None


@lru_cache(maxsize=256)
def docs_of(distribution: str) -> str | None:
    """The page that the metadata of an installed distribution calls its documentation, else its home page."""
    from importlib_metadata import PackageNotFoundError, metadata

    try:
        found = metadata(distribution)
        told = dict(_labelled(found.get_all("Project-URL") or []))
        told.setdefault("homepage", str(found.get("Home-page") or "").strip())
    except (PackageNotFoundError, ValueError, OSError):
        return None
    addresses = (web_address(told[label]) for label in _ORDER if label in told)
    return next((address for address in addresses if address), None)


def _labelled(lines: list[str]) -> Iterator[tuple[str, str]]:
    """`Documentation, https://…` as label and address."""
    for line in lines:
        label, _, address = str(line).partition(",")
        yield re.sub(r"[\W_]+", "", label).lower(), address.strip()
