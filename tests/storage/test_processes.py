"""Several processes on one database: each job once, no lock error."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from sqlalchemy import text

from tests.storage.support import Database

SCRIPT = """
import sys
from datetime import timedelta
from tests.storage.support import NOW, Settings, job_row
from jobkit.jobs import JobState
from jobkit.storage.choice import make_storage
from jobkit.storage.base import Change
from jobkit.storage.engine import make_engine, node_connection
from jobkit.storage.schema import tables_for

url, arm, name = sys.argv[1:]
engine = make_engine(Settings(url))
storage = make_storage(engine.dialect.name, tables_for(), arm=arm)
with node_connection(engine, autocommit=True) as conn:
    storage.register_node(conn, name, now=NOW, queues={}, info={})
    print("ready", flush=True)
    sys.stdin.readline()
    at, misses, done = NOW, 0, 0
    for n in range(20):
        storage.insert(conn, [job_row(), job_row(unique_key=f"shared-{n}")])
    while misses < 3:
        at += timedelta(microseconds=1)
        jobs = storage.claim(conn, "default", 9, node=name, at=at)
        landed = storage.transition(conn, [Change(JobState.COMPLETED, at, job.lease) for job in jobs])
        assert len(landed) == len(jobs)
        done += len(jobs)
        misses = 0 if jobs else misses + 1
    print(done, flush=True)
"""


def test_DB4_processes_that_enqueue_and_drain_together_lose_and_repeat_nothing(
    db: Database, database_url: str, arm: Any
) -> None:
    before = [db.add() for _ in range(150)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, database_url, arm, f"node-{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120) for process in processes]

    assert [process.returncode for process in processes] == [0] * 4, outputs
    done = sum(int(out) for out, _ in outputs)
    counts = db.conn.execute(
        text(
            f"SELECT count(*), max(attempt), min(attempt) FROM {db.tables.jobs.name} WHERE state = 'completed'"
        )
    ).one()
    left = db.conn.execute(
        text(f"SELECT count(*) FROM {db.tables.jobs.name} WHERE state <> 'completed'")
    ).scalar_one()
    assert tuple(counts) == (done, 1, 1)
    assert left == 0
    assert done >= len(before) + 4 * 20 + 20
