"""Personal settings, kept in one cookie.

Invariant: every value comes from a closed list; whatever else the cookie holds is the default.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, tzinfo
from functools import cache
from typing import Final
from urllib.parse import parse_qsl, urlencode

from jobkit_dashboard.words import say

__all__ = ["CHOICES", "COLUMNS", "DEFAULT_COLUMNS", "Prefs"]

CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "theme": ("system", "light", "dark", "contrast"),
    "times": ("relative", "absolute"),
    "refresh": ("2", "0", "1", "5", "15", "30", "60"),
    "density": ("normal", "dense"),
    "keys": ("on", "off"),
    "rail": ("open", "closed"),
}
"""The first of each is the default."""

COLUMNS: Final[dict[str, str]] = {
    "id": say("Id"),
    "state": say("State"),
    "worker": say("Worker"),
    "args": say("Args"),
    "queue": say("Queue"),
    "attempt": say("Attempt"),
    "time": say("Time"),
    "duration": say("Duration"),
    "tags": say("Tags"),
    "priority": say("Priority"),
    "node": say("Node"),
    "error": say("Error"),
    "wait": say("Wait"),
    "inserted": say("Inserted"),
    "scheduled": say("Scheduled"),
    "cron": say("Cron"),
}
DEFAULT_COLUMNS: Final = ("state", "worker", "args", "queue", "attempt", "time", "duration")


@cache
def zones() -> frozenset[str]:
    """All names of time zones."""
    return frozenset(zoneinfo.available_timezones())


def columns_from(text: str | None) -> tuple[str, ...]:
    """Known columns in the order given; the default where there are none."""
    found = tuple(dict.fromkeys(name for name in (text or "").split(",") if name in COLUMNS))
    return found or DEFAULT_COLUMNS


@dataclass(frozen=True, slots=True)
class Prefs:
    """One person's settings."""

    theme: str = "system"
    times: str = "relative"
    refresh: str = "2"
    density: str = "normal"
    keys: str = "on"
    rail: str = "open"
    zone: str = "UTC"
    columns: tuple[str, ...] = DEFAULT_COLUMNS

    @property
    def tz(self) -> tzinfo:
        """The zone of times shown and typed."""
        return UTC if self.zone == "UTC" else zoneinfo.ZoneInfo(self.zone)

    def changed(self, given: Mapping[str, str]) -> Prefs:
        """With those of the given values that are on their lists."""
        values: dict[str, object] = {
            name: given[name] for name, choices in CHOICES.items() if given.get(name) in choices
        }
        if given.get("zone") in zones():
            values["zone"] = given["zone"]
        if "columns" in given:
            values["columns"] = columns_from(given["columns"])
        return replace(self, **values)  # type: ignore[arg-type]

    @classmethod
    def read(cls, cookie: str | None) -> Prefs:
        """From a cookie's value."""
        if not cookie or len(cookie) > 1000:
            return cls()
        try:
            pairs = dict(parse_qsl(cookie, max_num_fields=20))
        except ValueError:
            return cls()
        return cls().changed(pairs)

    def cookie(self) -> str:
        """What differs from the defaults, for the cookie."""
        default, values = Prefs(), {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != getattr(default, field.name):
                values[field.name] = ",".join(value) if isinstance(value, tuple) else value
        return urlencode(values)
