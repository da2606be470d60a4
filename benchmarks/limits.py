"""What the databases themselves allow for the work of a job queue: the same rows, no queue around them.

One connection, single statements in autocommit, only the two partial indexes that the work needs: an
upper bound for anything that claims a batch and records it. Run inside the comparison, so that a share
of the limit is taken from one run; `python benchmarks/run.py --only limits` runs these alone.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg

COLUMNS = """
    state text NOT NULL DEFAULT 'available', queue text NOT NULL DEFAULT 'default', worker text NOT NULL,
    args {json} NOT NULL, meta {json} NOT NULL DEFAULT '{{}}', tags {json} NOT NULL DEFAULT '[]',
    errors {json} NOT NULL DEFAULT '[]', attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 20, priority integer NOT NULL DEFAULT 0, unique_key text,
    inserted_at {time} NOT NULL, scheduled_at {time} NOT NULL, attempted_at {time}, attempted_by text,
    completed_at {time}, cancelled_at {time}, discarded_at {time}
"""
INDEXES = (
    "CREATE INDEX claim ON jobs (queue, priority, scheduled_at, id) WHERE state = 'available'",
    "CREATE UNIQUE INDEX uniq ON jobs (unique_key) WHERE unique_key IS NOT NULL",
)
PG_INSERT = "INSERT INTO jobs (worker, args, inserted_at, scheduled_at) VALUES ('noop', %s, now(), now()) RETURNING id"
PG_UNNEST = """
    INSERT INTO jobs (worker, args, inserted_at, scheduled_at)
    SELECT 'noop', a::jsonb, now(), now() FROM unnest(%s::text[]) AS a RETURNING id
