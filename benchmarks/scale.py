"""Does it stay fast as the table grows? Each question is asked of a small table and a large one, in turns.

    python -m benchmarks.scale finished            # drain, enqueue, stage, cron beside millions of finished rows
    python -m benchmarks.scale waiting             # drain out of a million that wait in 50 queues
    python -m benchmarks.scale pruning             # drain while a million rows are pruned
    python -m benchmarks.scale staging             # other work while 100,000 jobs become due in one second

`--database sqlite` or `postgres` takes one of them (else both), `--rows N` another size, `--rounds N` more turns.
A Postgres server is made for the run, with default settings; SQLite files lie in TMPDIR. The drains run one node in
this process, concurrency 100, with everything that a node does. Figures are medians; what matters is their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import insert, text

from benchmarks.rows import fill, spread, tidy
from jobkit import Jobkit, worker
from jobkit.config import Config
from jobkit.inserting import rows_of

ROWS = {"finished": {"postgres": 5_000_000, "sqlite": 1_000_000}}
MILLION = 1_000_000
DRAINED = 10_000
QUEUES = [f"queue-{number:02}" for number in range(50)]
started: list[float] = []


@worker(name="bench_noop")
async def noop(number: int) -> None:
    """Says when it ran."""
    started.append(time.monotonic())


def app_on(url: str, **settings: object) -> Jobkit:
    app = Jobkit(url, workers=[noop], config=Config(database_url=url, **settings))  # type: ignore[arg-type]
    app.migrate()
    return app


# -- what is measured


async def drain(app: Jobkit, jobs: int, queues: str = "default:100") -> float:
    """Jobs a second, from the first start to the last of `jobs`."""
    started.clear()
    async with app.node(queues=queues):
        while len(started) < jobs:
            await asyncio.sleep(0.002)
        last = started[jobs - 1]
    return (jobs - 1) / (last - started[0])


def drained(app: Jobkit) -> float:
    app.enqueue_all([noop(number=number) for number in range(DRAINED)])
    tidy(app)
    return asyncio.run(drain(app, DRAINED))


def enqueued(app: Jobkit) -> float:
    """Single durable inserts a second."""
    app.enqueue(noop(number=0))
    began = time.perf_counter()
    for number in range(500):
        app.enqueue(noop(number=number))
    rate = 500 / (time.perf_counter() - began)
    forget_waiting(app)
    return rate


def staged(app: Jobkit) -> float:
    """Rows a second that become due, in the stager's own batches."""
    now = datetime.now(UTC)
    later = noop(number=1).job(schedule_at=now + timedelta(seconds=5))
    app.enqueue_all([later] * 5_000)
    storage, total = app.core.storage, 0
    with app.engine.connect() as conn:
        began = time.perf_counter()
        while count := storage.stage(conn, now=now + timedelta(seconds=6), limit=1_000).count:
            total += count
        rate = total / (time.perf_counter() - began)
    forget_waiting(app)
    return rate


def scheduled(app: Jobkit) -> float:
    """Runs of a cron entry a second: the execution's row and the job, in one transaction."""
    core, now = app.core, datetime.now(UTC)
    with app.engine.connect() as conn:
        began = time.perf_counter()
        for number in range(300):
            at = now + timedelta(microseconds=number)
            with conn.begin():
                core.storage.record_run(conn, "bench", at, now=now)
                job = core.storage.insert(conn, rows_of(core, [noop(number=number)]))[0]
                core.storage.link_run(conn, "bench", at, job.id)
        rate = 300 / (time.perf_counter() - began)
    forget_waiting(app)
    return rate


def forget_waiting(app: Jobkit) -> None:
    jobs = app.tables.jobs
    with app.engine.begin() as conn:
        conn.execute(jobs.delete().where(jobs.c.state == "available"))


# -- the questions


def finished(small: str, large: str, rows: int, rounds: int) -> None:
    """Beside finished rows: everything within ten in a hundred."""
    empty, full = app_on(small), app_on(large)
    fill(full, rows)
    for name, figure in (
        ("drain", drained),
        ("enqueue one", enqueued),
        ("stage", staged),
        ("cron", scheduled),
    ):
        compare(f"{name}, {rows:,} finished rows", figure, empty, full, rounds, at_least=0.9)
    empty.close()
    full.close()


def waiting(small: str, large: str, rows: int, rounds: int) -> None:
    """Out of very many that wait, in 50 queues and 10 priorities: within twenty in a hundred."""
    few, many = app_on(small), app_on(large)
    spread(many, rows, QUEUES)
    tidy(many)
    queues = ",".join(f"{queue}:10" for queue in QUEUES)

    def some(app: Jobkit) -> float:
        if app is few:
            spread(app, DRAINED, QUEUES)
            tidy(app)
        return asyncio.run(drain(app, DRAINED - 500, queues))

    compare(f"drain, {rows:,} waiting in {len(QUEUES)} queues", some, few, many, rounds, at_least=0.8)
    few.close()
    many.close()


