"""CPU and memory of process trees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds so far and resident megabytes, summed over processes and all below them."""

    cpu: float
    rss: float

    @classmethod
    def of(cls, roots: Iterable[psutil.Process]) -> Self:
        cpu = rss = 0.0
        for root in roots:
            for process in _tree(root):
                try:
                    times = process.cpu_times()
                    cpu += times.user + times.system
                    rss += process.memory_info().rss / 1e6
                except psutil.NoSuchProcess:
                    continue
        return cls(cpu, rss)


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
