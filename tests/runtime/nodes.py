"""Real nodes on real databases, for the runtime's tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, select, update
from sqlalchemy.exc import OperationalError

from jobkit import Worker
from jobkit.config import Config
from jobkit.core import Core
from jobkit.inserting import enqueue_with
from jobkit.jobs import Inserted, NewJob
from jobkit.runtime.node import NodeRuntime
from jobkit.runtime.options import NodeOptions
from jobkit.workers import FunctionWorker
from tests.runtime.support import until

Made = type[Worker] | FunctionWorker[..., object]


@dataclass(frozen=True)
class Row:
    """A job's row, as the tests look at it."""

    id: int
    state: str
    attempt: int
    attempted_by: str | None
    scheduled_at: datetime
    errors: list[dict[str, Any]]
    meta: dict[str, Any]


class App:
    """One app on one database, with what tests ask of it."""

    def __init__(
        self, url: str, workers: Iterable[Made] = (), *, plugins: Iterable[object] = (), **settings: Any
    ) -> None:
        settings.setdefault("queues", "default:10")
        self.core = Core(Config(database_url=url, **settings), workers=workers, plugins=plugins)
        self.core.migrate()

    def node(self, queues: str | None = None, **options: Any) -> NodeRuntime:
        """A node that is not started yet; `grace` in seconds."""
        if "grace" in options:
            options["grace"] = timedelta(seconds=options["grace"])
        return NodeRuntime(self.core, queues, NodeOptions(**options))

    def enqueue(self, *jobs: Worker | NewJob) -> list[int]:
        """Insert and return the ids."""
        inserted: list[Inserted] = enqueue_with(self.core, None, list(jobs))
        return [one.id for one in inserted]

    def row(self, id: int) -> Row:
        """The job's row now."""
        jobs = self.core.tables.jobs
        columns = (jobs.c.id, jobs.c.state, jobs.c.attempt, jobs.c.attempted_by, jobs.c.scheduled_at)
        [row] = self._read(select(*columns, jobs.c.errors, jobs.c.meta).where(jobs.c.id == id))
        return Row(*row[:5], errors=_json(row[5]), meta=_json(row[6]))

    def states(self) -> list[str]:
        """The states of all jobs, by id."""
        jobs = self.core.tables.jobs
        return [row[0] for row in self._read(select(jobs.c.state).order_by(jobs.c.id))]

    def nodes(self) -> list[str]:
        """The ids of all node rows."""
        return [row[0] for row in self._read(select(self.core.tables.nodes.c.node))]

    def _read(self, query: Select[Any]) -> Sequence[Any]:
        """The rows; asks once more where a test has just ended this connection, too."""
        for _ in range(5):
            with contextlib.suppress(OperationalError), self.core.read_engine.connect() as conn:
                return conn.execute(query).all()
        with self.core.read_engine.connect() as conn:
            return conn.execute(query).all()

    def change(self, id: int, **values: object) -> None:
        """Write to a job's row behind everybody's back."""
        jobs = self.core.tables.jobs
        with self.core.engine.begin() as conn:
            conn.execute(update(jobs).where(jobs.c.id == id).values(**values))

    def pause(self, queue: str, paused: bool = True) -> None:
        """Pause a queue in its row."""
        queues = self.core.tables.queues
        with self.core.engine.begin() as conn:
            conn.execute(update(queues).where(queues.c.name == queue).values(paused=paused))

    async def until(self, fulfilled: Callable[[], object], timeout: float = 15.0) -> None:
        await until(fulfilled, timeout)

    async def settled(self, *ids: int, timeout: float = 15.0) -> list[Row]:
        """Wait until none of the jobs is available or executing, then return their rows."""

        def done() -> bool:
            return all(self.row(id).state not in ("available", "executing") for id in ids)

        await until(done, timeout)
        return [self.row(id) for id in ids]


def _json(value: object) -> Any:
    return json.loads(value) if isinstance(value, str | bytes) else value


def run(scenario: Callable[[], Any]) -> None:
    """Run an async test."""
    asyncio.run(asyncio.wait_for(scenario(), 60))
