"""Brings plugins in: makes candidates of what was found or given, looks at each, and settles who is active.

Invariant: a plugin's own fault takes out that plugin alone; only the user's configuration can raise from
here.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from jobkit import _plugins
from jobkit._discovery import Offer
from jobkit._names import check_name
from jobkit._plugins import Candidate, Kind, PluginRefused, PluginState, SpecBook, Status, brief
from jobkit._standing import decide, disable
from jobkit.config import Config
from jobkit.errors import ConfigError

__all__ = ["Loader", "Named", "import_modules"]

log = logging.getLogger("jobkit.plugins")

_LEVELS: Final[dict[Status, int]] = {
    "skipped": logging.WARNING,
    "duplicate": logging.WARNING,
    "replaced": logging.INFO,
    "disabled": logging.DEBUG,
}


@dataclass(frozen=True, slots=True)
class Named:
    """A plugin given in code with a name of its own."""

    name: str
    plugin: object


def import_modules(names: Iterable[str]) -> list[ModuleType]:
    """Import the modules of `imports`; the working directory is importable. Raises ConfigError naming the
    module.
    """
    modules: list[ModuleType] = []
    for name in names:
        if not modules and "" not in sys.path and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            modules.append(importlib.import_module(name))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ConfigError(f"imports: the module {name!r} cannot be imported: {brief(error)}") from error
    return modules


class Loader:
    """All plugins of one app, active or not, in their order."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._specs = SpecBook()
        self._told: set[tuple[int, str]] = set()
        self.candidates: list[Candidate] = []

    @property
    def spec_modules(self) -> Iterable[ModuleType]:
        """The modules with hook specifications, jobkit's own first."""
        return self._specs.modules

    def offered(self, offer: Offer) -> Candidate:
        """A candidate for an entry point."""
        if offer.name in self._config.disable:
            self._specs.allow(offer.value.split(":")[0].split(".")[0])
        kind: Kind = "built-in" if offer.built_in else "distribution"
        return Candidate(
            PluginState(offer.name, offer.distribution, offer.version, offer.value, kind), offer.load
        )

    def imported(self, module: ModuleType) -> Candidate:
        """A candidate for a module of `imports`."""
        place = getattr(module, "__file__", None) or module.__name__
        return Candidate(PluginState(module.__name__, None, None, place, "import"), lambda: module)

    def given(self, plugin: object) -> Candidate:
        """A candidate for an object given in code; its name is made unique among those."""
        named = plugin if isinstance(plugin, Named) else Named(_own_name(plugin), plugin)
        name, count = named.name, 1
        while any(c.state.kind == "given" and c.state.name == name for c in self.candidates):
            count += 1
            name = f"{named.name}-{count}"
        place = getattr(named.plugin, "__module__", None) or named.name
        return Candidate(PluginState(name, None, None, place, "given"), lambda: named.plugin)

    def take(self, *candidates: Candidate) -> None:
        """Load and look at new candidates; those that are disabled are not even imported."""
        self.candidates += candidates
        disable(candidates, self._config.disable)
        for candidate in candidates:
            self._try(candidate, lambda c: check_name(c.state.name, "plugin", PluginRefused))
            self._try(candidate, _plugins.load)
        disable(candidates, self._config.disable)
        for candidate in candidates:
            self._try(candidate, self._specs.add_from)
        for candidate in candidates:
            self._try(candidate, lambda c: _plugins.inspect_hooks(c, self._specs))

    def settle(self) -> list[Candidate]:
        """The active candidates, each having seen the configuration; says in the log who is not, and why."""
        while True:
            active = decide(self.candidates, self._config.replace)
            new = [candidate for candidate in active if not candidate.probed]
            outcomes = [self._try(candidate, self._probe) for candidate in new]
            if all(outcomes):
                break
        for candidate in self.candidates:
            self._tell(candidate)
        return active

    def _probe(self, candidate: Candidate) -> None:
        name, struct = candidate.state.name, candidate.info.settings
        if struct is not None:
            try:
                candidate.state.settings = self._config.plugin(name, struct)
            except ConfigError as error:
                if name in self._config.plugins:
                    raise
                raise PluginRefused(str(error)) from error
        _plugins.probe(candidate, self._config)

    @staticmethod
    def _try(candidate: Candidate, step: Callable[[Candidate], object]) -> bool:
        """Take one step with a candidate that is still in; False if the step refused it."""
        if not candidate.usable:
            return True
        try:
            step(candidate)
        except PluginRefused as refusal:
            candidate.refuse(str(refusal))
            return False
        return True

    def _tell(self, candidate: Candidate) -> None:
        state = candidate.state
        text = state.error or (f"replaced by {state.replaced_by}" if state.replaced_by else "")
        for line in [text] if text else [f"note: {note}" for note in state.notes]:
            if (id(candidate), line) not in self._told:
                self._told.add((id(candidate), line))
                level = _LEVELS.get(state.status, logging.WARNING)
                log.log(level, "plugin %s is %s: %s", state.source, state.status, line)


def _own_name(plugin: object) -> str:
    name = getattr(plugin, "__name__", None)
    return name if isinstance(name, str) else type(plugin).__name__
