"""huey: `huey_consumer` on a SQLite file (WAL, synchronous=FULL) or on Redis, threads or two processes.

It deletes a job before it runs it, so that a crash loses the running ones.
"""

from huey import RedisHuey, SqliteHuey

from benchmarks.peers.base import URL, Adapter, Load, script
from benchmarks.peers.ticks import tick

huey = (
    RedisHuey("bench", url=URL) if URL.startswith("redis:") else SqliteHuey("bench", filename=URL, fsync=True)
)


@huey.task()
def noop(n: int) -> None:
    tick(n)


class HueyAdapter(Adapter):
    def setup(self, load: Load) -> None:
        huey.flush()

    def enqueue_one(self, kind: str, number: int) -> None:
        noop(number)

    def enqueue_many(self, kind: str, count: int) -> None:
        for number in range(count):
            noop(number)

    def drained(self) -> bool:
        return huey.pending_count() == 0

    def worker(self, load: Load) -> list[list[str]]:
        model, workers = ("thread", load.concurrency) if load.processes == 1 else ("process", load.processes)
        command = script("huey_consumer", "benchmarks.peers.huey_adapter.huey", "--quiet")
        return [[*command, "--worker-type", model, "--workers", str(workers)]]


ADAPTER = HueyAdapter()
