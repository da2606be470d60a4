"""Times that people type.

Invariant: what is no time is None; what has no zone is in the person's own.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from typing import Final

__all__ = ["parse_local", "parse_span"]

_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(s|m|h|d)?")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_local(text: str, zone: tzinfo) -> datetime | None:
    """`2026-11-30T14:00`, with or without seconds and zone."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)


def parse_span(text: str) -> timedelta | None:
    """`90`, `10s`, `5m`, `2h`, `7d`."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        return None
    return timedelta(seconds=float(found[1]) * _UNITS[found[2] or "s"])
