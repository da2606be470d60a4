"""What an adapter is: the few things that differ between one job queue and the next.

An adapter runs in its peer's environment and may import that peer freely; the harness never imports it
but talks to it through `benchmarks.peers.serve`. Only the standard library is imported here, since this
file is loaded in every environment.

An adapter's jobs are module-level functions or classes that call `ticks.tick(number)` and nothing else.
Worker processes find the database in BENCH_URL, the tick file in BENCH_TICKS and the contender's
variant in BENCH_VARIANT.
"""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from dataclasses import dataclass

URL = os.environ.get("BENCH_URL", "")
VARIANT = os.environ.get("BENCH_VARIANT", "")


@dataclass(frozen=True, slots=True)
class Load:
    """How a worker is started: `kind` is "async" or "sync", the shape of `perform`."""

    kind: str
    processes: int
    concurrency: int
    queues: tuple[str, ...] = ("default",)


def script(name: str, *arguments: str) -> list[str]:
    """A command of the peer's own environment."""
    return [os.path.join(os.path.dirname(sys.executable), name), *arguments]


class Adapter(ABC):
    """One peer. A method may be a coroutine function; `serve` awaits what it returns."""

    def open(self) -> Awaitable[None] | None:
        """Connect, before anything else and outside every clock."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Give connections back."""
        return None

    @abstractmethod
    def setup(self, load: Load) -> Awaitable[None] | None:
        """Create the schema in an empty database, and what else the worker of `load` needs there."""

    @abstractmethod
    def enqueue_one(self, kind: str, number: int) -> Awaitable[object] | object:
        """Insert one job, durably committed when the call returns."""

    @abstractmethod
    def enqueue_many(self, kind: str, count: int) -> Awaitable[object] | object:
        """Insert jobs 0..count-1 by the peer's best means."""

    @abstractmethod
    def drained(self) -> Awaitable[bool] | bool:
        """Whether every job that was inserted is recorded as finished."""

    @abstractmethod
    def worker(self, load: Load) -> list[list[str]]:
        """The command lines that start the peer's own worker as in production, logging at WARNING."""
