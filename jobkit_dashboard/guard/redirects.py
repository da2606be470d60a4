"""Places to go back to that come in with a request.

Invariant: what is returned lies under our own root on this very origin, whatever was asked for.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["safe_target"]

_FORBIDDEN: Final = re.compile(r"[\x00-\x20\\\x7f-\x9f\u2028\u2029]")


def safe_target(text: str | None, root: str) -> str:
    """The path to go to: `text` where it is a plain path under `root`, else the root itself."""
    home = f"{root}/"
    if not text or len(text) > 4096:
        return home
    return text if _plain(text, home) and _plain(unquote(text.partition("?")[0]), home) else home


def _plain(text: str, home: str) -> bool:
    if _FORBIDDEN.search(text) or not text.startswith("/") or text.startswith("//"):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    if parts.scheme or parts.netloc or "//" in parts.path:
        return False
    segments = parts.path.split("/")
    return (
        ".." not in segments
        and "." not in segments
        and (parts.path.startswith(home) or parts.path == home[:-1])
    )