def pruning(small: str, large: str, rows: int, rounds: int) -> None:
    """With the pruner at work and without it, on two tables of the same rows: less than ten in a hundred slower."""
    still, pruned = app_on(small, disable=("pruner",)), app_on(large, prune_after=timedelta(seconds=1))
    fill(still, rows)
    fill(pruned, rows)
    compare(f"drain while {rows:,} rows are pruned", drained, still, pruned, rounds, at_least=0.9)
    jobs = pruned.tables.jobs
    with pruned.engine.connect() as conn:
        left = conn.execute(text(f"SELECT count(*) FROM {jobs.name}")).scalar_one()
    print(f"  {rows - left:,} of them were pruned meanwhile")
    still.close()
    pruned.close()


def staging(small: str, _: str, rows: int, __: int) -> None:
    """The longest wait of other jobs while very many become due at once: no more than 200 ms."""
    app = app_on(small)
    waits = asyncio.run(_others_while_staging(app, rows))
    print(f"other jobs while {rows:,} are staged: p50 {statistics.median(waits) * 1e3:.1f} ms, ", end="")
    print(f"longest {max(waits) * 1e3:.1f} ms of {len(waits)} {verdict(max(waits) <= 0.2)}")
    app.close()


async def _others_while_staging(app: Jobkit, rows: int) -> list[float]:
    """Seconds from the call that enqueues to the start, one job at a time, until all rows are staged."""
    now, jobs = datetime.now(UTC), app.tables.jobs
    due = now + timedelta(seconds=rows / 20_000 + 4)
    row = {"state": "scheduled", "queue": "staged", "worker": "bench_noop", "args": '{"number":0}'}
    with app.engine.begin() as conn:
        for first in range(0, rows, 10_000):
            some = [{**row, "inserted_at": now, "scheduled_at": due}] * min(10_000, rows - first)
            conn.execute(insert(jobs), some)
    tidy(app)
    waits: list[float] = []
    left = jobs.select().where(jobs.c.state == "scheduled").limit(1)
    async with app.node(queues="default:10"):
        while True:
            started.clear()
            called = time.monotonic()
            await app.aenqueue(noop(number=1))
            while not started:
                await asyncio.sleep(0.0005)
            if datetime.now(UTC) > due - timedelta(seconds=1):
                waits.append(started[0] - called)
            await asyncio.sleep(0.01)
            if datetime.now(UTC) > due + timedelta(seconds=1) and not await asyncio.to_thread(
                _any, app, left
            ):
                return waits


def _any(app: Jobkit, query: object) -> bool:
    with app.core.read_engine.connect() as conn:
        return conn.execute(query).first() is not None  # type: ignore[call-overload]


def compare(
    what: str, figure: Callable[[Jobkit], float], one: Jobkit, other: Jobkit, rounds: int, *, at_least: float
) -> None:
    """Measures both in turns, after a first turn that does not count, and prints medians and their ratio."""
    pairs = [(figure(one), figure(other)) for _ in range(rounds + 1)][1:]
    base, grown = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(
        f"{what}: {base:,.0f}/s and {grown:,.0f}/s, ratio {ratio:.2f} {verdict(ratio >= at_least)}",
        flush=True,
    )


def verdict(good: bool) -> str:
    return "(met)" if good else "(NOT met)"


# -- databases and the command line


@contextlib.contextmanager
def databases(kind: str) -> Iterator[tuple[str, str]]:
    """URLs of two fresh databases."""
    scratch = Path(tempfile.mkdtemp(prefix="jobkit-scale-"))
    scratch.chmod(0o755)
    if kind == "sqlite":
        yield f"sqlite:///{scratch}/small.db", f"sqlite:///{scratch}/large.db"
        return
    from benchmarks.harness.postgres import Postgres

    with Postgres(scratch) as server:
        yield server.url(server.create()), server.url(server.create())


QUESTIONS = {"finished": finished, "waiting": waiting, "pruning": pruning, "staging": staging}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("question", choices=sorted(QUESTIONS))
    parser.add_argument("--database", choices=["sqlite", "postgres"])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    for kind in [options.database] if options.database else ["sqlite", "postgres"]:
        size = 100_000 if options.question == "staging" else MILLION
        rows = options.rows or ROWS.get(options.question, {}).get(kind, size)
        print(f"-- {kind}", flush=True)
        with databases(kind) as (small, large):
            QUESTIONS[options.question](small, large, rows, options.rounds)


if __name__ == "__main__":
    main()
