"""What the tests of the test helpers share: an app on a real database, and a look at its rows."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec

import sqlalchemy as sa
from sqlalchemy import Connection

from jobkit import Jobkit
from jobkit.core import Core
from jobkit.hookspecs import Service
from jobkit.jobs import Lease
from jobkit.testing import FrozenClock

START = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))


class Journal:
    """What the workers of a test did, in the order in which they did it. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.entries: list[Any] = []

    def note(self, entry: object) -> None:
        with self._lock:
            self.entries.append(entry)

    def clear(self) -> None:
        with self._lock:
            self.entries.clear()


@dataclass
class Kit:
    """One app with its clock."""

    app: Jobkit
    clock: FrozenClock

    @property
    def core(self) -> Core:
        return self.app.core

    @contextmanager
    def conn(self) -> Iterator[Connection]:
        """A connection in a transaction that is committed at the end."""
        with self.app.engine.begin() as conn:
            yield conn

    def row(self, job_id: int) -> Any:
        """One job's row, its JSON columns decoded."""
        return self.rows(self.app.tables.jobs.c.id == job_id)[0]

    def rows(self, *where: Any) -> list[Any]:
        jobs = self.app.tables.jobs
        with self.conn() as conn:
            found = conn.execute(sa.select(jobs).where(*where).order_by(jobs.c.id)).all()
        return [Row(dict(row._mapping)) for row in found]

    def states(self) -> list[str]:
        return [row.state for row in self.rows()]

    def set(self, job_id: int, **values: object) -> None:
        """Change a row by hand."""
        jobs = self.app.tables.jobs
        with self.conn() as conn:
            conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(**values))

    def nodes(self) -> list[str]:
        with self.conn() as conn:
            return [row.node for row in self.core.storage.nodes(conn)]

    def tick(self, service: Service) -> int:
        """One round of a service, as a node gives it: a connection outside of a transaction."""
        with self.app.engine.connect() as conn:
            return service.tick(conn, self.clock.now())


class Row:
    """A row by its columns."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            decoded = json.loads(value) if name in ("args", "meta", "tags", "errors") else value
            setattr(self, name, decoded)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class StillNode:
    """A node that does nothing, for services that are ticked by hand."""

    def __init__(self, clock: FrozenClock, id: str = "still:1") -> None:
        self.id = id
        self.queues: Mapping[str, int] = {}
        self._clock = clock
        self.woken: list[str] = []

    def leases(self) -> frozenset[Lease]:
        return frozenset()

    def wake(self, queue: str) -> None:
        self.woken.append(queue)

    @property
    def last_beat(self) -> float:
        return self._clock.monotonic()


def service_of(module: Any, kit: Kit, node: object | None = None) -> Service:
    """The one service of a built-in plugin."""
    services: list[Service] = module.jobkit_services(kit.core, node or StillNode(kit.clock))
    [service] = services
    return service


async def until(fulfilled: Callable[[], object], timeout: float = 15.0) -> None:
    """Wait on the loop until it is so; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not fulfilled():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run an async test on a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
