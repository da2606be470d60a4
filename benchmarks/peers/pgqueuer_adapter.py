"""pgqueuer: `pgq run` on one asyncpg connection a process.

As it comes, its concurrency is unbounded: the batch size is what `concurrency` sets. The variant
"bounded" caps it with --max-concurrent-tasks, which asks for a batch of at most half of the cap.
"""

from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.peers.base import URL, VARIANT, Adapter, Load, script
from benchmarks.peers.ticks import tick


@asynccontextmanager
async def manager(args=()):
    """The factory that `pgq run` calls; `args` are the names of further entrypoints."""
    connection = await asyncpg.connect(URL)
    try:
        queuer = PgQueuer(AsyncpgDriver(connection))

        async def noop(job):
            tick(int(job.payload))

        for name in ("noop", *args):
            queuer.entrypoint(name)(noop)
        yield queuer
    finally:
        await connection.close()


class PgQueuerAdapter(Adapter):
    async def open(self):
        self.connection = await asyncpg.connect(URL)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def close(self):
        await self.connection.close()

    async def setup(self, load: Load):
        await self.queries.install()

    async def enqueue_one(self, kind: str, number: int):
        await self.queries.enqueue("noop", b"%d" % number)

    async def enqueue_many(self, kind: str, count: int):
        payloads = [b"%d" % number for number in range(count)]
        await self.queries.enqueue(["noop"] * count, payloads, [0] * count)

    async def drained(self) -> bool:
        return await self.connection.fetchrow("SELECT 1 FROM pgqueuer LIMIT 1") is None

    def worker(self, load: Load) -> list[list[str]]:
        limits = ["--batch-size", str(load.concurrency)]
        if VARIANT == "bounded":
            limits = [
                "--batch-size",
                str(load.concurrency // 2),
                "--max-concurrent-tasks",
                str(load.concurrency),
            ]
        factory = "benchmarks.peers.pgqueuer_adapter:manager"
        further = [queue for queue in load.queues if queue != "default"]
        command = script("pgq", "run", *limits, "--log-level", "WARNING", factory)
        return [[*command, *(["--", *further] if further else [])] for _ in range(load.processes)]


ADAPTER = PgQueuerAdapter()
