"""Answer the harness from within a peer's environment.

Run as `python -m benchmarks.peers.serve MODULE`; one JSON object a line comes in on standard input
(`{"call": name, ...}`), one goes out. Every clock of an insert is read here, next to the call it times.
"""

import asyncio
import importlib
import inspect
import json
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.peers import ticks
from benchmarks.peers.base import Adapter, Load

POLL = 0.003
PATIENCE = 60.0


async def settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Server:
    """The calls the harness may make."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    async def setup(self, load: dict[str, Any]) -> None:
        await settle(self.adapter.setup(as_load(load)))

    async def worker(self, load: dict[str, Any]) -> list[list[str]]:
        return self.adapter.worker(as_load(load))

    async def single(self, kind: str, count: int, method: str = "enqueue_one") -> float:
        """Seconds that `count` inserts take, one after the other."""
        insert = getattr(self.adapter, method)
        await settle(insert(kind, 0))
        started = time.perf_counter()
        for number in range(1, count + 1):
            await settle(insert(kind, number))
        return time.perf_counter() - started

    async def bulk(self, kind: str, count: int, method: str = "enqueue_many") -> float:
        """Seconds that the insert of `count` jobs takes."""
        insert = getattr(self.adapter, method)
        started = time.perf_counter()
        await settle(insert(kind, count))
        return time.perf_counter() - started

    async def await_drained(self, expected: int) -> int:
        """Wait until `expected` jobs ran and all are recorded; the monotonic nanoseconds of that."""
        await self._until(partial(ran, expected))
        deadline = time.monotonic() + PATIENCE
        while not await settle(self.adapter.drained()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{expected} jobs ran, but not all were recorded after {PATIENCE:.0f} s")
            await asyncio.sleep(POLL)
        return time.monotonic_ns()

    async def latency(self, kind: str, count: int, method: str = "enqueue_one") -> dict[str, list[float]]:
        """Milliseconds from the insert's call, and from its return, to the start of each job."""
        insert = getattr(self.adapter, method)
        called: dict[int, int] = {}
        returned: dict[int, int] = {}
        before = ticks.count(path())
        for number in range(1, count + 1):
            await asyncio.sleep(random.uniform(0.02, 0.08))
            called[number] = time.monotonic_ns()
            await settle(insert(kind, number))
            returned[number] = time.monotonic_ns()
            await self._until(partial(ran, before + number))
        started = ticks.read(path())
        return {
            "call": [(started[number] - called[number]) / 1e6 for number in called],
            "commit": [(started[number] - returned[number]) / 1e6 for number in returned],
        }

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Wait on the tick file; gives up when it has not grown for PATIENCE seconds."""
        seen, since = ticks.count(path()), time.monotonic()
        while not reached():
            await asyncio.sleep(POLL)
            now = ticks.count(path())
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                raise TimeoutError(f"no job ran for {PATIENCE:.0f} s; {seen} had run")


def ran(expected: int) -> bool:
    return ticks.count(path()) >= expected


def path() -> str:
    return os.environ["BENCH_TICKS"]


def as_load(values: dict[str, Any]) -> Load:
    return Load(**{**values, "queues": tuple(values["queues"])})


async def answer(server: Server, line: str) -> dict[str, Any]:
    request = json.loads(line)
    try:
        return {"result": await getattr(server, request.pop("call"))(**request)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


async def serve(module: str) -> None:
    adapter: Adapter = importlib.import_module(f"benchmarks.peers.{module}").ADAPTER
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a peer prints must not reach the harness
    await settle(adapter.open())
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        out.write(json.dumps(await answer(Server(adapter), line)) + "\n")
    await settle(adapter.close())


def main() -> None:
    run: Callable[[Any], Any] = asyncio.run
    try:  # as the peers' own command lines do where uvloop is installed
        run = importlib.import_module("uvloop").run
    except ImportError:
        pass
    run(serve(sys.argv[1]))


if __name__ == "__main__":
    main()
