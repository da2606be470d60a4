"""What a bulk operation keeps in its row: all that is needed to go on in another process.

Invariant: what `dumped` wrote `loaded` reads, also in a process of another version: unknown names are left
out, missing ones have their defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from jobkit.admin._job_actions import Order
from jobkit.admin._rules import RULES
from jobkit.admin.results import JobEdit

__all__ = ["Plan", "edit_values"]


@dataclass(slots=True)
class Plan:
    """What `params` keeps: all that is needed to go on in another process."""

    actor: dict[str, Any]
    scope: str = ""
    ids: list[int] | None = None
    edit: dict[str, Any] | None = None
    spread: float | None = None
    max_jobs: int | None = None
    reason: str = ""
    position: int | None = None
    """The id after which to go on; an index into `ids` where they are given."""
    counted: bool = False
    begun_at: str = ""

    @classmethod
    def loaded(cls, text: str) -> Plan:
        """From the row."""
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in json.loads(text).items() if name in known})

    def dumped(self) -> str:
        """For the row."""
        return json.dumps(asdict(self))

    def order(self, action: str, total: int) -> Order:
        """What to do to each job."""
        due: Callable[[int], datetime] | None = None
        if self.spread is not None:
            due = partial(_spread_due, datetime.fromisoformat(self.begun_at), self.spread, max(total, 1))
        return Order(RULES[action], _edit_from(self.edit), None, due)


def _spread_due(begin: datetime, seconds: float, total: int, place: int) -> datetime:
    """Evenly over the span, in the order of the ids."""
    return begin + timedelta(seconds=seconds * min(place / total, 1.0))


def _edit_from(values: dict[str, Any] | None) -> JobEdit | None:
    if values is None:
        return None
    at = values.get("scheduled_at")
    tags = values.get("tags")
    return JobEdit(
        **{
            **values,
            "scheduled_at": datetime.fromisoformat(at) if at else None,
            "tags": None if tags is None else tuple(tags),
            "add_tags": tuple(values.get("add_tags", ())),
            "remove_tags": tuple(values.get("remove_tags", ())),
        }
    )


def edit_values(edit: JobEdit) -> dict[str, Any]:
    return {
        **asdict(edit),
        "scheduled_at": edit.scheduled_at.isoformat() if edit.scheduled_at else None,
        "tags": None if edit.tags is None else list(edit.tags),
        "add_tags": list(edit.add_tags),
        "remove_tags": list(edit.remove_tags),
    }
