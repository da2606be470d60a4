"""Core: one app's configuration, engine, registry and clock, which every room above is given; and the current
app.

Invariant: two cores share nothing, and a forked child uses none of its parent's locks or connections. Nothing
is opened or imported before it is needed.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, runtime_checkable

from sqlalchemy import Connection, Engine, make_url

from jobkit._forks import in_children
from jobkit.clock import Clock, SystemClock
from jobkit.config import Config, engine_url
from jobkit.errors import ConfigError
from jobkit.redact import Redactor
from jobkit.registry import Registry
from jobkit.storage.base import InsertedJob, Observers, Storage
from jobkit.storage.choice import make_storage
from jobkit.storage.engine import make_engine, read_engine
from jobkit.storage.schema import Tables, tables_for

if TYPE_CHECKING:
    from sqlalchemy import URL

    from jobkit._known import AnyWorker
    from jobkit.events import Event
    from jobkit.hookspecs import StorageFactory, Transition
    from jobkit.jobs import JobInfo
    from jobkit.storage.migrations import Migrations, Step

__all__ = ["Core", "core_named", "current_core", "current_job", "reset_current", "set_current"]

T = TypeVar("T")


@runtime_checkable
class _Closes(Protocol):
    def close(self) -> None: ...


class Core:
    """What an app is made of. Safe to share between threads; every part is made at first use.

    - `config`: the settings. `clock`: where time and randomness come from. `registry`: plugins and workers.
    - `redactor`: hides secrets, the rules of the configuration and `jobkit_redact` included.
    """

    def __init__(
        self,
        config: Config,
        *,
        workers: Iterable[AnyWorker] = (),
        plugins: Iterable[object] = (),
        clock: Clock | None = None,
    ) -> None:
        """Keep what is given; raises WorkerDefinitionError for two workers of one name, ConfigError for bad
        rules."""
        self.config: Final = config
        self.clock: Final[Clock] = clock or SystemClock()
        self.registry: Final = Registry(config, workers=workers, plugins=plugins, clock=self.clock)
        try:
            self.redactor: Final = Redactor(config.redaction, self._redact)
        except ValueError as error:
            raise ConfigError(f"redaction: {error}") from error
        self.registry.redact_with(lambda text: self.redactor.text(text, kind="log"))
        self._lock = threading.RLock()
        self._made: dict[Hashable, object] = {}
        self._storages: dict[str, tuple[int, Storage]] = {}
        self._dialect: Final = make_url(engine_url(config.database_url)).get_backend_name()
        in_children(self, Core._after_fork)

    # -- the database --

    @property
    def engine(self) -> Engine:
        """jobkit's own engine for the configured database. Raises ConfigError for a URL it cannot use."""
        return self.once("engine", lambda: make_engine(self.config))

    @property
    def read_engine(self) -> Engine:
        """An engine whose connections cannot write, for lists and pages."""
        return self.once("read_engine", lambda: read_engine(self.config))

    @property
    def dialect(self) -> str:
        """The kind of the app's own database: `sqlite` or `postgresql`."""
        return self._dialect

    @property
    def tables(self) -> Tables:
        """The tables in the app's own database."""
        return self._tables(self._dialect)

    @property
    def storage(self) -> Storage:
        """The storage of the app's own database."""
        return self._storage(self._dialect, None)

    def storage_for(self, conn: Connection) -> Storage:
        """The storage that fits a caller's connection, by its dialect."""
        return self._storage(conn.dialect.name, conn)

    def _tables(self, dialect: str) -> Tables:
        schema = self.config.schema if dialect == "postgresql" else None
        return tables_for(self.config.table_prefix, schema)

    def _storage(self, dialect: str, conn: Connection | None) -> Storage:
        self.registry.load()
        revision, found = self.registry.revision, self._storages.get(dialect)
        if found is not None and found[0] == revision:
            return found[1]
        with self._lock:
            storage = self._make_storage(dialect, conn.engine.url if conn is not None else self.engine.url)
            self._storages[dialect] = (revision, storage)
        return storage

    def _make_storage(self, dialect: str, url: URL) -> Storage:
        tables, observers = self._tables(dialect), self._observers()
        for _, factory in self.registry.ask("jobkit_storage", url=url):
            return cast("StorageFactory", factory)(tables, observers)
        return make_storage(dialect, tables, arm=self.config.arm, observers=observers)

    def _observers(self) -> Observers:
        """What plugins do inside the transaction: whatever one raises reaches the caller and rolls it
        back."""
        ask, has = self.registry.ask, self.registry.has

        def inserted(conn: Connection, jobs: Sequence[InsertedJob]) -> None:
            ask("jobkit_inserted", conn=conn, jobs=jobs)

        def transitions(conn: Connection, transitions: Sequence[Transition]) -> None:
            ask("jobkit_transitions", conn=conn, transitions=transitions)

        return Observers(
            inserted=inserted if has("jobkit_inserted") else None,
            transitions=transitions if has("jobkit_transitions") else None,
        )

    # -- the schema --

    def migrate(self) -> None:
        """Bring jobkit's and all plugins' tables to the newest version; safe to call at any time, from anywhere."""
        from jobkit.storage import migrations

        migrations.up(self.engine, self.tables, self.migrations())

    def migrations(self) -> list[Migrations]:
        """The steps of each plugin's own tables, by the plugin's name. Raises what a plugin raises."""
        from jobkit.storage.migrations import Migrations

        return [Migrations(name, cast("Sequence[Step]", steps)) for name, steps in self.registry.migrations()]

    def ready(self) -> None:
        """Make the tables where the database is a SQLite file that is missing or empty; looks once a process."""
        self.once("ready", self._make_ready)

    async def aready(self) -> None:
        """`ready` for coroutines; what has to be done is done in a thread."""
        if "ready" not in self._made:
            await asyncio.to_thread(self.ready)

    def _make_ready(self) -> bool:
        if self._dialect == "sqlite":
            from jobkit.storage import migrations

            migrations.migrate_if_empty(self.engine, self.tables, self.migrations())
        return True

    # -- the rest --

    @property
    def heard(self) -> bool:
        """Whether anybody observes events: where nobody does, none need be made."""
        return self.registry.has("jobkit_event")

    def emit(self, event: Event) -> None:
        """Tell the observers of `jobkit_event`; costs a look-up where there are none."""
        if self.heard:
            self.registry.observe("jobkit_event", event=event)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` made at the first call with this key; for parts of which an app has one."""
        found = self._made.get(key, self)
        if found is self:
            with self._lock:
                found = self._made.get(key, self)
                if found is self:
                    found = self._made[key] = make()
        return cast("T", found)

    def close(self) -> None:
        """End the app's threads, close its connections; what is used again afterwards is opened again."""
        with self._lock:
            made, self._made, self._storages = self._made, {}, {}
        for part in made.values():
            if isinstance(part, _Closes):
                part.close()
        for engine in (made.get("engine"), made.get("read_engine")):
            if isinstance(engine, Engine):
                engine.dispose()

    def redact_error(self, text: str, worker: str | None) -> str:
        """An error's text without its secrets, whole: cut it afterwards."""
        return self.redactor.text(text, worker=worker, kind="error")

    def enter_job(self, job: JobInfo) -> None:
        """Make this the current app, and `job` the current job, of the context that calls."""
        _inside.set(self)
        _job.set(job)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Make this the current app of the code inside."""
        token = _inside.set(self)
        try:
            yield
        finally:
            _inside.reset(token)

    def _redact(self, value: object, path: str, worker: str | None, kind: str) -> object | None:
        for implementation in self.registry.implementations("jobkit_redact"):
            answer = implementation.call({"value": value, "path": path, "worker": worker, "kind": kind})
            if answer is not None:
                return answer
        return None

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self.registry.after_fork()


# -- the current app --

_inside: ContextVar[Core | None] = ContextVar("jobkit_core", default=None)
_job: ContextVar[JobInfo | None] = ContextVar("jobkit_job", default=None)
_configured: Core | None = None
_default: Core | None = None
_lock = threading.RLock()


def current_core() -> Core:
    """The app that code without an app of its own uses.

    Inside a job the job's own; else the configured one; else one made at first use from file and environment,
    or the app that JOBKIT_APP names. Raises ConfigError.
    """
    global _default
    current = _inside.get() or _configured or _default
    if current is None:
        with _lock:
            if _default is None:
                config = Config.load()
                _default = core_named(config.app) if config.app else Core(config)
            current = _default
    return current


def current_job() -> JobInfo | None:
    """The job whose `perform` is running here; None outside of a job. Threads that a job starts do not see it."""
    return _job.get()


def set_current(core: Core | None) -> None:
    """Make an app the process's current one; None leaves the choice to file and environment again."""
    global _configured
    _configured = core


def reset_current() -> None:
    """Forget the configured app, and close and forget the one made from file and environment."""
    global _configured, _default
    with _lock:
        made, _configured, _default = _default, None, None
    if made is not None:
        made.close()


def core_named(spec: str) -> Core:
    """The core of the app that `module:attribute` names; the working directory is importable. Raises
    ConfigError."""
    module, _, attribute = spec.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigError(f"app: {spec!r} cannot be imported: {type(error).__name__}: {error}") from error
    core = getattr(found, "core", found)
    if not isinstance(core, Core):
        raise ConfigError(f"app: {spec!r} is a {type(found).__name__}; expected a Jobkit")
    return core


def _renew_lock(_: object) -> None:
    """In a forked child no thread of the parent lives to release it."""
    global _lock
    _lock = threading.RLock()


in_children(Core, _renew_lock)
