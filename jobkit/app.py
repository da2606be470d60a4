"""Jobkit: the app that users hold.

Invariant: nothing is decided here; each method hands its work to the room that knows how, with this app's core.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from jobkit.config import Config, mask_url
from jobkit.core import Core, set_current
from jobkit.inserting import aenqueue_with, enqueue_with, joined_by
from jobkit.wakeup import waker_of

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from jobkit._known import AnyWorker
    from jobkit.clock import Clock
    from jobkit.config import QueueSpec
    from jobkit.hookspecs import Node
    from jobkit.inserting import AsyncTarget, Job, Target
    from jobkit.jobs import Inserted, JobOptions
    from jobkit.registry import Registry
    from jobkit.storage.schema import Tables

__all__ = ["Jobkit", "configure"]


class Jobkit:
    """One app: a database, the workers and plugins it knows, and the ways to enqueue and to run.

    Two apps in one process share nothing. Making one opens and imports nothing yet. A SQLite file that is missing or
    empty is migrated at first use; every other database needs `jobkit migrate`.
    """

    def __init__(
        self,
        database_url: str | URL | None = None,
        *,
        config: Config | str | Path | None = None,
        workers: Iterable[AnyWorker] = (),
        plugins: Iterable[object] = (),
        clock: Clock | None = None,
    ) -> None:
        """Make an app.

        - `database_url`: a SQLAlchemy URL of SQLite or Postgres; wins over file and environment.
        - `config`: a Config, or the path of a jobkit.toml or pyproject.toml; left out, the nearest file and the
          environment are read.
        - `workers`: Worker classes and `@worker` functions. `plugins`: modules or objects with `@hookimpl` functions.
        - `clock`: where time and randomness come from; the machine, unless a test brings its own.

        Raises ConfigError, and WorkerDefinitionError where two workers have one name.
        """
        self._core = Core(_config(database_url, config), workers=workers, plugins=plugins, clock=clock)

    @property
    def core(self) -> Core:
        """What the app is made of; plugins get it as `app`."""
        return self._core

    @property
    def config(self) -> Config:
        """The settings, each with its origin."""
        return self._core.config

    @property
    def engine(self) -> Engine:
        """jobkit's own SQLAlchemy engine."""
        return self._core.engine

    @property
    def tables(self) -> Tables:
        """jobkit's tables, as SQLAlchemy Table objects."""
        return self._core.tables

    @property
    def registry(self) -> Registry:
        """The known workers and plugins: `workers`, `plugins`, `add_worker`, `add_plugin`."""
        return self._core.registry

    def migrate(self) -> None:
        """Bring jobkit's and all plugins' tables to the newest version. Safe to call at any time, from anywhere."""
        self._core.migrate()

    # -- enqueueing --

    def enqueue(self, job: Job, *, conn: Target | None = None, **options: Unpack[JobOptions]) -> Inserted:
        """Insert one job, in a short transaction of its own or in `conn`'s (a Session, Connection or Engine).

        `options` are those of `Worker.job()`. Returns `Inserted(id, duplicate)`. Raises ArgsError (args or options
        refused, nothing written), EnqueueConflict and EnqueueLocked (run the transaction again), NotMigrated.
        """
        if conn is None and joined_by(self._core) is None:
            self._core.ready()
        return enqueue_with(self._core, conn, [job], options)[0]

    def enqueue_all(self, jobs: Iterable[Job], *, conn: Target | None = None) -> list[Inserted]:
        """Insert many jobs in one statement, unique ones included; one result for each, in order.

        Raises as `enqueue`.
        """
        if conn is None and joined_by(self._core) is None:
            self._core.ready()
        return enqueue_with(self._core, conn, jobs)

    async def aenqueue(
        self, job: Job, *, conn: AsyncTarget | None = None, **options: Unpack[JobOptions]
    ) -> Inserted:
        """`enqueue` for coroutines; `conn` is an AsyncSession, AsyncConnection or AsyncEngine."""
        if conn is None and joined_by(self._core) is None:
            await self._core.aready()
        return (await aenqueue_with(self._core, conn, [job], options))[0]

    async def aenqueue_all(self, jobs: Iterable[Job], *, conn: AsyncTarget | None = None) -> list[Inserted]:
        """`enqueue_all` for coroutines."""
        if conn is None and joined_by(self._core) is None:
            await self._core.aready()
        return await aenqueue_with(self._core, conn, jobs)

    # -- running --

    def node(self, queues: QueueSpec | None = None) -> AbstractAsyncContextManager[Node]:
        """A node inside this program: `async with app.node(queues="default:10,mail:5") as node: ...`.

        It runs jobs on the current event loop until the block ends, then gives what runs its grace. Signal handlers
        and loop policy are left alone. `queues` defaults to the configured ones and those of plugins.
        Raises ConfigError, ScheduleError, NotMigrated.
        """
        from jobkit.runtime.node import NodeRuntime

        return NodeRuntime(self._core, queues)

    def run(self, queues: QueueSpec | None = None) -> None:
        """Run a node until SIGINT or SIGTERM, as `jobkit run` does; for the main thread of a program of its own."""
        from jobkit.runtime.main import run

        run(self._core, queues)

    def close(self) -> None:
        """Send what is to be sent and close connections; what is used afterwards is opened again."""
        waker_of(self._core).flush(1.0)
        self._core.close()

    def __repr__(self) -> str:
        return f"<Jobkit {mask_url(self._core.config.database_url)}>"


def configure(app: Jobkit | None) -> None:
    """Make an app the one that `enqueue` and its twins use outside of jobs; None goes back to file and environment."""
    set_current(None if app is None else app.core)


def _config(database_url: str | URL | None, config: Config | str | Path | None) -> Config:
    given = {} if database_url is None else {"database_url": database_url}
    if isinstance(config, Config):
        return config.override(database_url=database_url) if given else config
    return Config.load(file=config, overrides=given)
