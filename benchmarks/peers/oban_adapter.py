"""oban: `oban start`, one process a command; its connection pool and settings are its defaults."""

from oban import Oban, worker
from oban.schema import install
from psycopg import AsyncConnection

from benchmarks.peers.base import URL, Adapter, Load, script
from benchmarks.peers.ticks import tick


@worker(queue="default")
class Noop:
    async def process(self, job):
        tick(job.args["n"])


class ObanAdapter(Adapter):
    async def open(self):
        self.pool = await Oban.create_pool(URL)
        self.oban = Oban(pool=self.pool)
        self.watch = await AsyncConnection.connect(URL, autocommit=True)

    async def close(self):
        await self.watch.close()
        await self.pool.close()

    async def setup(self, load: Load):
        await install(self.pool)

    async def enqueue_one(self, kind: str, number: int):
        await self.oban.enqueue(Noop.new({"n": number}))

    async def enqueue_many(self, kind: str, count: int):
        await self.oban.enqueue_many(Noop.new({"n": number}) for number in range(count))

    async def drained(self) -> bool:
        found = await self.watch.execute("SELECT 1 FROM oban_jobs WHERE state <> 'completed' LIMIT 1")
        return await found.fetchone() is None

    def worker(self, load: Load) -> list[list[str]]:
        queues = ",".join(f"{queue}:{load.concurrency}" for queue in load.queues)
        command = script("oban", "start", "--dsn", URL, "--queues", queues, "--log-level", "WARNING")
        return [[*command, "--node", f"bench-{index}"] for index in range(load.processes)]


ADAPTER = ObanAdapter()
