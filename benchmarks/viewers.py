"""What people who look at the dashboard cost those who work: the same jobs drained with viewers and without.

A node (`jobkit run`, a process of its own) drains no-op jobs from a queue of the database that is measured, while so
many viewers keep a page open and poll it as browsers do. Rounds with and without viewers take turns, so that whatever
else the machine does falls on both.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

import httpx
import sqlalchemy as sa

from jobkit import Jobkit, worker
from jobkit.config import Config
from jobkit.core import Core

QUEUE: Final = "viewers"
PAGES: Final = ("/jobs", "/", "/queues", "/jobs?state=completed", "/nodes")
JOBS: Final = 6_000
ROUNDS: Final = 4
INTERVAL: Final = 2.0


@worker(queue=QUEUE, name="viewed")
async def viewed(n: int) -> None:
    """Nothing: only the queue's own work counts."""


def _app() -> Jobkit | None:
    """What the node runs; it prunes nothing of what is measured."""
    url = os.environ.get("BENCH_VIEWERS_DB")
    return (
        None if url is None else Jobkit(config=Config(database_url=url, prune_after=None), workers=[viewed])
    )


app = _app()


def _viewer(base: str, page: str, stop: threading.Event) -> None:
    """A tab left open: polls with its last token, with a little jitter."""
    token = ""
    with httpx.Client(base_url=base, timeout=30) as client:
        while not stop.wait(INTERVAL * (0.9 + random.random() * 0.2)):
            answer = client.get("/-/live", params={"page": page, "since": token})
            token = answer.headers.get("x-jobkit-token", token)


@contextmanager
def viewing(base: str, viewers: int) -> Iterator[None]:
    """So many tabs, while the block runs."""
    stop = threading.Event()
    tabs = [
        threading.Thread(target=_viewer, args=(base, PAGES[at % len(PAGES)], stop), daemon=True)
        for at in range(viewers)
    ]
    for tab in tabs:
        tab.start()
    try:
        yield
    finally:
        stop.set()
        for tab in tabs:
            tab.join(30)


@contextmanager
def node(core: Core, url: str) -> Iterator[None]:
    """A node on the queue, in a process of its own, until the block ends."""
    command = [
        sys.executable,
        "-m",
        "jobkit",
        "run",
        "--app",
        "benchmarks.viewers:app",
        "--queues",
        f"{QUEUE}:20",
    ]
    running = subprocess.Popen(
        command, env={**os.environ, "BENCH_VIEWERS_DB": url}, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        running.terminate()
        running.wait(60)


def _waiting(core: Core) -> int:
    jobs = core.tables.jobs
    query = sa.select(sa.func.count()).where(jobs.c.state == "available", jobs.c.queue == QUEUE)
    with core.engine.connect() as conn:
        return conn.scalar(query) or 0


def drained(core: Core, url: str) -> float:
    """Jobs a second: a round of jobs, from the first that goes to the last."""
    given = Jobkit(url, workers=[viewed])
    given.enqueue_all([viewed(n=n) for n in range(JOBS)])
    given.close()
    deadline = time.monotonic() + 300
    while (left := _waiting(core)) > JOBS * 0.95 and time.monotonic() < deadline:
        time.sleep(0.01)
    began, first = time.perf_counter(), left
    while (left := _waiting(core)) > JOBS * 0.02 and time.monotonic() < deadline:
        time.sleep(0.05)
    took = time.perf_counter() - began
    while _waiting(core) and time.monotonic() < deadline:
        time.sleep(0.05)
    return (first - left) / took


def slowed(core: Core, url: str, base: str, viewers: int) -> tuple[float, float]:
    """Jobs a second without viewers, and with them: medians of rounds that take turns."""
    alone: list[float] = []
    watched: list[float] = []
    with node(core, url):
        drained(core, url)
        for _ in range(ROUNDS):
            alone.append(drained(core, url))
            with viewing(base, viewers):
                watched.append(drained(core, url))
    return median(alone), median(watched)
