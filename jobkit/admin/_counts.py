"""A number with how far to trust it.

Invariant: a sum is no more precise than its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Count", "Precision"]

Precision: TypeAlias = Literal["exact", "at_least", "estimate"]


@dataclass(frozen=True, slots=True)
class Count:
    """A number and how far to trust it: all of them, at least so many, or an estimate of the database."""

    value: int
    precision: Precision = "exact"

    @property
    def text(self) -> str:
        """`12,431`, `10,000+` or `≈ 5,200,000`."""
        digits = f"{self.value:,}"
        return {"exact": digits, "at_least": f"{digits}+", "estimate": f"≈ {digits}"}[self.precision]

    def __add__(self, other: Count) -> Count:
        """The sum, no more precise than its parts."""
        order: tuple[Precision, ...] = ("exact", "at_least", "estimate")
        return Count(self.value + other.value, max(self.precision, other.precision, key=order.index))
