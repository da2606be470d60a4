"""Where jobkit must come to, as ratios within one run or as plain bounds. Pure data and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.harness.results import Results

Figure = Callable[[Results], float | None]


def drain(name: str, setting: str) -> Figure:
    return lambda results: results.median("drain", name, setting)


def best(name: str) -> Figure:
    return lambda results: results.best(name)


def of(kind: str, name: str, figure: str = "value") -> Figure:
    return lambda results: results.median(kind, name, "", figure)


def constant(value: float) -> Figure:
    return lambda results: value


@dataclass(frozen=True, slots=True)
class Goal:
    """`figure` divided by `reference` must be at least, or at most, `bound`."""

    text: str
    figure: Figure
    reference: Figure
    bound: float
    at_most: bool = False

    def ratio(self, results: Results) -> float | None:
        """The ratio that was reached, None where a part was not measured."""
        figure, reference = self.figure(results), self.reference(results)
        return None if figure is None or not reference else figure / reference

    def met(self, ratio: float) -> bool:
        return ratio <= self.bound if self.at_most else ratio >= self.bound


HUNDRED, TEN = "async 1 x 100", "async 1 x 10"
UNIT = constant(1.0)
PG = "drain, Postgres,"
LITE = "drain, SQLite FULL,"

GOALS = (
    Goal(
        f"{PG} {HUNDRED} / pgqueuer bounded",
        drain("jobkit", HUNDRED),
        drain("pgqueuer_bounded", HUNDRED),
        1.6,
    ),
    Goal(f"{PG} {HUNDRED} / pgqueuer", drain("jobkit", HUNDRED), drain("pgqueuer", HUNDRED), 1.2),
    Goal(f"{PG} {HUNDRED} / oban", drain("jobkit", HUNDRED), drain("oban", HUNDRED), 6.0),
    Goal(
        f"{PG} {HUNDRED} / raw claim + record",
        drain("jobkit", HUNDRED),
        of("limit", "pg claim + record, batches of 100"),
        0.55,
    ),
    Goal(f"{PG} {TEN} / pgqueuer bounded", drain("jobkit", TEN), drain("pgqueuer_bounded", TEN), 1.6),
    Goal(f"{PG} {TEN} / oban", drain("jobkit", TEN), drain("oban", TEN), 2.5),
    Goal(
        f"{PG} sync 1 x 100 / chancy", drain("jobkit", "sync 1 x 100"), drain("chancy", "sync 1 x 100"), 6.0
    ),
    Goal(
        f"{PG} sync 1 x 100 / procrastinate",
        drain("jobkit", "sync 1 x 100"),
        drain("procrastinate", "sync 1 x 100"),
        20.0,
    ),
    Goal(f"{PG} best / pgqueuer best", best("jobkit"), best("pgqueuer"), 1.0),
    Goal(f"{PG} best / oban best", best("jobkit"), best("oban"), 4.0),
    Goal(f"{LITE} {HUNDRED} / huey best", drain("jobkit_sqlite", HUNDRED), best("huey_sqlite"), 5.5),
    Goal(f"{LITE} sync 1 x 10 / huey best", drain("jobkit_sqlite", "sync 1 x 10"), best("huey_sqlite"), 1.2),
    Goal("enqueue one, Postgres / pgqueuer", of("single", "jobkit"), of("single", "pgqueuer"), 1.0),
    Goal("enqueue one, Postgres / oban", of("single", "jobkit"), of("single", "oban"), 1.4),
    Goal("enqueue one, SQLite FULL / huey", of("single", "jobkit_sqlite"), of("single", "huey_sqlite"), 1.0),
    Goal("enqueue many, Postgres / pgqueuer", of("bulk", "jobkit"), of("bulk", "pgqueuer"), 1.2),
    Goal("enqueue many, SQLite FULL / huey", of("bulk", "jobkit_sqlite"), of("bulk", "huey_sqlite"), 8.0),
    Goal("enqueue many, Postgres, unique / plain", of("bulk_unique", "jobkit"), of("bulk", "jobkit"), 1 / 3),
    Goal(
        "enqueue many, SQLite, unique / plain",
        of("bulk_unique", "jobkit_sqlite"),
        of("bulk", "jobkit_sqlite"),
        1 / 3,
    ),
    Goal("latency p50, Postgres / oban", of("latency", "jobkit"), of("latency", "oban"), 0.8, True),
    Goal(
        "latency p50, Postgres, caller's transaction / oban",
        of("latency_transaction", "jobkit"),
        of("latency", "oban"),
        1.0,
        True,
    ),
    Goal("latency p99, Postgres, ms", of("latency", "jobkit", "p99"), UNIT, 10.0, True),
    Goal(
        "latency p50, SQLite / huey", of("latency", "jobkit_sqlite"), of("latency", "huey_sqlite"), 0.12, True
    ),
    Goal("idle, 2 queues, statements a second", of("idle", "jobkit"), UNIT, 2.5, True),
    Goal("idle, 50 queues, statements a second", of("idle50", "jobkit"), UNIT, 2.5, True),
    Goal("idle, Postgres, CPU %", of("idle", "jobkit", "cpu"), UNIT, 1.0, True),
    Goal("idle, SQLite, CPU %", of("idle", "jobkit_sqlite", "cpu"), UNIT, 1.0, True),
    Goal("memory at rest, Postgres, MB", of("memory", "jobkit", "rest"), UNIT, 75.0, True),
    Goal(
        "memory, MB more after 200,000 than after 50,000 jobs",
        of("memory", "jobkit", "growth"),
        UNIT,
        3.0,
        True,
    ),
)


def evaluate(results: Results) -> Iterator[tuple[Goal, float]]:
    """The goals that this run can speak about, each with the ratio it reached."""
    for goal in GOALS:
        ratio = goal.ratio(results)
        if ratio is not None:
            yield goal, ratio
