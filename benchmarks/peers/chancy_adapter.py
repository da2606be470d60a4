"""chancy: `chancy worker start`, its asyncio executor for async jobs and its thread executor for sync ones.

Eager polling is on, which is not its default: without it a full queue is looked at every five seconds.
"""

import logging

from chancy import Chancy, Queue, job
from psycopg import AsyncConnection

from benchmarks.peers.base import URL, Adapter, Load, script
from benchmarks.peers.ticks import tick

log = logging.getLogger("chancy")
log.setLevel(logging.WARNING)
chancy = Chancy(URL, log=log)


@job(queue="default")
async def noop_async(*, n: int) -> None:
    tick(n)


@job(queue="default")
def noop_sync(*, n: int) -> None:
    tick(n)


JOBS = {"async": noop_async.job, "sync": noop_sync.job}
EXECUTORS = {"async": Chancy.Executor.Async, "sync": Chancy.Executor.Threaded}


class ChancyAdapter(Adapter):
    async def open(self):
        await chancy.pool.open()
        self.watch = await AsyncConnection.connect(URL, autocommit=True)

    async def close(self):
        await self.watch.close()
        await chancy.pool.close()

    async def setup(self, load: Load):
        await chancy.migrate()
        for name in load.queues:
            await chancy.declare(
                Queue(name, concurrency=load.concurrency, executor=EXECUTORS[load.kind], eager_polling=True)
            )

    async def enqueue_one(self, kind: str, number: int):
        await chancy.push(JOBS[kind].with_kwargs(n=number))

    async def enqueue_many(self, kind: str, count: int):
        jobs = [JOBS[kind].with_kwargs(n=number) for number in range(count)]
        async for _ in chancy.push_many(jobs):
            pass

    async def drained(self) -> bool:
        found = await self.watch.execute("SELECT 1 FROM chancy_jobs WHERE state <> 'succeeded' LIMIT 1")
        return await found.fetchone() is None

    def worker(self, load: Load) -> list[list[str]]:
        command = script("chancy", "--app", "benchmarks.peers.chancy_adapter.chancy", "worker", "start")
        return [[*command, "--worker-id", f"bench-{index}"] for index in range(load.processes)]


ADAPTER = ChancyAdapter()
