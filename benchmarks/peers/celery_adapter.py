"""celery on Redis: a thread pool in one process, or prefork for two; no result backend."""

from celery import Celery
from redis import Redis

from benchmarks.peers.base import URL, Adapter, Load, script
from benchmarks.peers.ticks import tick

app = Celery("bench", broker=URL)
app.conf.update(task_ignore_result=True, task_default_queue="default")


@app.task(name="noop")
def noop(n: int) -> None:
    tick(n)


class CeleryAdapter(Adapter):
    def open(self) -> None:
        self.redis = Redis.from_url(URL)

    def setup(self, load: Load) -> None:
        self.redis.flushall()

    def enqueue_one(self, kind: str, number: int) -> None:
        noop.delay(number)

    def enqueue_many(self, kind: str, count: int) -> None:
        for number in range(count):
            noop.delay(number)

    def drained(self) -> bool:
        return self.redis.llen("default") == 0 and self.redis.hlen("unacked") == 0

    def worker(self, load: Load) -> list[list[str]]:
        pool, size = ("threads", load.concurrency) if load.processes == 1 else ("prefork", load.processes)
        command = script(
            "celery", "--app", "benchmarks.peers.celery_adapter", "worker", "--loglevel", "WARNING"
        )
        return [[*command, "--pool", pool, "--concurrency", str(size), "--queues", ",".join(load.queues)]]


ADAPTER = CeleryAdapter()
