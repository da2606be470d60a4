"""An event loop of our own, which job code cannot end.

A task that raises SystemExit or KeyboardInterrupt ends the loop it runs on, even where the job that started it is
guarded. Invariant: such a loop is entered again until the main coroutine itself has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TypeVar

from jobkit.runtime.logs import log

__all__ = ["run_on_own_loop"]

T = TypeVar("T")


def run_on_own_loop(main: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run `main()` on a new loop in this thread; return its result or raise its error.

    What is left on the loop afterwards is abandoned, not awaited: job code that ignores its cancellation must not hold
    up the exit.
    """
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        task = loop.create_task(main())
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as exc:
                if task.done():
                    raise
                log.error("a task that a job had started raised %s; the loop goes on", type(exc).__name__)
    finally:
        with contextlib.suppress(Exception):
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), 0.5))
        asyncio.set_event_loop(None)
        _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop without the complaints about tasks that were abandoned on purpose."""
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
