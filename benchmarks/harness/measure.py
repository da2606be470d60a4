"""The kinds of work and their clocks. Each function stages one contender once and returns one sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.harness.processes import MeasurementFailed, Workers
from benchmarks.harness.roster import Contender, Setting
from benchmarks.harness.stage import Bench, Stage
from benchmarks.harness.stats import percentile
from benchmarks.peers import ticks
from benchmarks.peers.base import Load

POLL = 0.003
START_PATIENCE = 60.0
Sample = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Size:
    """How much of each kind of work a run does."""

    jobs: int | None = None
    drain_share: float = 1.0
    single: int = 1_000
    bulk: int = 10_000
    latency: int = 100
    idle_settle: float = 6.0
    idle_seconds: float = 20.0
    memory: tuple[int, ...] = (50_000, 100_000, 150_000, 200_000)


FULL = Size()
QUICK = Size(
    drain_share=0.2,
    single=300,
    bulk=2_000,
    latency=20,
    idle_settle=2.0,
    idle_seconds=4.0,
    memory=(2_000, 8_000),
)


def drain(bench: Bench, contender: Contender, setting: Setting, size: Size) -> Sample:
    """Jobs a second from the first run to the last record, with what they cost."""
    jobs = size.jobs or int(contender.jobs * size.drain_share)
    load = as_load(setting)
    with bench.stage(contender) as stage:
        stage.setup(load)
        stage.agent.call("bulk", kind=load.kind, count=jobs)
        stage.settle()
        wal = stage.wal()
        with stage.workers(load) as workers:
            await_first_tick(stage, workers)
            cpu, server = workers.usage().cpu, stage.server_cpu()
            ended = await_drained(stage, jobs)
            usage, server_end = workers.usage(), stage.server_cpu()
            workers.check()
        written = stage.wal() - wal
        check_runs(stage, jobs)
        seconds = (ended - ticks.first_at(stage.ticks)) / 1e9
    sample = {
        "value": jobs / seconds,
        "worker_us": (usage.cpu - cpu) / jobs * 1e6,
        "rss": usage.rss,
        "jobs": float(jobs),
    }
    if contender.database != "sqlite":
        sample["server_us"] = (server_end - server) / jobs * 1e6
    if contender.database == "postgres":
        sample["wal"] = written / jobs
    return sample


def single(bench: Bench, contender: Contender, setting: Setting, size: Size) -> Sample:
    """Durable inserts a second, one after the other."""
    return insert(bench, contender, setting, "single", size.single, "enqueue_one")


def bulk(bench: Bench, contender: Contender, setting: Setting, size: Size) -> Sample:
    """Jobs a second by the peer's best means of inserting many."""
    return insert(bench, contender, setting, "bulk", size.bulk, "enqueue_many")


def bulk_unique(bench: Bench, contender: Contender, setting: Setting, size: Size) -> Sample:
    """The same with a unique key on each job."""
    return insert(bench, contender, setting, "bulk", size.bulk, "enqueue_unique")


def insert(bench: Bench, contender: Contender, setting: Setting, call: str, jobs: int, method: str) -> Sample:
    load = as_load(setting)
    with bench.stage(contender) as stage:
        stage.setup(load)
        seconds = stage.agent.call(call, kind=load.kind, count=jobs, method=method)
    assert isinstance(seconds, float)
    return {"value": jobs / seconds, "jobs": float(jobs)}


def latency(bench: Bench, contender: Contender, setting: Setting, size: Size) -> Sample:
    """Milliseconds from the insert's call to the start of the job, on an idle worker."""
    return wait_times(bench, contender, setting, size.latency, "enqueue_one")


def latency_transaction(bench: Bench, contender: Contender, setting: Setting, size: Size) -> Sample:
    """The same with the insert in a transaction of the caller's, commit included."""
    return wait_times(bench, contender, setting, size.latency, "enqueue_in_transaction")


