"""The dashboard's budgets, asserted against a database of size.

    python -m benchmarks.dashboard sqlite:////tmp/big.db --jobs 1000000 --viewers 20
    python -m benchmarks.dashboard postgresql:///big --jobs 5000000 --viewers 20

Serves the dashboard over HTTP on this machine and asks for its pages like a browser: the 95th percentile of each list
page (the server's time, from the request to the last byte), the largest page as it travels, scripts and styles, and
polls that find nothing, each of them long enough after the one before for nothing to be remembered, whose statements
are explained to show that none of them scans the table of jobs. With `--viewers` also what so many open tabs cost a
working node. Without `--jobs` it measures what is there. Ends with exit code 1 where a budget is exceeded.
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
from itertools import chain
from statistics import median, quantiles
from typing import Any, Final

import httpx
import sqlalchemy as sa
import uvicorn
from starlette.requests import HTTPConnection

from benchmarks.seed import seed
from benchmarks.viewers import slowed
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
POLLS: Final = 12
SLOWER: Final = 5.0
"""Per cent by which viewers may slow a node."""
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
    "one job": "/jobs/{newest}",
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


class Clocked:
    """The dashboard, with the seconds that its last answer took."""

    def __init__(self, dash: Dashboard) -> None:
        self.dash, self.took = dash, 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, and note how long it took."""
        began = time.perf_counter()
        await self.dash.asgi(scope, receive, send)
        self.took = time.perf_counter() - began


class Visitor:
    """Asks for pages; says how long the server took."""

    def __init__(self, clocked: Clocked, base: str) -> None:
        self._clocked, self.client = clocked, httpx.Client(base_url=base, timeout=30)

    def get(self, path: str, **params: str) -> tuple[float, httpx.Response]:
        """Seconds and answer; raises for what is no page."""
        answer = self.client.get(path, params=params or None)
        if answer.status_code not in (200, 204):
            raise SystemExit(f"{path} answered {answer.status_code}")
        time.sleep(0.001)  # the server's last lines come after its last byte
        return self._clocked.took, answer


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The application on a port of this machine."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def lists(visitor: Visitor) -> Iterator[Result]:
    """Each list page: its 95th percentile, and its size."""
    largest = 0
    newest = re.findall(r'id="job-(\d+)"', visitor.get("/jobs")[1].text)[0]
    for name, pattern in LISTS.items():
        path = pattern.format(newest=newest)
        visitor.get(path)
        found = [visitor.get(path) for _ in range(ROUNDS)]
        largest = max(largest, *(len(gzip.compress(answer.content)) for _, answer in found[:1]))
        yield Result(name, quantiles([took for took, _ in found], n=20)[-1] * 1000, LIST_P95 * 1000, "ms p95")
    yield Result("the largest page, gzip", largest / 1024, PAGE_BYTES / 1024, "KB")


def searches(visitor: Visitor) -> Iterator[Result]:
    """Searches that no index serves: they end in time and say how far they came."""
    for name, path in SEARCHES.items():
        took, _ = visitor.get(path)
        yield Result(f"search: {name}", took, LONGEST, "s")
    took, _ = visitor.get("/jobs?counts=1")
    yield Result("counts and facets", took, 3 * LONGEST, "s")


def files(visitor: Visitor) -> Iterator[Result]:
    """What browsers load besides."""
    client = visitor.client
    page = client.get("/settings").text
    style = re.findall(r'href="([^"]+\.css)"', page)
    folder = re.findall(r'src="([^"]+/)dashboard\.js"', page)[0]
    names = ["idiomorph", "dashboard", "live", "times", "say", "select", "menus", "clip", "suggest", "keys"]
    scripts = b"".join(client.get(f"{folder}{name}.js").content for name in names)
    styles = b"".join(client.get(path).content for path in style)
    yield Result("scripts, gzip", len(gzip.compress(scripts)) / 1024, SCRIPT_BYTES / 1024, "KB")
    yield Result("styles, gzip", len(gzip.compress(styles)) / 1024, STYLE_BYTES / 1024, "KB")


def polls(visitor: Visitor, core: Core) -> Iterator[Result]:
    """Polls that find nothing: the server's time, and full scans of the table of jobs."""
    for name in ("/jobs", "/jobs?state=completed", "/jobs?q=worker:worker_7", "/queues", "/"):
        live = {"page": name, "since": ""}
        for _ in range(3):  # what costs much is counted behind the first
            _, answer = visitor.get("/-/live", **live)
            live["since"] = answer.headers.get("x-jobkit-token", live["since"])
            time.sleep(1.5)
        with statements(core) as seen:
            found = []
            for _ in range(POLLS):
                time.sleep(1.1)
                took, answer = visitor.get("/-/live", **live)
                live["since"] = answer.headers.get("x-jobkit-token", live["since"])
                if answer.status_code == 204:
                    found.append(took)
        result = median(found) if found else 9.9
        yield Result(f"a poll of {name} that finds nothing", result * 1000, POLL * 1000, "ms median")
        yield Result(f"table scans of polls of {name}", len(list(scans(core, seen))), 0, "")


def company(core: Core, url: str, base: str, viewers: int) -> Iterator[Result]:
    """How much slower a node is while people look."""
    alone, watched = slowed(core, url, base, viewers)
    print(f"          {alone:,.0f} jobs/s alone, {watched:,.0f} jobs/s with {viewers} viewers")
    yield Result(f"{viewers} viewers slow a node by", (1 - watched / alone) * 100, SLOWER, "%")


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
    noted: dict[str, Any] = core.once("benchmark.statements", dict)
    noted.update(kept)


def scans(core: Core, seen: set[tuple[str, Any]]) -> Iterator[str]:
    """The statements that read the whole table of jobs."""
    kept: dict[str, Any] = core.once("benchmark.statements", dict)
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
    parser.add_argument("--viewers", type=int, default=0, help="measure what so many open tabs cost a node")
    options = parser.parse_args()
    core = Core(Config(database_url=options.database_url))
    core.migrate()
    if options.jobs:
        print(f"{options.jobs:,} jobs in {seed(core, options.jobs):.0f} s")
    results: list[Result] = []
    clocked = Clocked(Dashboard(core, auth=admin))
    with serving(clocked) as base:
        visitor = Visitor(clocked, base)
        parts = [files(visitor), lists(visitor), searches(visitor), polls(visitor, core)]
        if options.viewers:
            parts.append(company(core, options.database_url, base, options.viewers))
        for result in chain.from_iterable(parts):
            print(result, flush=True)
            results.append(result)
        visitor.client.close()
    core.close()
    sys.exit(0 if all(result.kept for result in results) else 1)


if __name__ == "__main__":
    main()
