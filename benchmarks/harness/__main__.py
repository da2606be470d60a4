"""The command line of the comparison; `benchmarks/run.py` starts it in the harness's environment."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import limits
from benchmarks.harness import plan, report
from benchmarks.harness.environments import Environments
from benchmarks.harness.measure import KINDS, Size
from benchmarks.harness.plan import Plan, Task
from benchmarks.harness.processes import MeasurementFailed
from benchmarks.harness.redis_server import RedisServer
from benchmarks.harness.results import Results, describe_machine
from benchmarks.harness.roster import taking_part
from benchmarks.harness.stage import Bench, bench

ROOT = Path.cwd()
QUICK_SECONDS = 155.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description="Compare jobkit with its peers.")
    parser.add_argument("--quick", action="store_true", default=os.environ.get("QUICK", "0") not in ("", "0"))
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a contender, an adapter, or limits"
    )
    parser.add_argument("--kind", action="append", default=[], choices=plan.ALL_KINDS)
    parser.add_argument(
        "--setting", action="append", default=[], help='drains of this setting only: "async 1 x 100"'
    )
    parser.add_argument("--rounds", type=int, help="repeat every kind this often")
    parser.add_argument("--jobs", type=int, help="jobs of a drain and of a bulk insert")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--results", type=Path, default=ROOT / ".bench" / "results.json")
    parser.add_argument(
        "--page", type=Path, help="the page to write into (a whole run writes docs/performance.md)"
    )
    parser.add_argument("--render", action="store_true", help="measure nothing, only render the results file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that servers are stopped
    options = parse(arguments)
    if options.render:
        return publish(options, Results.load(options.results))
    databases = {"postgres", "sqlite"} | ({"redis"} if RedisServer.found() else set())
    names = set(options.only) or None
    contenders = list(taking_part(databases, names))
    kinds = {"limit"} if names == {"limits"} else set(options.kind)
    if names and names != {"limits"} and not kinds:
        kinds = set(plan.ALL_KINDS) - {"limit"}
    layout = plan.make(
        contenders, databases, quick=options.quick, kinds=kinds, rounds=options.rounds, seed=options.seed
    )
    environments = Environments(ROOT)
    for environment in {contender.environment for contender in contenders}:
        environments.ensure(environment)
    results = Results()
    with bench(environments, databases) as place:
        results.machine = describe_machine(place)
        run(
            place,
            narrowed(layout, options),
            results,
            time.monotonic() + QUICK_SECONDS if options.quick else None,
        )
    results.save(options.results)
    return publish(options, results)


def narrowed(layout: Plan, options: argparse.Namespace) -> Plan:
    """The plan as --setting and --jobs change it."""
    size: Size = layout.size
    if options.jobs:
        size = replace(size, jobs=options.jobs, bulk=options.jobs)
    wanted = set(options.setting)
    rounds = tuple(
        tuple(task for task in tasks if not wanted or task.kind != "drain" or str(task.setting) in wanted)
        for tasks in layout.rounds
    )
    return Plan(size, rounds)


def run(place: Bench, layout: Plan, results: Results, until: float | None) -> None:
    """Measure everything; a contender that fails is noted, and the run goes on."""
    tasks = list(layout)
    for number, task in enumerate(tasks, 1):
        if until and time.monotonic() > until:
            results.failures.append({"key": task.key, "error": "left out: the time of a quick run was over"})
            continue
        try:
            sample = measure(place, task, layout.size)
        except MeasurementFailed as failure:
            results.failures.append({"key": task.key, "error": str(failure)})
            say(number, len(tasks), task.key, f"FAILED: {failure}")
            continue
        results.add(task.key, sample)
        say(
            number,
            len(tasks),
            task.key,
            "  ".join(f"{name} {report.figure(value)}" for name, value in sample.items()),
        )


def measure(place: Bench, task: Task, size: Size) -> dict[str, float]:
    if task.limit:
        with place.bare() as (url, directory):
            jobs = min(task.limit.jobs, size.bulk)
            return {"value": limits.measure(task.limit, url, directory, jobs)}
    assert task.contender is not None
    assert task.setting is not None
    return dict(KINDS[task.kind](place, task.contender, task.setting, size))


def say(number: int, total: int, key: str, text: str) -> None:
    print(f"[{number}/{total}] {key.replace('|', ' ').strip()}: {text}", file=sys.stderr, flush=True)


def publish(options: argparse.Namespace, results: Results) -> int:
    text = report.render(results)
    print(text)
    whole = not (
        options.quick or options.only or options.kind or options.setting or options.rounds or options.jobs
    )
    page = options.page or (ROOT / "docs" / "performance.md" if whole else None)
    if page:
        report.include(page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
