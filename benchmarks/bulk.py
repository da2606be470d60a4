"""How much a bulk retry of many jobs slows a node that works on the same queue.

    python -m benchmarks.bulk sqlite:////tmp/bulk.db --jobs 100_000

The node's rate is taken over equal spans: alone before and after, and at the beginning of the retry, which
runs in another process. The retry makes discarded jobs available in the very queue, so there is never a lack of
work. The report of the retry must be exact.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import func, select

from benchmarks.seed import seed_states
from jobkit.admin.actions import Actions
from jobkit.admin.results import Matching
from jobkit.config import Config
from jobkit.core import Core
from jobkit.hookspecs import Actor

WORKER = """
import sys
from jobkit import Jobkit, worker

@worker(name="bulk_noop", queue="bulk")
def noop(n: int) -> None: ...

Jobkit(sys.argv[1], workers=[noop]).run("bulk:20")
"""


def completed(app: Core) -> int:
    """How many jobs the node has done."""
    jobs = app.tables.jobs
    with app.engine.connect() as conn:
        return conn.scalar(select(func.count()).select_from(jobs).where(jobs.c.state == "completed")) or 0


def rate(app: Core, seconds: float) -> float:
    """Jobs a second over a span."""
    before, began = completed(app), time.perf_counter()
    time.sleep(seconds)
    return (completed(app) - before) / (time.perf_counter() - began)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("database_url")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=600_000, help="available jobs at the beginning")
    parser.add_argument("--span", type=float, default=8.0, help="seconds")
    options = parser.parse_args()
    app = Core(Config(database_url=options.database_url))
    app.migrate()
    seed_states(app, "bulk_noop", "bulk", {"available": options.waiting, "discarded": options.jobs})
    node = subprocess.Popen([sys.executable, "-c", WORKER, options.database_url])
    try:
        time.sleep(4)
        alone = rate(app, options.span)
        actions = Actions(app, Actor("benchmark", via="system"))
        started = actions.start("retry", Matching("state:discarded"))
        began = time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(actions.run_operation, started.id)
            beside = rate(app, options.span)
            done = running.result()
        took = time.perf_counter() - began
        after = rate(app, options.span)
        mean = (alone + after) / 2
        print(f"alone {alone:,.0f} jobs/s before and {after:,.0f} after")
        print(f"beside the retry {beside:,.0f} ({beside / mean - 1:+.0%})")
        print(f"retry: done {done.done:,}, skipped {done.skipped:,}, failed {done.failed:,} in {took:.1f} s")
    finally:
        node.terminate()
        node.wait()
        app.close()


if __name__ == "__main__":
    main()
