"""What plugins open for the life of a node, and close after its last job.

Invariant: what was entered is left, in reverse order, whatever another one raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from jobkit.errors import ConfigError

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["Lifespans"]

EXIT: float = 10.0
"""Seconds that one lifespan has to close."""


class Lifespans:
    """The `jobkit_lifespan` contexts of one process, entered and left on its event loop."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._entered: list[tuple[str, AbstractAsyncContextManager[object]]] = []
        self._resources: dict[str, object] = {}
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    @property
    def resources(self) -> Mapping[str, object]:
        """What they yielded, merged; becomes `job.resources`."""
        return MappingProxyType(self._resources)

    async def open(self) -> None:
        """Enter all. Raises what one raises, and ConfigError for a key that two yield; what was entered is left."""
        if not self._core.registry.has("jobkit_lifespan"):
            return
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(entered), name="jobkit-lifespans")
        await entered

    async def close(self) -> None:
        """Leave all, in the task that entered them; what one raises is reported and stops nothing."""
        if self._task is not None:
            self._over.set()
            await self._task

    async def _live(self, entered: asyncio.Future[None]) -> None:
        """One task from the first entry to the last exit: some contexts insist on it."""
        try:
            for implementation in reversed(self._core.registry.implementations("jobkit_lifespan")):
                manager = implementation.call({"app": self._core})
                if manager is not None:
                    await self._enter(implementation.plugin, manager)
        except BaseException as exc:  # noqa: BLE001 - it belongs to who waits for the entry
            await self._leave()
            entered.set_exception(exc)
            return
        entered.set_result(None)
        await self._over.wait()
        await self._leave()

    async def _enter(self, plugin: str, manager: object) -> None:
        if not isinstance(manager, AbstractAsyncContextManager):
            found = type(manager).__name__
            raise ConfigError(
                f"jobkit_lifespan of plugin {plugin!r} gave {found}, expected an async context manager"
            )
        yielded = await manager.__aenter__()
        self._entered.append((plugin, manager))
        if yielded is None:
            return
        if not isinstance(yielded, Mapping):
            raise ConfigError(
                f"jobkit_lifespan of plugin {plugin!r} yielded {type(yielded).__name__}, not a mapping"
            )
        for key, value in cast("Mapping[str, object]", yielded).items():
            if key in self._resources:
                raise ConfigError(f"jobkit_lifespan: {key!r} is yielded by {plugin!r} and by another plugin")
            self._resources[key] = value

    async def _leave(self) -> None:
        while self._entered:
            plugin, manager = self._entered.pop()
            try:
                async with asyncio.timeout(EXIT):
                    await manager.__aexit__(None, None, None)
            except Exception as exc:  # noqa: BLE001 - plugin code
                self._core.registry.failed(plugin, "jobkit_lifespan", exc)
        self._resources.clear()
