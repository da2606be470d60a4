"""However many jobs there are, a page reads a bounded part of them: shown by plans and counted steps, not by time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from benchmarks.seed import seed as fill
from benchmarks.seed import seed_states
from jobkit import Jobkit
from jobkit.admin import guard
from jobkit_dashboard import Dashboard
from tests.dashboard.support import Client, by_header, make_app

LISTS = [
    "/",
    "/jobs",
    "/jobs?end=1",
    "/jobs?per=200",
    *(f"/jobs?state={state}" for state in ("available", "scheduled", "executing", "retryable")),
    *(f"/jobs?state={state}" for state in ("completed", "discarded", "cancelled", "incomplete", "failing")),
    "/jobs?state=completed&sort=time&dir=asc",
    "/jobs?state=available&sort=priority",
    "/jobs?q=id:700",
    "/jobs?q=worker:worker_7",
    "/jobs?q=queue:queue-3",
    "/jobs/1000",
    "/queues",
    "/queues/show?name=queue-3",
    "/nodes",
    "/cron",
    "/operations",
    "/audit",
]
CAP = 10_000
"""Counts and samples stop here."""


def look(client: Client, path: str) -> None:
    """The page, and what its first refresh brings: counts and facets among it."""
    client.http.app._dash.samples.clear()  # type: ignore[attr-defined]
    assert client.get(path).status_code == 200
    answer = client.get(f"/-/live?page={quote(path)}&since=")
    assert answer.status_code in (200, 404)
    if answer.status_code == 200:
        since = answer.headers["x-jobkit-token"]
        age(client.http.app._dash)  # type: ignore[attr-defined]
        client.get(f"/-/live?page={quote(path)}&since={since}")


class AtOnce:
    """Counts at once what is otherwise counted behind the viewer's back, so that it is seen with its page."""

    def submit(self, function: Callable[..., object], *given: object) -> None:
        function(*given)


def browsing(app: Jobkit) -> Client:
    dash = Dashboard(app, auth=by_header)
    dash.samples._pool = AtOnce()  # type: ignore[assignment]
    return Client(dash)


def age(dash: Dashboard) -> None:
    """Make every sample old enough to be looked at again."""
    samples = dash.samples
    samples._samples = {k: replace(v, taken=v.taken - 2.0) for k, v in samples._samples.items()}


def filled(url: str, jobs: int) -> Jobkit:
    app = make_app(url)
    fill(app.core, jobs)
    return app


@contextmanager
def statements(app: Jobkit) -> Iterator[list[tuple[str, Any]]]:
    seen: list[tuple[str, Any]] = []

    def note(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if re.match(r"\s*(SELECT|WITH)", statement, re.I):
            seen.append((statement, parameters))

    sa.event.listen(app.core.read_engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(app.core.read_engine, "before_cursor_execute", note)


@contextmanager
def counted_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many hundreds of instructions SQLite takes, in one number."""
    steps = [0]

    @contextmanager
    def counting(conn: sa.Connection, timeout: timedelta) -> Iterator[None]:
        raw: Any = conn.connection.driver_connection

        def step() -> int:
            steps[0] += 1
            return 0

        raw.set_progress_handler(step, 100)
        try:
            yield
        finally:
            raw.set_progress_handler(None, 0)

    with monkeypatch.context() as patch:
        patch.setattr(guard, "_limited", counting)
        yield steps


@pytest.mark.slow
def test_DA4_no_page_takes_more_steps_when_there_are_more_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite: nearly twice as long a history, the same work; to read all of it would take 1.8 times as much."""
    found: dict[str, list[int]] = {path: [] for path in LISTS}
    for more in (12_000, 52_000):
        app = filled(f"sqlite:///{tmp_path / str(more)}.db", 40_000)
        seed_states(app.core, "worker_7", "queue-3", {"completed": more})
        client = browsing(app)
        for path in LISTS:
            with counted_steps(monkeypatch) as steps:
                look(client, path)
            found[path].append(steps[0])
        app.close()
    grown = {path: (small, large) for path, (small, large) in found.items() if large > small * 1.45 + 300}
    assert not grown


def test_DA4_no_page_reads_the_whole_table_on_sqlite(tmp_path: Path) -> None:
    app = filled(f"sqlite:///{tmp_path / 'big.db'}", 12_000)
    client = browsing(app)
    whole = re.compile(rf"SCAN {app.tables.jobs.name}(?! USING)")
    for path in LISTS:
        with statements(app) as seen:
            look(client, path)
        for statement, parameters in dict(seen).items():
            with app.engine.connect() as conn:
                plan = conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            text = "\n".join(str(row) for row in plan)
            # A walk along the ids that ends after a page of rows is no scan.
            walks = (
                "LIMIT" in statement
                and "TEMP B-TREE" not in text
                and "WHERE" not in statement.replace("WHERE 1", "")
            )
            assert walks or not whole.search(text), (path, statement, text)
    app.close()


def test_DA4_no_page_reads_the_whole_table_on_postgres(postgres_url: str) -> None:
    jobs = 40_000
    app = filled(postgres_url, jobs)
    client = browsing(app)
    for path in LISTS:
        with statements(app) as seen:
            look(client, path)
        for statement, parameters in dict(seen).items():
            if app.tables.jobs.name not in statement:
                continue
            with app.engine.begin() as conn:
                # Whether an index can serve it at all, however cheap the planner finds a small table.
                conn.exec_driver_sql("SET LOCAL enable_seqscan = off")
                plan = conn.exec_driver_sql(
                    f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING off) {statement}", parameters
                ).scalar_one()
            for node in nodes_of(plan[0]["Plan"]):
                if node.get("Relation Name") == app.tables.jobs.name:
                    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    assert node["Node Type"] != "Seq Scan", (path, statement)
                    assert read <= CAP * 1.2, (path, read, statement)
    app.close()


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes_of(below)


def test_DA4_counts_stop_at_ten_thousand_and_say_so(tmp_path: Path) -> None:
    app = filled(f"sqlite:///{tmp_path / 'big.db'}", 12_000)
    client = browsing(app)
    page = client.get("/jobs?state=completed&counts=1").text
    assert "10,000+" in page
    app.close()
