"""Calls hook implementations one by one.

Invariant: `observe`, `first` and `gather` never raise for a plugin's sake; `ask` and `fold` raise what the
plugin raised, with its name in a note. A hook that nobody implements costs one look-up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import pluggy

from jobkit import events
from jobkit._plugins import PluginState, brief

if TYPE_CHECKING:
    from jobkit.clock import Clock

__all__ = ["HookTable", "Implementation"]

log = logging.getLogger("jobkit.plugins")
T = TypeVar("T")

QUIET: Final = 60.0
"""Seconds between two log lines about the same hook of the same plugin."""

FOLDED: Final = {"jobkit_job_inserting": "job"}
"""Hooks that change a value, with the argument that carries it."""


@dataclass(frozen=True, slots=True)
class Implementation:
    """One plugin's function for one hook; `arguments` are the names it asks for."""

    plugin: str
    function: Callable[..., object]
    arguments: tuple[str, ...]

    def call(self, given: Mapping[str, object]) -> object:
        """Call it with those of the given arguments that it asks for."""
        return self.function(*[given[name] for name in self.arguments])


@dataclass(slots=True)
class _Silence:
    until: float
    unsaid: int = 0


class HookTable:
    """The implementations of the active plugins, in the order in which they are asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.table: Mapping[str, tuple[Implementation, ...]] = {}
        """Hooks that have an implementation; replaced whole, never changed."""
        self._states: Mapping[str, PluginState] = {}
        self._silences: dict[tuple[str, str], _Silence] = {}
        self._lock = threading.Lock()
        self.redact: Callable[[str], str] = str

    def after_fork(self) -> None:
        """In a forked child: no thread of the parent lives here to release its locks."""
        self._lock = threading.Lock()

    def rebuild(self, manager: pluggy.PluginManager, states: Mapping[str, PluginState]) -> None:
        """Take over what is registered now; `states` are the active plugins by name."""
        table = {}
        for name, caller in vars(manager.hook).items():
            impls = caller.get_hookimpls() if isinstance(caller, pluggy.HookCaller) else ()
            if impls:
                table[name] = tuple(
                    Implementation(impl.plugin_name, impl.function, tuple(impl.argnames))
                    for impl in reversed(impls)
                )
        self.table, self._states = table, states

    def of(self, hook: str) -> tuple[Implementation, ...]:
        """The implementations of a hook, first asked first."""
        return self.table.get(hook, ())

    def observe(self, hook: str, given: Mapping[str, object]) -> None:
        """Call all; nothing that one raises reaches the caller or the others."""
        for impl in self.table.get(hook, ()):
            try:
                impl.call(given)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - an observer may raise anything, SystemExit too
                self.failed(impl.plugin, hook, error)

    def gather(self, hook: str, given: Mapping[str, object]) -> list[tuple[str, object]]:
        """What each plugin answered, with its name; those that raise or answer None are left out."""
        answers = []
        for impl in self.table.get(hook, ()):
            try:
                answer = impl.call(given)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - as above
                self.failed(impl.plugin, hook, error)
            else:
                if answer is not None:
                    answers.append((impl.plugin, answer))
        return answers

    def first(
        self, hook: str, given: Mapping[str, object], accept: Callable[[object], bool] | None
    ) -> object | None:
        """The first answer that is neither None nor refused by `accept`; one that raises or is refused is
        reported.
        """
        for impl in self.table.get(hook, ()):
            try:
                answer = impl.call(given)
                if answer is not None and accept is not None and not accept(answer):
                    raise TypeError(f"{hook} cannot answer {answer!r}")
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - as above
                self.failed(impl.plugin, hook, error)
            else:
                if answer is not None:
                    return answer
        return None

    def ask(self, hook: str, given: Mapping[str, object]) -> list[tuple[str, object]]:
        """What each plugin answered, None left out; raises what one raises, with its name in a note."""
        answers = []
        for impl in self.table.get(hook, ()):
            answer = self._noted(impl, hook, given)
            if answer is not None:
                answers.append((impl.plugin, answer))
        return answers

    def fold(self, hook: str, value: T, given: Mapping[str, object]) -> T:
        """Pass a value through all; None keeps it; raises as `ask`, and TypeError for a value of another
        class.
        """
        argument, kind = FOLDED[hook], type(value)
        for impl in self.table.get(hook, ()):
            answer = self._noted(impl, hook, {**given, argument: value})
            if answer is None:
                continue
            if not isinstance(answer, kind):
                raise TypeError(
                    f"{hook} of the plugin {impl.plugin!r} returned a {type(answer).__name__}; "
                    f"expected a {kind.__name__} or None"
                )
            value = answer
        return value

    @staticmethod
    def _noted(impl: Implementation, hook: str, given: Mapping[str, object]) -> object:
        try:
            return impl.call(given)
        except Exception as error:
            error.add_note(f"raised by {hook} of the plugin {impl.plugin!r}")
            raise

    def failed(self, plugin: str, where: str, error: BaseException) -> None:
        """Count and log what a plugin raised, at most once a minute for each hook; tell the observers of
        events.
        """
        text = self._redacted(error)
        state = self._states.get(plugin)
        with self._lock:
            if state is not None:
                state.failures += 1
                state.last_failure = f"{where}: {text}"
            unsaid = self._unsaid(plugin, where)
        if unsaid is None:
            return
        more = f" ({unsaid} more like it since the last line)" if unsaid else ""
        log.error(
            "plugin %s: %s raised %s%s", plugin, where, text, more, extra={"plugin": plugin, "hook": where}
        )
        if where != "jobkit_event":
            event = events.PluginFailed(at=self._clock.now(), plugin=plugin, where=where, error=text)
            self.observe("jobkit_event", {"event": event})

    def _unsaid(self, plugin: str, where: str) -> int | None:
        """How many failures went unsaid before this one, or None if this one goes unsaid as well."""
        now = self._clock.monotonic()
        silence = self._silences.get((plugin, where))
        if silence is not None and now < silence.until:
            silence.unsaid += 1
            return None
        self._silences[plugin, where] = _Silence(now + QUIET)
        return silence.unsaid if silence else 0

    def _redacted(self, error: BaseException) -> str:
        try:
            return self.redact(brief(error))
        except Exception:  # noqa: BLE001 - what cannot be redacted is not shown
            return type(error).__name__
