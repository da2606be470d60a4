"""dramatiq on Redis: `dramatiq` with its thread pool, one or two processes; acknowledged after the run."""

import logging

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from redis import Redis

from benchmarks.peers.base import URL, Adapter, Load, script
from benchmarks.peers.ticks import tick

logging.basicConfig(level=logging.WARNING)
broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="default")
def noop(n: int) -> None:
    tick(n)


class DramatiqAdapter(Adapter):
    def open(self) -> None:
        self.redis = Redis.from_url(URL)

    def setup(self, load: Load) -> None:
        self.redis.flushall()

    def enqueue_one(self, kind: str, number: int) -> None:
        noop.send(number)

    def enqueue_many(self, kind: str, count: int) -> None:
        for number in range(count):
            noop.send(number)

    def drained(self) -> bool:
        return self.redis.hlen("dramatiq:default.msgs") == 0

    def worker(self, load: Load) -> list[list[str]]:
        command = script("dramatiq", "benchmarks.peers.dramatiq_adapter:broker", "--skip-logging")
        return [[*command, "--processes", str(load.processes), "--threads", str(load.concurrency)]]


ADAPTER = DramatiqAdapter()
