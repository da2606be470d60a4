"""How many rows one statement of a service takes, under whatever statement timeout the database has.

Invariant: a batch that is cut off is tried again with fewer rows, down to one, so maintenance makes progress; it grows
again, slowly, while statements end in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from jobkit.storage.engine import Fault, classify

__all__ = ["Batches"]

T = TypeVar("T")


class Batches:
    """The size of one service's batches; `most` is the setting."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = most

    def run(self, work: Callable[[int], T]) -> tuple[T, int]:
        """Do `work(size)`, with fewer rows after each timeout; returns its result and the size that it had."""
        while True:
            size = self.size
            try:
                result = work(size)
            except Exception as error:
                if size == 1 or classify(error) is not Fault.TIMEOUT:
                    raise
                self.size = max(1, size // 4)
            else:
                self.size = min(self.most, size + size // 8 + 1)
                return result, size
