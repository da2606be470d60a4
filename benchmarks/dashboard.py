"""The dashboard's budgets, asserted against a database of size.

    python -m benchmarks.dashboard sqlite:////tmp/big.db --jobs 1000000
    python -m benchmarks.dashboard postgresql:///big --jobs 5000000

Serves the dashboard over HTTP on this machine and asks for its pages like a browser: the 95th percentile of each list
page, the largest page as it travels, scripts and styles, and polls that find nothing, whose statements are explained to
show that none of them scans the table of jobs. Ends with exit code 1 where a budget is exceeded.
"""

from __future__ import annotations

import argparse
import gzip
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import quantiles
from typing import Any, Final

import httpx
import sqlalchemy as sa
import uvicorn
from starlette.requests import HTTPConnection

from benchmarks.seed import seed
from jobkit.config import Config
from jobkit.core import Core
from jobkit.hookspecs import Actor
from jobkit_dashboard import Dashboard

LIST_P95: Final = 0.150
LONGEST: Final = 2.5
"""A query has 2 s; drawing what became of it comes on top."""
PAGE_BYTES: Final = 60 * 1024
SCRIPT_BYTES: Final = 25 * 1024
STYLE_BYTES: Final = 12 * 1024
POLL: Final = 0.005
ROUNDS: Final = 40

LISTS: Final = {
    "overview": "/",
    "jobs, all": "/jobs",
    "jobs, oldest": "/jobs?end=1",
    "jobs, completed": "/jobs?state=completed",
    "jobs, discarded": "/jobs?state=discarded",
    "jobs, available": "/jobs?state=available",
    "jobs, scheduled": "/jobs?state=scheduled",
    "jobs, incomplete": "/jobs?state=incomplete",
    "jobs, failing": "/jobs?state=failing",
    "jobs of a worker": "/jobs?q=worker:worker_7",
    "jobs of a queue": "/jobs?q=queue:queue-3",
    "jobs from a time": "/jobs?at=2026-11-29T12:00",
    "one job": "/jobs/1000",
    "queues": "/queues",
    "one queue": "/queues/show?name=queue-3",
    "nodes": "/nodes",
    "cron": "/cron",
    "audit": "/audit",
}
SEARCHES: Final = {
    "text": "/jobs?q=%22user+123456%22",
    "text, none such": "/jobs?q=%22no+such+text%22",
    "args": "/jobs?q=args.user.id:4242",
    "tag, none such": "/jobs?q=tag:nothing",
    "error text": "/jobs?q=error:refused",
    "worker, none such": "/jobs?q=worker:nobody",
}


@dataclass(slots=True)
class Result:
    """One line of the report."""

    name: str
    found: float
    budget: float
    unit: str

    @property
    def kept(self) -> bool:
        """Whether the budget was kept."""
        return self.found <= self.budget

    def __str__(self) -> str:
        word = "ok" if self.kept else "TOO MUCH"
        return f"{word:9} {self.name:34} {self.found:9.1f} {self.unit} of {self.budget:g}"


def admin(connection: HTTPConnection) -> Actor | None:
    """Everybody is an admin here."""
    return Actor("benchmark", "benchmark", "web", frozenset({"admin"}))


