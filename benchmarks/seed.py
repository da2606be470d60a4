"""Fills a database with jobs, quickly, to measure lists, counts and searches at size.

    python -m benchmarks.seed sqlite:////tmp/big.db 1_000_000
    python -m benchmarks.seed postgresql:///big 5_000_000 --measure

The database makes the rows itself, all from the row's number, so that two seeded databases of one size hold
the same jobs: 90 in 100 completed, 3 discarded, 2 cancelled, 3 available, 1 scheduled, 1 retryable, and 40
executing; 12 queues, 60 workers, tags, args of a few values, errors where they belong. `--measure` then times
the reads that operators wait for.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import insert, text

from jobkit.admin.reads import Reads
from jobkit.config import Config
from jobkit.core import Core
from jobkit.hookspecs import Actor
from jobkit.storage.schema import to_text

CHUNK = 200_000
EXECUTING = 40
BUDGET: Final = timedelta(seconds=0.4)

_COLUMNS = (
    "state, queue, worker, args, meta, tags, errors, attempt, max_attempts, priority, attempted_by, "
    "inserted_at, scheduled_at, attempted_at, completed_at, cancelled_at, discarded_at"
)
_STATE = """CASE WHEN n > :last - :executing THEN 'executing' WHEN n % 100 < 90 THEN 'completed'
    WHEN n % 100 < 93 THEN 'discarded' WHEN n % 100 < 95 THEN 'cancelled' WHEN n % 100 < 98 THEN 'available'
    WHEN n % 100 < 99 THEN 'scheduled' ELSE 'retryable' END"""
_SELECT = """SELECT s, 'queue-' || (n % 12), 'worker_' || (n % 60),
    {json_open}'{{"user":{{"id":' || (n % 50000) || ',"name":"user ' || n || '"}},"order":"ORD-'
        || (n * 7919) || '"}}'{json_close},
    {json_open}CASE WHEN n % 50 = 0 THEN '{{"cron":"nightly"}}' ELSE '{{}}' END{json_close},
    {json_open}CASE WHEN n % 10 = 0 THEN '["digest","user:' || (n % 50000) || '"]' ELSE '[]' END{json_close},
    {json_open}CASE WHEN s IN ('discarded', 'retryable') THEN '[{{"attempt":1,"at":"2026-11-30T12:00:00.000000Z",'
        || '"error":"ValueError: order ' || n || ' was refused\\nTraceback: line 1"}}]' ELSE '[]' END{json_close},
    CASE WHEN s IN ('available', 'scheduled') THEN 0 ELSE 1 END, 20, n % 10,
    CASE WHEN s IN ('available', 'scheduled') THEN NULL ELSE 'host:1:nonce' END,
    {t}, CASE WHEN s IN ('scheduled', 'retryable') THEN {soon} ELSE {t} END,
    CASE WHEN s IN ('available', 'scheduled') THEN NULL ELSE {t} END,
    CASE WHEN s = 'completed' THEN {t} END, CASE WHEN s = 'cancelled' THEN {t} END,
    CASE WHEN s = 'discarded' THEN {t} END FROM rows"""


def statement(dialect: str, table: str) -> str:
    """The INSERT that makes the rows numbered :first to :final of :last."""
    if dialect == "postgresql":
        numbers = f"WITH rows AS (SELECT n, {_STATE} AS s FROM generate_series(CAST(:first AS bigint), :final) AS n)"
        body = _SELECT.format(
            json_open="CAST((",
            json_close=") AS JSONB)",
            t="CAST(:begin AS timestamptz) + make_interval(secs => n)",
            soon="CAST(:now AS timestamptz) + make_interval(secs => n % 86400)",
        )
        return f"INSERT INTO {table} ({_COLUMNS}) {numbers} {body}"
    numbers = f"""WITH RECURSIVE count(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM count WHERE n < :final),
        rows AS (SELECT n, {_STATE} AS s FROM count)"""
    when = "strftime('%Y-%m-%dT%H:%M:%S', {at}, '+' || {seconds} || ' seconds') || '.000000Z'"
    body = _SELECT.format(
        json_open="(",
        json_close=")",
        t=when.format(at=":begin", seconds="n"),
        soon=when.format(at=":now", seconds="(n % 86400)"),
    )
    return f"INSERT INTO {table} ({_COLUMNS}) {numbers} {body}"


def seed(app: Core, jobs: int) -> float:
    """Inserts that many jobs; returns the seconds it took."""
    dialect = app.dialect
    table = app.engine.dialect.identifier_preparer.format_table(app.tables.jobs)
    filling, now = text(re.sub(r"(?<!\w):(?=\d)", r"\\:", statement(dialect, table))), datetime.now(UTC)
    began = time.perf_counter()
    for first in range(1, jobs + 1, CHUNK):
        with app.engine.begin() as conn:
            conn.execute(
                filling,
                {
                    "first": first,
                    "final": min(first + CHUNK - 1, jobs),
                    "last": jobs,
                    "executing": EXECUTING,
                    "begin": to_text(now - timedelta(seconds=jobs)),
                    "now": to_text(now),
                },
            )
    if dialect == "postgresql":
        with app.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.exec_driver_sql(f"VACUUM ANALYZE {table}")
    return time.perf_counter() - began


def seed_states(app: Core, worker: str, queue: str, counts: Mapping[str, int]) -> None:
    """Inserts plain jobs of one worker, so many in each state."""
    jobs, now = app.tables.jobs, datetime.now(UTC)
    for state, count in counts.items():
        ended = {f"{state}_at": now} if state in ("completed", "cancelled", "discarded") else {}
        fixed = {"state": state, "queue": queue, "worker": worker, "inserted_at": now, "scheduled_at": now}
        for first in range(0, count, CHUNK):
            rows = [
                {**fixed, **ended, "args": f'{{"n":{n}}}'} for n in range(first, min(first + CHUNK, count))
            ]
            with app.engine.begin() as conn:
                conn.execute(insert(jobs), rows)


READS: dict[str, Callable[[Reads], object]] = {
    "list, all": lambda r: r.jobs(),
    "list by state": lambda r: r.jobs("state:discarded"),
    "list of the completed": lambda r: r.jobs("state:completed"),
    "list of the available": lambda r: r.jobs("state:available"),
    "list by worker": lambda r: r.jobs("worker:worker_7"),
    "list by worker, none such": lambda r: r.jobs("worker:nobody", budget=BUDGET),
    "list by tag": lambda r: r.jobs("tag:user:700"),
    "list by tag, none such": lambda r: r.jobs("tag:nothing", budget=BUDGET),
    "text search": lambda r: r.jobs('"user 123456"', budget=BUDGET),
    "text search in errors": lambda r: r.jobs("error:refused state:discarded"),
    "args path": lambda r: r.jobs("args.user.id:4242", budget=BUDGET),
    "states": lambda r: r.states(),
    "states under a filter": lambda r: r.states("queue:queue-3"),
    "count under a filter": lambda r: r.count("worker:worker_7"),
    "finished within an hour": lambda r: r.states("finished:<1h"),
    "inserted within an hour": lambda r: r.count("inserted:<1h"),
    "completed within an hour": lambda r: r.jobs("state:completed finished:<1h"),
    "queues": lambda r: r.queues(),
    "nodes": lambda r: r.nodes(),
    "workers": lambda r: r.workers(),
    "facets": lambda r: r.facets(sample=2_000),
    "one job": lambda r: r.job(1_000),
}


def measure(app: Core) -> None:
    """Prints how long each read takes, and how far it searched where it did not search all."""
    reads = Reads(app, Actor("benchmark", via="system"))
    for name, read in READS.items():
        read(reads)
        began = time.perf_counter()
        result = read(reads)
        took = time.perf_counter() - began
        searched = getattr(result, "searched", None)
        told = ""
        if searched is not None:
            told = f"  searched {searched.rows:,} rows{'' if searched.complete else ' and says so'}"
        print(f"{took * 1000:8.1f} ms  {name}{told}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("database_url")
    parser.add_argument("jobs", type=int, nargs="?", default=0, help="how many to add; 0 only measures")
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    app = Core(Config(database_url=options.database_url))
    app.migrate()
    if options.jobs:
        print(f"{options.jobs:,} jobs in {seed(app, options.jobs):.1f} s")
    if options.measure or not options.jobs:
        measure(app)
    app.close()


if __name__ == "__main__":
    main()
