"""The registry: one app's plugins and workers.

Order: built-ins, distributions by name, imports, `plugins=`. Invariant: a plugin that is wrong in any way is
skipped whole, named in the log and in `plugins`, and breaks nothing else. Everything is found and imported
at first use, so that a module of `imports` may itself import the app.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar, cast

import pluggy

from jobkit._discovery import PLUGINS, WORKERS, discover
from jobkit._hooktable import HookTable, Implementation
from jobkit._hooktypes import Service
from jobkit._known import KnownWorkers, WorkerEntry, WorkerUnavailable, workers_below
from jobkit._loader import Loader, Named, import_modules
from jobkit._names import check_name
from jobkit._plugins import Candidate, PluginState, looks_like_plugin
from jobkit.clock import Clock, SystemClock
from jobkit.config import Config, QueueConfig
from jobkit.errors import ConfigError, ScheduleError
from jobkit.schedules import Recurring

if TYPE_CHECKING:
    from jobkit._known import AnyWorker
    from jobkit.core import Core
    from jobkit.hookspecs import Node
    from jobkit.workers import Worker

__all__ = ["PluginState", "Registry", "ScheduleEntry", "WorkerEntry", "WorkerUnavailable"]

log = logging.getLogger("jobkit.plugins")
T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """A recurring entry with where it comes from (`'nightly' (acme-jobs 1.2)`, or a place in code)."""

    recurring: Recurring
    origin: str


class Registry:
    """What one app knows: its plugins, in the order they are asked, and its workers by name."""

    def __init__(
        self,
        config: Config,
        *,
        workers: Iterable[AnyWorker] = (),
        plugins: Iterable[object] = (),
        clock: Clock | None = None,
    ) -> None:
        """Keep what is given; raises WorkerDefinitionError for two workers of one name."""
        self._config = config
        self._lock = threading.RLock()
        self._loaded = self._loading = False
        self._problems: list[str] = []
        self._table = HookTable(clock or SystemClock())
        self._known = KnownWorkers(self._report)
        self._loader = Loader(config)
        self._manager = pluggy.PluginManager("jobkit")
        self._specified: list[ModuleType] = []
        self._given = list(plugins)
        self._schedules: tuple[int, list[ScheduleEntry]] = (-1, [])
        self.revision = 0
        """Goes up whenever the active plugins change; what was made of them is then out of date."""
        for worker in workers:
            self._known.add(worker)

    # -- what there is --

    @property
    def workers(self) -> Mapping[str, WorkerEntry]:
        """The known workers by name, as they are now."""
        self.load()
        self._scan()
        return self._known.view

    @property
    def plugins(self) -> list[PluginState]:
        """All plugins that were found, active or not, in their order."""
        self.load()
        return [candidate.state for candidate in self._loader.candidates]

    @property
    def problems(self) -> tuple[str, ...]:
        """What was left out or looks wrong, in words; each was logged once."""
        self.load()
        return tuple(self._problems)

    @property
    def hook(self) -> pluggy.HookRelay:
        """pluggy's own callers, for hooks whose errors must reach the caller."""
        self.load()
        return self._manager.hook

    def resolve(self, name: str) -> type[Worker] | None:
        """The worker of a name, imported if need be; None if unknown. Raises WorkerUnavailable."""
        if not self._loaded:
            self.load()
        if not self._known.knows(name):
            self._scan()
        return self._known.resolve(name)

    def add_worker(self, worker: AnyWorker) -> None:
        """Make a worker known. Raises WorkerDefinitionError if its name means another one already."""
        self._known.add(worker)

    def add_plugin(self, plugin: object, name: str | None = None) -> None:
        """Add a plugin, asked before all others; `name` defaults to its module's or class's.

        What is wrong with it is logged and stands in `plugins`, as for every other. Add plugins before a node
        starts: a running node keeps the services it has.
        """
        given = plugin if name is None else Named(name, plugin)
        with self._lock:
            self._given.append(given)
            if self._loaded:
                candidate = self._loader.given(given)
                self._loader.take(candidate)
                self._activate()
                self._know(candidate)

    def settings(self, name: str, settings_type: type[S]) -> S:
        """`[plugins.NAME]` as the plugin's settings; raises ConfigError naming file and key."""
        return self._config.plugin(name, settings_type)

    # -- asking --

    def has(self, hook: str) -> bool:
        """True if any active plugin implements the hook; cheap enough for every job."""
        if not self._loaded:
            self.load()
        return hook in self._table.table

    def implementations(self, hook: str) -> tuple[Implementation, ...]:
        """The implementations one by one, first asked first; the caller deals with their errors."""
        if not self._loaded:
            self.load()
        return self._table.of(hook)

    def observe(self, hook: str, /, **given: object) -> None:
        """Tell all plugins; what one raises is logged with its name and reaches nobody."""
        if not self._loaded:
            self.load()
        self._table.observe(hook, given)

    def first(
        self, hook: str, /, accept: Callable[[object], bool] | None = None, **given: object
    ) -> object | None:
        """The first answer that is not None; one that raises, or that `accept` refuses, is logged and passed
        over.
        """
        if not self._loaded:
            self.load()
        return self._table.first(hook, given, accept)

    def gather(self, hook: str, /, **given: object) -> list[tuple[str, object]]:
        """What each plugin answered, with its name; one that raises is logged and left out."""
        self.load()
        return self._table.gather(hook, given)

    def ask(self, hook: str, /, **given: object) -> list[tuple[str, object]]:
        """What each plugin answered, with its name; raises what one raises, with its name in a note."""
        if not self._loaded:
            self.load()
        return self._table.ask(hook, given)

    def fold(self, hook: str, value: T, /, **given: object) -> T:
        """Pass a value through all plugins, each gets the previous one's result; raises what one raises."""
        if not self._loaded:
            self.load()
        return self._table.fold(hook, value, given)

    def failed(self, plugin: str, where: str, error: BaseException) -> None:
        """Count and log what a plugin's service or context raised, at most once a minute for each `where`."""
        self._table.failed(plugin, where, error)

    def redact_with(self, redact: Callable[[str], str]) -> None:
        """Show errors of plugins only after this has gone over them."""
        self._table.redact = redact

    # -- what plugins bring --

    def schedules(self) -> list[ScheduleEntry]:
        """All recurring entries, sorted by key.

        Raises ScheduleError if one given in code has the key of another, naming both origins; between
        distributions the first by name stays and the other is reported.
        """
        self.load()
        revision, found = self._schedules
        if revision != self.revision:
            found = self._ask_schedules()
            self._schedules = (self.revision, found)
        return list(found)

    def _ask_schedules(self) -> list[ScheduleEntry]:
        entries: dict[str, tuple[ScheduleEntry, bool]] = {}
        for plugin, recurring in self._in_order("jobkit_schedules", Recurring, config=self._config):
            state = self._state(plugin)
            entry, in_code = ScheduleEntry(recurring, state.source), state.distribution is None
            held, held_in_code = entries.setdefault(recurring.key, (entry, in_code))
            if held is entry:
                continue
            clash = f"the schedule key {recurring.key!r} is used by {held.origin} and by {entry.origin}"
            if in_code or held_in_code:
                raise ScheduleError(f"{clash}; give one of them another key")
            self._report(f"{clash}; the latter is left out")
        return [entries[key][0] for key in sorted(entries)]

    def queues(self) -> dict[str, QueueConfig]:
        """The queues that a node works on by default: the configured ones, then those that plugins bring."""
        queues = dict(self._config.queues)
        for plugin, given in reversed(self.gather("jobkit_queues", config=self._config)):
            try:
                for name, spec in cast("Mapping[str, QueueConfig | int]", given).items():
                    check_name(name, "queue", ConfigError)
                    queues.setdefault(name, spec if isinstance(spec, QueueConfig) else QueueConfig(spec))
            except Exception as error:  # noqa: BLE001 - whatever a plugin gave instead of a mapping
                self.failed(plugin, "jobkit_queues", error)
        return queues

    def services(self, core: Core, node: Node) -> list[tuple[str, Service]]:
        """The services for one node, each with its plugin's name, in the plugins' order.

        Raises ScheduleError where `schedules` does, so that a node with such a clash does not start.
        """
        self.schedules()
        return list(self._in_order("jobkit_services", Service, app=core, node=node))

    def migrations(self) -> list[tuple[str, Sequence[object]]]:
        """Each plugin's migrations with its name; raises what a plugin raises."""
        given = self.ask("jobkit_migrations")
        return [(plugin, tuple(cast("Iterable[object]", steps))) for plugin, steps in reversed(given)]

    def _in_order(self, hook: str, kind: type[S], /, **given: object) -> list[tuple[str, S]]:
        """The items of this class that plugins give, built-ins first; whatever else they give is reported."""
        items: list[tuple[str, S]] = []
        for plugin, answer in reversed(self.gather(hook, **given)):
            try:
                brought = list(cast("Iterable[object]", answer))
            except Exception as error:  # noqa: BLE001 - a generator may raise anything
                self.failed(plugin, hook, error)
                continue
            for item in brought:
                if isinstance(item, kind):
                    items.append((plugin, item))
                else:
                    self.failed(plugin, hook, TypeError(f"it gave {item!r}, expected a {kind.__name__}"))
        return items

    def _state(self, plugin: str) -> PluginState:
        return next(
            c.state for c in self._loader.candidates if c.state.name == plugin and c.state.status == "active"
        )

    # -- loading --

    def load(self) -> None:
        """Find and import everything, once; the first use does it.

        Raises ConfigError (an `imports` module cannot be imported, a plugin's settings are wrong) and
        WorkerDefinitionError (two workers of one name in code).
        """
        if self._loaded:
            return
        with self._lock:
            if self._loaded or self._loading:
                return
            self._loading = True
            try:
                self._load()
                self._loaded = True
            finally:
                self._loading = False

    def _load(self) -> None:
        loader, self._problems[:] = Loader(self._config), []
        modules = import_modules(self._config.imports)
        offers = discover()
        found = {offer: loader.offered(offer) for offer in offers if offer.group == PLUGINS}
        loader.take(*found.values(), *(loader.imported(m) for m in modules if looks_like_plugin(m)))
        for plugin in self._given:
            loader.take(loader.given(plugin))
        self._loader = loader
        self._activate()
        for offer in offers:
            if offer.group == WORKERS:
                self._known.add_offer(offer)
            else:
                self._know(found[offer])
        for candidate in loader.candidates:
            self._know(candidate)
        self._scan()
        for line in self._config.unknown_plugins({candidate.state.name for candidate in loader.candidates}):
            self._report(line)

    def _activate(self) -> None:
        """Register exactly the active plugins, in order."""
        active = self._loader.settle()
        for plugin in self._manager.get_plugins():
            self._manager.unregister(plugin)
        for module in self._loader.spec_modules:
            if module not in self._specified:
                self._specified.append(module)
                self._manager.add_hookspecs(module)
        for candidate in active:
            self._manager.register(candidate.plugin, candidate.state.name)
        self._table.rebuild(self._manager, {candidate.state.name: candidate.state for candidate in active})
        self.revision += 1

    def _know(self, candidate: Candidate) -> None:
        """Take over the workers that an active plugin's hook gave."""
        state, workers = candidate.state, candidate.workers
        if state.status != "active" or not workers:
            return
        candidate.workers = []
        if state.distribution is None:
            for worker in workers:
                self._known.add(cast("type[Worker]", worker))
        else:
            self._known.add_brought(workers, state)

    def _scan(self) -> None:
        """Take over workers of `imports` that have been defined since."""
        for cls in workers_below(self._config.imports):
            self._known.add(cls)

    def _report(self, line: str) -> None:
        if line not in self._problems:
            self._problems.append(line)
            log.warning("%s", line)

    def after_fork(self) -> None:
        """In a forked child: no thread of the parent lives here to release its locks."""
        self._lock = threading.RLock()
        self._loading = False
        self._table.after_fork()
        self._known.after_fork()