@contextmanager
def serving(dash: Dashboard) -> Iterator[str]:
    """The dashboard on a port of this machine."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(32)
    server = uvicorn.Server(uvicorn.Config(dash.asgi, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def timed(client: httpx.Client, path: str) -> tuple[float, httpx.Response]:
    """Seconds and answer; raises for what is no page."""
    began = time.perf_counter()
    answer = client.get(path)
    took = time.perf_counter() - began
    if answer.status_code not in (200, 204):
        raise SystemExit(f"{path} answered {answer.status_code}")
    return took, answer


def lists(client: httpx.Client) -> Iterator[Result]:
    """Each list page: its 95th percentile, and its size."""
    largest = 0
    for name, path in LISTS.items():
        timed(client, path)
        found = [timed(client, path) for _ in range(ROUNDS)]
        largest = max(largest, *(len(gzip.compress(answer.content)) for _, answer in found[:1]))
        yield Result(name, quantiles([took for took, _ in found], n=20)[-1] * 1000, LIST_P95 * 1000, "ms p95")
    yield Result("the largest page, gzip", largest / 1024, PAGE_BYTES / 1024, "KB")


def searches(client: httpx.Client) -> Iterator[Result]:
    """Searches that no index serves: they end in time and say how far they came."""
    for name, path in SEARCHES.items():
        took, _ = timed(client, path)
        yield Result(f"search: {name}", took, LONGEST, "s")
    took, _ = timed(client, "/jobs?counts=1")
    yield Result("counts and facets", took, 3 * LONGEST, "s")


def files(client: httpx.Client) -> Iterator[Result]:
    """What browsers load besides."""
    page = client.get("/settings").text
    style = re.findall(r'href="([^"]+\.css)"', page)
    folder = re.findall(r'src="([^"]+/)dashboard\.js"', page)[0]
    names = ["idiomorph", "dashboard", "live", "times", "say", "select", "menus", "clip", "suggest", "keys"]
    scripts = b"".join(client.get(f"{folder}{name}.js").content for name in names)
    styles = b"".join(client.get(path).content for path in style)
    yield Result("scripts, gzip", len(gzip.compress(scripts)) / 1024, SCRIPT_BYTES / 1024, "KB")
    yield Result("styles, gzip", len(gzip.compress(styles)) / 1024, STYLE_BYTES / 1024, "KB")


def polls(client: httpx.Client, core: Core) -> Iterator[Result]:
    """Polls that find nothing: their time as viewers see it, and full scans of the table of jobs."""
    for name in ("/jobs", "/jobs?state=completed", "/queues"):
        live = {"page": name, "since": ""}
        answer = client.get("/-/live", params=live)
        live["since"] = answer.headers["x-jobkit-token"]
        with statements(core) as seen:
            found = []
            for _ in range(ROUNDS):
                time.sleep(0.1)
                began = time.perf_counter()
                status = client.get("/-/live", params=live).status_code
                if status == 204:
                    found.append(time.perf_counter() - began)
        median = sorted(found)[len(found) // 2] if found else 9.9
        yield Result(f"a poll of {name} that finds nothing", median * 1000, POLL * 1000, "ms median")
        yield Result(f"table scans of polls of {name}", len(list(scans(core, seen))), 0, "")


@contextmanager
def statements(core: Core) -> Iterator[set[tuple[str, Any]]]:
    """The statements that are read meanwhile, with their parameters."""
    seen: set[tuple[str, Any]] = set()
    kept: dict[str, Any] = {}

    def note(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        kept.setdefault(statement, parameters)

    sa.event.listen(core.read_engine, "before_cursor_execute", note)
    yield seen
    sa.event.remove(core.read_engine, "before_cursor_execute", note)
    seen |= {(statement, repr(parameters)) for statement, parameters in kept.items()}
    core.once("benchmark.statements", dict).update(kept)


def scans(core: Core, seen: set[tuple[str, Any]]) -> Iterator[str]:
    """The statements that read the whole table of jobs."""
    kept = core.once("benchmark.statements", dict)
    table = core.tables.jobs.name
    explain = "EXPLAIN QUERY PLAN " if core.dialect == "sqlite" else "EXPLAIN "
    full = re.compile(rf"SCAN (?:TABLE )?{table}(?! USING)|Seq Scan on {table}\b")
    for statement, _ in seen:
        if not re.match(r"\s*(SELECT|WITH)", statement, re.I):
            continue
        with core.engine.connect() as conn:
            plan = "\n".join(str(row) for row in conn.exec_driver_sql(explain + statement, kept[statement]))
        # A walk along the ids that ends after a page of rows is no scan of the table.
        walk = "LIMIT" in statement.upper() and "TEMP B-TREE" not in plan and "Sort" not in plan
        if full.search(plan) and not walk:
            yield statement


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("database_url")
    parser.add_argument("--jobs", type=int, default=0, help="how many to add first")
    options = parser.parse_args()
    core = Core(Config(database_url=options.database_url))
    core.migrate()
    if options.jobs:
        print(f"{options.jobs:,} jobs in {seed(core, options.jobs):.0f} s")
    results: list[Result] = []
    with serving(Dashboard(core, auth=admin)) as base, httpx.Client(base_url=base, timeout=30) as client:
        for measure in (files(client), lists(client), searches(client), polls(client, core)):
            for result in measure:
                print(result, flush=True)
                results.append(result)
    core.close()
    sys.exit(0 if all(result.kept for result in results) else 1)


if __name__ == "__main__":
    main()
