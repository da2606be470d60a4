"""Blocking work off the event loop, in daemon threads.

asyncio's own pool is joined when the interpreter ends, so a database that hangs would hold up the exit. Invariant: what
is started here never does.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["detached"]

T = TypeVar("T")


async def detached(fn: Callable[[], T], *, timeout: float | None = None, name: str = "jobkit-detached") -> T:
    """Run `fn` in a daemon thread of its own; return its result or raise its error.

    After `timeout` seconds TimeoutError is raised and the thread is left alone.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[bool, T | BaseException]] = loop.create_future()

    def tell(value: tuple[bool, T | BaseException]) -> None:
        if not ended.done():
            ended.set_result(value)

    def work() -> None:
        try:
            value: tuple[bool, T | BaseException] = (True, fn())
        except BaseException as exc:  # noqa: BLE001 - crosses to the loop as a value
            value = (False, exc)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, value)

    threading.Thread(target=work, name=name, daemon=True).start()
    good, value = await asyncio.wait_for(ended, timeout)
    if not good:
        assert isinstance(value, BaseException)
        raise value
    return value  # type: ignore[return-value]
