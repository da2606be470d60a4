"""What `jobkit run` says of itself when it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from jobkit.config import QueueConfig, mask_url

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["banner"]


def banner(core: Core, queues: Mapping[str, QueueConfig]) -> list[str]:
    """Version, database, queues, workers, plugins, schedules; each replaced built-in and each skipped plugin by
    name.
    """
    return [
        f"jobkit {version('jobkit-queue')}",
        *(f"  {name:10}{text}" for name, text in _facts(core, queues)),
    ]


def _facts(core: Core, queues: Mapping[str, QueueConfig]) -> Iterator[tuple[str, str]]:
    registry = core.registry
    yield "database", mask_url(core.config.database_url)
    if core.config.file is not None:
        yield "config", str(core.config.file)
    yield "queues", ", ".join(f"{name}:{config.limit}" for name, config in queues.items()) or "none"
    workers = registry.workers
    yield "workers", f"{len(workers)}: {_some(sorted(workers))}" if workers else "none"
    yield "plugins", _some([p.name for p in registry.plugins if p.status == "active"])
    schedules = registry.schedules()
    if schedules:
        yield "cron", f"{len(schedules)}: {_some([entry.recurring.key for entry in schedules])}"
    for plugin in registry.plugins:
        if plugin.status == "active" and plugin.replaces:
            yield "replaced", f"{plugin.replaces!r} by {plugin.source}"
        elif plugin.status == "disabled":
            yield "disabled", plugin.source
        elif plugin.status in ("skipped", "duplicate"):
            yield plugin.status, f"{plugin.source}: {plugin.error}"


def _some(names: list[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