def wait_times(bench: Bench, contender: Contender, setting: Setting, count: int, method: str) -> Sample:
    load = as_load(setting)
    with bench.stage(contender) as stage:
        stage.setup(load)
        stage.agent.call("bulk", kind=load.kind, count=1)
        with stage.workers(load) as workers:
            await_first_tick(stage, workers)
            time.sleep(1.5)
            times = stage.agent.call("latency", kind=load.kind, count=count, method=method)
            workers.check()
    assert isinstance(times, dict)
    called, committed = sorted(times["call"]), sorted(times["commit"])
    return {
        "value": percentile(called, 50),
        "p95": percentile(called, 95),
        "p99": percentile(called, 99),
        "max": called[-1],
        "commit_p50": percentile(committed, 50),
        "jobs": float(count),
    }


def idle(bench: Bench, contender: Contender, setting: Setting, size: Size) -> Sample:
    """Statements (Redis: commands) a second, CPU and memory of one worker of two queues with nothing to do."""
    return at_rest(bench, contender, setting, size, ("default", "other"))


def idle50(bench: Bench, contender: Contender, setting: Setting, size: Size) -> Sample:
    """The same with fifty queues."""
    return at_rest(bench, contender, setting, size, ("default", *(f"other{number}" for number in range(49))))


def at_rest(
    bench: Bench, contender: Contender, setting: Setting, size: Size, queues: tuple[str, ...]
) -> Sample:
    load = Load(setting.kind, 1, setting.concurrency, queues)
    postgres = bench.postgres if contender.database == "postgres" else None
    with bench.stage(contender) as stage:
        stage.setup(load)
        if postgres:
            postgres.log_statements(stage.database)
        with stage.workers(load) as workers:
            time.sleep(size.idle_settle)
            workers.check()
            cpu, began = workers.usage().cpu, time.monotonic()
            offset = postgres.log.stat().st_size if postgres else 0
            commands = bench.redis.commands() if bench.redis and contender.database == "redis" else 0
            time.sleep(size.idle_seconds)
            seconds, usage = time.monotonic() - began, workers.usage()
            workers.check()
        sample = {"cpu": (usage.cpu - cpu) / seconds * 100, "rss": usage.rss}
        if postgres:
            statements, frames = postgres.statements(stage.database, offset)
            return {**sample, "value": statements / seconds, "frames": frames / seconds}
        if bench.redis and contender.database == "redis":
            return {**sample, "value": (bench.redis.commands() - commands) / seconds}
    return sample


def memory(bench: Bench, contender: Contender, setting: Setting, size: Size) -> Sample:
    """Megabytes of a worker at rest and after each thousand of jobs that `size.memory` names."""
    load = as_load(setting)
    sample: dict[str, float] = {}
    with bench.stage(contender) as stage:
        stage.setup(load)
        with stage.workers(load) as workers:
            time.sleep(size.idle_settle)
            sample["rest"] = workers.usage().rss
            done = 0
            for target in size.memory:
                stage.agent.call("bulk", kind=load.kind, count=target - done)
                await_drained(stage, target, patience=900.0)
                done = target
                sample[f"after {target}"] = workers.usage().rss
            workers.check()
    first, last = sample[f"after {size.memory[0]}"], sample[f"after {size.memory[-1]}"]
    return {**sample, "value": sample["rest"], "growth": last - first}


KINDS: Mapping[str, Callable[[Bench, Contender, Setting, Size], Sample]] = {
    "drain": drain,
    "single": single,
    "bulk": bulk,
    "bulk_unique": bulk_unique,
    "latency": latency,
    "latency_transaction": latency_transaction,
    "idle": idle,
    "idle50": idle50,
    "memory": memory,
}


def as_load(setting: Setting) -> Load:
    return Load(setting.kind, setting.processes, setting.concurrency)


def await_first_tick(stage: Stage, workers: Workers) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while ticks.count(stage.ticks) == 0:
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"no job ran within {START_PATIENCE:.0f} s")
        workers.check()
        time.sleep(POLL)


def await_drained(stage: Stage, jobs: int, patience: float = 300.0) -> int:
    ended = stage.agent.call("await_drained", expected=jobs, timeout=patience)
    assert isinstance(ended, int)
    return ended


def check_runs(stage: Stage, jobs: int) -> None:
    """A queue that runs a job twice, or not at all, has no speed."""
    ran = ticks.count(stage.ticks)
    if ran != jobs or len(ticks.read(stage.ticks)) != jobs:
        raise MeasurementFailed(f"{jobs} jobs, {ran} runs")
