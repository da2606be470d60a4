"""Which worker a name means: given in code, brought by hooks, or named by an entry point and imported when
needed.

Invariant: a name means one worker. In code a second definition is an error that names both places; between
distributions the first by name stays and the other is reported.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias, cast

from jobkit._discovery import Offer
from jobkit._plugins import PluginState, brief
from jobkit.errors import JobkitError, WorkerDefinitionError
from jobkit.workers import FunctionWorker, Worker, worker_of

AnyWorker: TypeAlias = type[Worker] | FunctionWorker[..., Any]
"""What may be given as a worker: its class, or what `@worker` made of a function."""

__all__ = ["AnyWorker", "KnownWorkers", "WorkerEntry", "WorkerUnavailable", "workers_below"]


class WorkerUnavailable(JobkitError):
    """A worker is known by name and cannot be imported here; the text says why."""


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """One worker name. `cls` is None until an entry point's worker was needed; `error` says why it cannot be
    had.

    `place` is where it is defined; `distribution` and `version` are None for workers given in code.
    """

    name: str
    place: str
    cls: type[Worker] | None = None
    distribution: str | None = None
    version: str | None = None
    error: str = ""
    offer: Offer | None = None

    @property
    def source(self) -> str:
        """The place with its distribution, for messages."""
        return f"{self.place} ({self.distribution} {self.version})" if self.distribution else self.place


class KnownWorkers:
    """The workers of one app, by name."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._entries: dict[str, WorkerEntry] = {}
        self._report = report
        self._lock = threading.RLock()

    @property
    def view(self) -> Mapping[str, WorkerEntry]:
        """All entries as they are now; safe to walk while others come."""
        return MappingProxyType(self._entries)

    def knows(self, name: str) -> bool:
        """Whether the name means a worker."""
        return name in self._entries

    def _put(self, entry: WorkerEntry) -> None:
        """Entries are replaced whole, so that readers need no lock."""
        self._entries = {**self._entries, entry.name: entry}

    def add(self, thing: AnyWorker) -> None:
        """A worker given in code. Raises WorkerDefinitionError if its name means another one."""
        cls = worker_of(thing)
        config = cls.__jobkit__
        with self._lock:
            held = self._entries.get(config.name)
            if held is not None and held.offer is not None and held.cls is None:
                held = self._loaded(held)
            if held is None or held.error:
                self._put(WorkerEntry(config.name, config.place, cls))
            elif held.cls is not cls:
                _refuse_second(held, WorkerEntry(config.name, config.place, cls))

    def add_brought(self, things: Iterable[object], plugin: PluginState) -> None:
        """Workers that a distribution's plugin gave; what is none, or whose name is taken, is reported."""
        for thing in things:
            try:
                cls = worker_of(cast("AnyWorker", thing))
            except WorkerDefinitionError as error:
                self._report(f"plugin {plugin.source}: {error}")
                continue
            config = cls.__jobkit__
            self._offer(WorkerEntry(config.name, config.place, cls, plugin.distribution, plugin.version))

    def add_offer(self, offer: Offer) -> None:
        """A worker of an entry point, which is not imported yet."""
        source = (offer.distribution, offer.version)
        self._offer(WorkerEntry(offer.name, offer.value, None, *source, offer=offer))

    def after_fork(self) -> None:
        """In a forked child: no thread of the parent lives here to release its locks."""
        self._lock = threading.RLock()

    def _offer(self, entry: WorkerEntry) -> None:
        with self._lock:
            held = self._entries.get(entry.name)
            if held is None:
                self._put(entry)
            if held is None or self._same(held, entry):
                return
            if held.distribution is None:
                entry = _load(entry, entry.offer) if entry.cls is None and entry.offer else entry
                if entry.cls is not None:
                    if entry.cls is not held.cls:
                        _refuse_second(held, entry)
                    return
            self._report(
                f"the worker name {entry.name!r} is taken by {held.source}; {entry.source} is left out"
            )

    @staticmethod
    def _same(held: WorkerEntry, other: WorkerEntry) -> bool:
        """True if two entries mean one definition, as far as can be said without importing anything."""
        if held.cls is not None and held.cls is other.cls:
            return True
        return _path(held) is not None and _path(held) == _path(other)

    def resolve(self, name: str) -> type[Worker] | None:
        """The worker of a name, imported now if need be; None if the name is unknown.

        Raises WorkerUnavailable if it cannot be had; an import that failed is not tried again in this
        process.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
        if entry.cls is not None:
            return entry.cls
        if not entry.error:
            with self._lock:
                entry = self._loaded(self._entries[name])
        if entry.cls is None:
            raise WorkerUnavailable(f"the worker {name!r} of {entry.source} cannot be had: {entry.error}")
        return entry.cls

    def _loaded(self, entry: WorkerEntry) -> WorkerEntry:
        if entry.cls is None and not entry.error and entry.offer is not None:
            entry = _load(entry, entry.offer)
            self._put(entry)
            if entry.error:
                self._report(f"the worker {entry.name!r} of {entry.source} cannot be had: {entry.error}")
        return entry


def _refuse_second(held: WorkerEntry, other: WorkerEntry) -> NoReturn:
    raise WorkerDefinitionError(
        f"two workers are named {held.name!r}: {held.source} and {other.source}; "
        "give one of them another name"
    )


def _load(entry: WorkerEntry, offer: Offer) -> WorkerEntry:
    try:
        cls = worker_of(cast("AnyWorker", offer.load()))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a module may raise anything at import, SystemExit too
        return replace(entry, error=brief(error))
    if cls.__jobkit__.name != entry.name:
        return replace(
            entry, error=f"it is named {cls.__jobkit__.name!r}; the entry point must have the worker's name"
        )
    return replace(entry, cls=cls, place=cls.__jobkit__.place)


def _path(entry: WorkerEntry) -> str | None:
    """`module:attribute` of the definition, the same for a class and for an entry point to it."""
    if entry.cls is not None:
        return f"{entry.cls.__module__}:{entry.cls.__qualname__.removesuffix('.worker')}"
    return entry.offer.value.replace(" ", "") if entry.offer else None


def workers_below(modules: Iterable[str]) -> Iterator[type[Worker]]:
    """Every worker whose `__module__` is one of these, or lies below one, in the order of definition.

    Only what can be reached by its name in its module counts: a definition that was replaced (by a reload,
    say), or that a function made, is not what the module offers.
    """
    roots = tuple(modules)
    for cls in _subclasses(Worker):
        below = any(cls.__module__ == root or cls.__module__.startswith(root + ".") for root in roots)
        if below and cls.perform is not Worker.perform and _reachable(cls):
            yield cls


def _subclasses(cls: type[Worker]) -> Iterator[type[Worker]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def _reachable(cls: type[Worker]) -> bool:
    found: object = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls
