"""One plugin on its way in: loaded, looked at in a manager of its own, and described.

Invariant: whatever is wrong with a plugin is found before it touches the app, and stands in its
`PluginState`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final, Literal, TypeAlias

import pluggy

from jobkit import hookspecs
from jobkit._hooktypes import API, PluginInfo
from jobkit.errors import ConfigError, JobkitError

__all__ = ["Candidate", "Kind", "PluginRefused", "PluginState", "SpecBook", "Status", "brief"]

Status: TypeAlias = Literal["active", "replaced", "disabled", "skipped", "duplicate"]
Kind: TypeAlias = Literal["built-in", "distribution", "import", "given"]

_SIMILAR: Final = 0.75


class PluginRefused(JobkitError):
    """Why a plugin is skipped; the text is shown to people."""


@dataclass(slots=True)
class PluginState:
    """One plugin as `jobkit plugins` shows it.

    `status` says whether it takes part; `error` says why it does not. `notes` are remarks on an active
    plugin; `failures` counts hooks of it that raised in this process, `last_failure` is the newest one's
    text (redacted).
    """

    name: str
    distribution: str | None
    version: str | None
    place: str
    kind: Kind
    status: Status = "active"
    error: str = ""
    hooks: tuple[str, ...] = ()
    settings: object = None
    replaces: str | None = None
    replaced_by: str | None = None
    requires: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    failures: int = 0
    last_failure: str = ""

    @property
    def source(self) -> str:
        """The plugin with where it comes from, for messages."""
        return f"{self.name!r} ({' '.join(filter(None, (self.distribution, self.version))) or self.place})"


@dataclass(slots=True, eq=False)
class Candidate:
    """A plugin that may become active. `scratch` is the manager it was looked at in."""

    state: PluginState
    load: Callable[[], object]
    plugin: object = None
    info: PluginInfo = field(default_factory=lambda: PluginInfo(api=API))
    scratch: pluggy.PluginManager | None = None
    probed: bool = False
    final: bool = False
    workers: list[object] = field(default_factory=list)

    def refuse(self, why: str, status: Status = "skipped") -> None:
        """Take it out for good, with the reason."""
        self.set_aside(why, status)
        self.final = True

    def set_aside(self, why: str, status: Status = "skipped") -> None:
        """Take it out as long as the others are what they are."""
        self.state.status, self.state.error = status, why

    def take_back(self) -> None:
        """Undo `set_aside`."""
        if not self.final:
            self.state.status, self.state.error, self.state.replaced_by = "active", "", None

    @property
    def usable(self) -> bool:
        """False once it was taken out for a reason of its own."""
        return self.state.status in ("active", "replaced")


def brief(error: BaseException) -> str:
    """An error in one line: class and text, whatever the text is."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error itself
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}".rstrip(": ")


class SpecBook:
    """All hook specifications: jobkit's own and those that plugins bring."""

    def __init__(self) -> None:
        self._modules: list[ModuleType] = [hookspecs]
        self._switched_off: tuple[str, ...] = ()

    @property
    def modules(self) -> Sequence[ModuleType]:
        """The modules that hold them."""
        return self._modules

    def allow(self, package: str) -> None:
        """Hooks named after this top-level package are not misspelt: its plugin is switched off."""
        if package.startswith("jobkit_"):
            self._switched_off += (package,)

    def add_from(self, candidate: Candidate) -> None:
        """Import and add the specifications that a plugin brings; raises PluginRefused."""
        if candidate.info.hookspecs is None:
            return
        module = _import_specs(candidate.info.hookspecs)
        if module in self._modules:
            return
        try:
            names = _specified(self.manager(module)) - _specified(self.manager())
        except ValueError as error:
            raise PluginRefused(
                f"its hookspecs {candidate.info.hookspecs} cannot be added: {error}"
            ) from None
        if not names:
            raise PluginRefused(f"its hookspecs {candidate.info.hookspecs} hold no hook specification")
        self._modules.append(module)

    def manager(self, *more: ModuleType) -> pluggy.PluginManager:
        """A manager that knows all specifications and no plugin."""
        manager = pluggy.PluginManager("jobkit")
        for module in (*self._modules, *more):
            manager.add_hookspecs(module)
        return manager

    def complaint(self, hook: str, known: Collection[str]) -> str | None:
        """What to say about a hook that is not specified, or None where its package may just be absent."""
        near = difflib.get_close_matches(hook, known, n=1, cutoff=_SIMILAR)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        if not near and hook.startswith(self._switched_off):
            return None
        prefix = re.match(r"jobkit_[a-z0-9]+_(?=.)", hook)
        if near or prefix is None or any(name.startswith(prefix[0]) for name in known):
            return f"there is no hook {hook!r}{hint}"
        return None


def _import_specs(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginRefused(f"its hookspecs {name} cannot be imported: {brief(error)}") from error


def _specified(manager: pluggy.PluginManager) -> set[str]:
    return {name for name in vars(manager.hook) if not name.startswith("_")}


# -- loading and looking --


def load(candidate: Candidate) -> None:
    """Import the plugin and read its `jobkit_plugin`; raises PluginRefused."""
    try:
        candidate.plugin = candidate.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginRefused(f"{candidate.state.place} cannot be imported: {brief(error)}") from error
    info = getattr(candidate.plugin, "jobkit_plugin", candidate.info)
    if not isinstance(info, PluginInfo):
        raise PluginRefused(f"its jobkit_plugin is a {type(info).__name__}, not a PluginInfo")
    if info.api != API:
        raise PluginRefused(f"it was written for api {info.api} of the hooks; this jobkit has api {API}")
    candidate.info = info
    candidate.state.replaces, candidate.state.requires = info.replaces, tuple(info.requires)


def inspect_hooks(candidate: Candidate, specs: SpecBook) -> None:
    """Register the plugin in a manager of its own; raises PluginRefused for whatever is wrong with its
    hooks.
    """
    manager = specs.manager()
    known = _specified(manager)
    try:
        manager.register(candidate.plugin, candidate.state.name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginRefused(_explained(error)) from error
    hooks = tuple(sorted(_implementations(manager, candidate.plugin)))
    for impl in (impl for hook in hooks for impl in getattr(manager.hook, hook).get_hookimpls()):
        _check(impl, known, specs)
    candidate.scratch, candidate.state.hooks = manager, hooks
    candidate.state.notes = list(_remarks(candidate, hooks))


def _explained(error: BaseException) -> str:
    if isinstance(error, pluggy.PluginValidationError):
        return re.sub(r"\s*\n\s*", "; ", str(error.args[0] if error.args else error).strip())
    return f"it cannot be registered: {brief(error)}"


def _implementations(manager: pluggy.PluginManager, plugin: object) -> Iterator[str]:
    for caller in manager.get_hookcallers(plugin) or ():
        yield caller.name


def _check(impl: pluggy.HookImpl, known: Collection[str], specs: SpecBook) -> None:
    name = getattr(impl.function, "__name__", "?")
    hook = impl.opts.get("specname") or name
    if hook not in known and not impl.optionalhook:
        complaint = specs.complaint(hook, known)
        if complaint:
            raise PluginRefused(complaint)
    if impl.wrapper or impl.hookwrapper:
        raise PluginRefused(f"{hook} is a hook wrapper; jobkit asks plugins one by one and has no wrappers")
    if inspect.iscoroutinefunction(impl.function) or inspect.isasyncgenfunction(impl.function):
        remedy = (
            "; decorate it with @asynccontextmanager below @hookimpl" if hook == "jobkit_lifespan" else ""
        )
        raise PluginRefused(f"{hook} is async, and hooks are called as plain functions{remedy}")


def _remarks(candidate: Candidate, hooks: Sequence[str]) -> Iterator[str]:
    if not hooks and candidate.info.hookspecs is None:
        yield "implements no hook"
    for name in sorted(set(_unmarked(candidate.plugin)) - set(hooks)):
        yield f"{name} is not marked with @hookimpl, so it is never called"


def _unmarked(plugin: object) -> Iterator[str]:
    home = plugin.__name__ if isinstance(plugin, ModuleType) else None
    for name, value in vars(plugin).items() if hasattr(plugin, "__dict__") else ():
        own = home is None or getattr(value, "__module__", home) == home
        if (
            own
            and name.startswith("jobkit_")
            and inspect.isroutine(value)
            and not hasattr(value, "jobkit_impl")
        ):
            yield name


def looks_like_plugin(module: ModuleType) -> bool:
    """True for an imported module that has hook implementations, or seems to mean to have some."""
    marked = any(hasattr(value, "jobkit_impl") for value in list(vars(module).values()) if callable(value))
    return marked or hasattr(module, "jobkit_plugin") or any(_unmarked(module))


def probe(candidate: Candidate, config: object) -> None:
    """Let the plugin see the configuration and name its workers; raises PluginRefused.

    Once per app, before anything else of the plugin runs.
    """
    if candidate.probed or candidate.scratch is None:
        return
    hook = candidate.scratch.hook
    try:
        hook.jobkit_configure(config=config)
    except (KeyboardInterrupt, ConfigError):
        raise
    except BaseException as error:
        raise PluginRefused(f"its jobkit_configure raised {brief(error)}") from error
    try:
        candidate.workers = [worker for given in hook.jobkit_workers() for worker in given]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginRefused(f"its jobkit_workers raised {brief(error)}") from error
    candidate.probed = True
