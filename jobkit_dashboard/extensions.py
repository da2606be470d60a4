"""What plugins add to the dashboard, each in isolation.

Invariant: a plugin that raises, is slow, or gives nonsense costs a page at most 200 ms and one line on the plugins
page; what others add, and the page, stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from jobkit._hooktable import Implementation
from jobkit.core import Core
from jobkit_dashboard.extend import Action, NavItem, Panel, PluginContext, PluginRoute

if TYPE_CHECKING:
    from jobkit.admin.views import JobDetail
    from jobkit_dashboard.context import Context

__all__ = ["Brought", "DrawnPanel", "Extensions"]

S = TypeVar("S")
T = TypeVar("T")
PATIENCE: Final = 0.2
PAGE_PATIENCE: Final = 2.0
_STUCK: Final = 8
"""So many calls of plugins may hang before no plugin is asked any more until one returns."""


@dataclass(frozen=True, slots=True)
class Brought(Generic[S]):
    """Something with the plugin that it comes from."""

    plugin: str
    item: S


@dataclass(frozen=True, slots=True)
class DrawnPanel:
    """A panel's content, or why there is none."""

    plugin: str
    panel: Panel
    data: dict[str, object]
    error: str = ""


class Extensions:
    """The plugins of one app, as the dashboard sees them."""

    def __init__(self, app: Core) -> None:
        self._app = app
        self._pool = ThreadPoolExecutor(_STUCK, "jobkit-dashboard-plugin")
        self._busy = 0
        self._lock = Lock()

    def package_of(self, plugin: str) -> str | None:
        """The package whose `templates` folder is the plugin's."""
        for hook in ("panels", "routes", "nav", "job_actions", "assets"):
            for found in self._app.registry.implementations(f"jobkit_dashboard_{hook}"):
                if found.plugin == plugin:
                    module = found.function.__module__
                    return module if _is_package(module) else module.rpartition(".")[0] or None
        return None

    def nav(self) -> list[Brought[NavItem]]:
        """Links for the navigation."""
        items = list(self._gather("jobkit_dashboard_nav", NavItem))
        return sorted(items, key=lambda brought: (brought.item.order, brought.item.label))

    def routes(self) -> list[Brought[PluginRoute]]:
        """Pages of plugins."""
        return list(self._gather("jobkit_dashboard_routes", PluginRoute))

    def badge(self, brought: Brought[NavItem]) -> str:
        """The short text beside a link."""
        if brought.item.badge is None:
            return ""
        answer = self.call(brought.plugin, "badge", brought.item.badge)
        return str(answer)[:12] if answer is not None else ""

    def actions(self, ctx: Context, job: JobDetail) -> list[Brought[Action]]:
        """What plugins let this actor do with a job."""
        found = self._of_job("jobkit_dashboard_job_actions", Action, ctx, job)
        return [brought for brought in found if ctx.may(brought.item.permission)]

    def panels(self, ctx: Context, job: JobDetail) -> list[DrawnPanel]:
        """Panels for a job's page, drawn as far as they can be."""
        found = [
            b for b in self._of_job("jobkit_dashboard_panels", Panel, ctx, job) if ctx.may(b.item.permission)
        ]
        found.sort(key=lambda brought: (brought.item.order, brought.item.title))
        return [self._drawn(brought) for brought in found]

    def _drawn(self, brought: Brought[Panel]) -> DrawnPanel:
        try:
            data = dict(self._timed(brought.item.data, PATIENCE))
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises
            self.failed(brought.plugin, f"panel {brought.item.id}", error)
            return DrawnPanel(brought.plugin, brought.item, {}, "it failed; see the plugins page")
        return DrawnPanel(brought.plugin, brought.item, data)

    def context(self, plugin: str, ctx: Context) -> PluginContext:
        """What the plugin's code gets."""
        return PluginContext(
            plugin,
            ctx.actor,
            ctx.reads,
            ctx.now,
            ctx.request.request_id,
            ctx.url,
            ctx.may,
            ctx.query,
            ctx.form,
        )

    def call(self, plugin: str, where: str, function: Callable[[], T], seconds: float = PATIENCE) -> T | None:
        """What the function gives; None where it raises or takes too long, which is logged and counted."""
        try:
            return self._timed(function, seconds)
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises
            self.failed(plugin, where, error)
            return None

    def failed(self, plugin: str, where: str, error: BaseException) -> None:
        """Log and count a failure."""
        self._app.registry.failed(plugin, where, error)

    def _timed(self, function: Callable[[], T], seconds: float) -> T:
        with self._lock:
            if self._busy >= _STUCK:
                raise TimeoutError("too many calls of plugins hang; it was not asked")
            self._busy += 1
        future: Future[T] = self._pool.submit(function)
        future.add_done_callback(self._done)
        try:
            return future.result(seconds)
        except TimeoutError:
            if future.done():
                raise
            raise TimeoutError(f"it took longer than {seconds * 1000:.0f} ms") from None

    def _done(self, future: Future[T]) -> None:
        with self._lock:
            self._busy -= 1

    def _of_job(self, hook: str, kind: type[T], ctx: Context, job: JobDetail) -> Iterator[Brought[T]]:
        for found in self._app.registry.implementations(hook):
            answer = self._asked(found, {"ctx": self.context(found.plugin, ctx), "job": job})
            yield from self._checked(found.plugin, hook, kind, answer)

    def _asked(self, found: Implementation, given: Mapping[str, object]) -> list[object]:
        hook = getattr(found.function, "__name__", "hook")
        return self.call(found.plugin, hook, lambda: _listed(found.call(given))) or []

    def _gather(self, hook: str, kind: type[T]) -> Iterator[Brought[T]]:
        for found in reversed(self._app.registry.implementations(hook)):
            yield from self._checked(found.plugin, hook, kind, self._asked(found, {}))

    def _checked(
        self, plugin: str, hook: str, kind: type[T], items: Sequence[object]
    ) -> Iterator[Brought[T]]:
        for item in items:
            if isinstance(item, kind):
                yield Brought(plugin, item)
            else:
                self.failed(plugin, hook, TypeError(f"it gave {item!r:.100}, expected a {kind.__name__}"))


def _listed(answer: object) -> list[object]:
    return [] if answer is None else list(cast("Iterable[object]", answer))


def _is_package(module: str) -> bool:
    import sys

    return hasattr(sys.modules.get(module), "__path__")