"""
PG_COPY = "COPY jobs (worker, args, inserted_at, scheduled_at) FROM STDIN"
PG_CLAIM = """
    UPDATE jobs SET state = 'executing', attempt = attempt + 1, attempted_at = now(), attempted_by = 'limit'
    WHERE id = ANY(ARRAY(
        SELECT id FROM jobs WHERE state = 'available' AND queue = 'default' AND scheduled_at <= now()
        ORDER BY priority, scheduled_at, id LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING id, worker, args, meta, tags, attempt, max_attempts, priority, inserted_at, scheduled_at, attempted_at
"""
PG_RECORD = """
    UPDATE jobs SET state = 'completed', completed_at = now(), unique_key = NULL
    WHERE id = ANY(%s) AND state = 'executing' AND attempted_by = 'limit'
"""
LITE_NOW = "strftime('%Y-%m-%d %H:%M:%f000')"
LITE_INSERT = (
    f"INSERT INTO jobs (worker, args, inserted_at, scheduled_at) VALUES ('noop', ?, {LITE_NOW}, {LITE_NOW})"
)
LITE_CLAIM = f"""
    UPDATE jobs SET state = 'executing', attempt = attempt + 1, attempted_at = {LITE_NOW}, attempted_by = 'limit'
    WHERE id IN (SELECT id FROM jobs WHERE state = 'available' AND queue = 'default'
                 ORDER BY priority, scheduled_at, id LIMIT ?)
    RETURNING id, worker, args, meta, tags, attempt, max_attempts, priority, inserted_at, scheduled_at, attempted_at
"""
LITE_RECORD = f"""
    UPDATE jobs SET state = 'completed', completed_at = {LITE_NOW}, unique_key = NULL
    WHERE id IN (SELECT value FROM json_each(?)) AND state = 'executing' AND attempted_by = 'limit'
"""


@dataclass(frozen=True, slots=True)
class Limit:
    """A named bound: `measure(where, jobs)` gives jobs a second at an empty database or a new file."""

    name: str
    database: str
    measure: Callable[[str, int], float]
    jobs: int = 10_000


def args(jobs: int) -> list[str]:
    return [f'{{"n": {number}}}' for number in range(jobs)]


def rate(jobs: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return jobs / (time.perf_counter() - started)


def pg_table(url: str) -> psycopg.Connection:
    connection = psycopg.connect(url, autocommit=True)
    columns = COLUMNS.format(json="jsonb", time="timestamptz")
    connection.execute(f"CREATE TABLE jobs (id bigserial PRIMARY KEY, {columns})".encode())
    for index in INDEXES:
        connection.execute(index.encode())
    return connection


def pg_insert_one(url: str, jobs: int) -> float:
    with pg_table(url) as connection:
        return rate(jobs, lambda: [connection.execute(PG_INSERT, (one,)).fetchone() for one in args(jobs)])


def pg_unnest(url: str, jobs: int) -> float:
    with pg_table(url) as connection:
        rows = args(jobs)
        return rate(jobs, lambda: connection.execute(PG_UNNEST, (rows,)).fetchall())


def pg_copy(url: str, jobs: int) -> float:
    with pg_table(url) as connection:
        return rate(jobs, lambda: pg_fill(connection, jobs))


def pg_fill(connection: psycopg.Connection, jobs: int) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    with connection.cursor().copy(PG_COPY) as copy:
        for one in args(jobs):
            copy.write_row(("noop", one, now, now))


def pg_claim(batch: int) -> Callable[[str, int], float]:
    def measure(url: str, jobs: int) -> float:
        with pg_table(url) as connection:
            pg_fill(connection, jobs)
            vacuum: LiteralString = "VACUUM ANALYZE jobs"
            connection.execute(vacuum)
            connection.execute("CHECKPOINT")
            return rate(jobs, lambda: pg_drain(connection, batch))

    return measure


def pg_drain(connection: psycopg.Connection, batch: int) -> None:
    while claimed := connection.execute(PG_CLAIM, (batch,)).fetchall():
        connection.execute(PG_RECORD, ([row[0] for row in claimed],))


def sqlite_table(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    columns = COLUMNS.format(json="text", time="text")
    connection.execute(f"CREATE TABLE jobs (id integer PRIMARY KEY AUTOINCREMENT, {columns})")
    for index in INDEXES:
        connection.execute(index)
    return connection


def sqlite_insert_one(path: str, jobs: int) -> float:
    connection = sqlite_table(path)
    return rate(jobs, lambda: [connection.execute(LITE_INSERT, (one,)) for one in args(jobs)])


def sqlite_bulk(path: str, jobs: int) -> float:
    connection = sqlite_table(path)
    return rate(jobs, lambda: sqlite_fill(connection, jobs))


def sqlite_fill(connection: sqlite3.Connection, jobs: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(LITE_INSERT, [(one,) for one in args(jobs)])
    connection.execute("COMMIT")


def sqlite_claim(batch: int) -> Callable[[str, int], float]:
    def measure(path: str, jobs: int) -> float:
        connection = sqlite_table(path)
        sqlite_fill(connection, jobs)
        return rate(jobs, lambda: sqlite_drain(connection, batch))

    return measure


def sqlite_drain(connection: sqlite3.Connection, batch: int) -> None:
    while claimed := connection.execute(LITE_CLAIM, (batch,)).fetchall():
        connection.execute(LITE_RECORD, (str([row[0] for row in claimed]),))


LIMITS = (
    Limit("pg insert one", "postgres", pg_insert_one, 1_000),
    Limit("pg insert many, unnest returning", "postgres", pg_unnest),
    Limit("pg insert many, COPY", "postgres", pg_copy),
    Limit("pg claim + record, batches of 10", "postgres", pg_claim(10)),
    Limit("pg claim + record, batches of 100", "postgres", pg_claim(100)),
    Limit("sqlite FULL insert one", "sqlite", sqlite_insert_one, 1_000),
    Limit("sqlite FULL insert many, executemany", "sqlite", sqlite_bulk),
    Limit("sqlite FULL claim + record, batches of 10", "sqlite", sqlite_claim(10)),
    Limit("sqlite FULL claim + record, batches of 100", "sqlite", sqlite_claim(100)),
)


def measure(limit: Limit, where: str, scratch: Path, jobs: int) -> float:
    """Run one limit at an empty Postgres database or, for SQLite, in a new file of `scratch`."""
    return limit.measure(where if limit.database == "postgres" else str(scratch / "limit.db"), jobs)
