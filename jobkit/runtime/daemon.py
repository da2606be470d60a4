"""A thread of the node that ends when it is told to.

Invariant: it never holds up the process's exit, and waiting for its end is bounded.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

__all__ = ["Daemon"]


class Daemon(ABC):
    """`_run` does the work, and returns soon after `_halt` was set."""

    def __init__(self, name: str) -> None:
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """The thread's work."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End soon. Does not wait."""
        self._halt.set()

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end; False where it took longer than `timeout` seconds."""
        if self._thread.ident is not None:
            self._thread.join(max(timeout, 0.0))
        return not self._thread.is_alive()
