"""procrastinate: `procrastinate worker` with LISTEN; finished jobs are kept, as is its default."""

from procrastinate import App, PsycopgConnector
from psycopg import AsyncConnection

from benchmarks.peers.base import URL, Adapter, Load, script
from benchmarks.peers.ticks import tick

app = App(connector=PsycopgConnector(conninfo=URL))


@app.task(queue="default")
async def noop_async(n: int) -> None:
    tick(n)


@app.task(queue="default")
def noop_sync(n: int) -> None:
    tick(n)


TASKS = {"async": noop_async, "sync": noop_sync}


class ProcrastinateAdapter(Adapter):
    async def open(self):
        await app.open_async()
        self.watch = await AsyncConnection.connect(URL, autocommit=True)

    async def close(self):
        await self.watch.close()
        await app.close_async()

    async def setup(self, load: Load):
        await app.schema_manager.apply_schema_async()

    async def enqueue_one(self, kind: str, number: int):
        await TASKS[kind].defer_async(n=number)

    async def enqueue_many(self, kind: str, count: int):
        await TASKS[kind].batch_defer_async(*({"n": number} for number in range(count)))

    async def drained(self) -> bool:
        found = await self.watch.execute(
            "SELECT 1 FROM procrastinate_jobs WHERE status <> 'succeeded' LIMIT 1"
        )
        return await found.fetchone() is None

    def worker(self, load: Load) -> list[list[str]]:
        command = script(
            "procrastinate", "--app", "benchmarks.peers.procrastinate_adapter.app", "--log-level", "warning"
        )
        command += ["worker", "--queues", ",".join(load.queues), "--concurrency", str(load.concurrency)]
        return [command for _ in range(load.processes)]


ADAPTER = ProcrastinateAdapter()
