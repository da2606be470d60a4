"""Medians, spreads and percentiles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """What repeated samples of one figure say."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(min(values), statistics.median(values), max(values))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that `share` percent of the sorted values do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]
