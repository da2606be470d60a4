"""Who takes part, with which settings. Pure data: a new contender is one entry here and one adapter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.environments import Environment

PEERS = Path(__file__).resolve().parent.parent / "peers"
BASELINE = "jobkit"


@dataclass(frozen=True, slots=True)
class Setting:
    """A worker's shape: kind of `perform`, processes, concurrency of each."""

    kind: str
    processes: int
    concurrency: int

    def __str__(self) -> str:
        return f"{self.kind} {self.processes} x {self.concurrency}"


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of the tables.

    `jobs` is how many a full drain takes, `extras` are kinds of work that only it can do, and `twin` names
    the contender that it differs from by its worker alone, so that its inserts need no figures of their own.
    """

    name: str
    adapter: str
    database: str
    settings: tuple[Setting, ...]
    variant: str = ""
    durable: bool = True
    note: str = ""
    jobs: int = 10_000
    twin: str = ""
    extras: frozenset[str] = field(default_factory=frozenset)

    @property
    def environment(self) -> Environment:
        return Environment(self.adapter, f"peers/{self.adapter}.txt")

    @property
    def module(self) -> str:
        return f"{self.adapter}_adapter"

    @property
    def available(self) -> bool:
        return (PEERS / f"{self.module}.py").exists()


def shapes(kinds: str, *pairs: tuple[int, int]) -> tuple[Setting, ...]:
    return tuple(
        Setting(kind, processes, concurrency) for kind in kinds.split() for processes, concurrency in pairs
    )


USUAL = ((1, 100), (1, 10), (2, 50))
JOBKIT_EXTRAS = frozenset({"unique", "transaction", "idle50", "memory"})

ROSTER = (
    Contender("jobkit", "jobkit", "postgres", shapes("async sync", *USUAL), extras=JOBKIT_EXTRAS),
    Contender("oban", "oban", "postgres", shapes("async", *USUAL)),
    Contender("pgqueuer", "pgqueuer", "postgres", shapes("async", *USUAL), note="concurrency unbounded"),
    Contender(
        "pgqueuer_bounded",
        "pgqueuer",
        "postgres",
        shapes("async", *USUAL),
        variant="bounded",
        twin="pgqueuer",
    ),
    Contender("procrastinate", "procrastinate", "postgres", shapes("async sync", *USUAL), jobs=5_000),
    Contender("chancy", "chancy", "postgres", shapes("async sync", *USUAL), note="records once a second"),
    Contender(
        "jobkit_sqlite",
        "jobkit",
        "sqlite",
        shapes("async sync", *USUAL),
        variant="sqlite",
        extras=JOBKIT_EXTRAS,
    ),
    Contender("huey_sqlite", "huey", "sqlite", shapes("sync", (1, 1), (1, 10), (2, 1)), note="at most once"),
    Contender(
        "huey_redis",
        "huey",
        "redis",
        shapes("sync", (1, 1), (1, 10), (2, 1)),
        durable=False,
        note="at most once",
    ),
    Contender("celery_redis", "celery", "redis", shapes("sync", (1, 10), (2, 1)), durable=False, jobs=5_000),
    Contender("dramatiq_redis", "dramatiq", "redis", shapes("sync", (1, 8), (2, 8)), durable=False),
)


def taking_part(databases: set[str], names: set[str] | None = None) -> Iterator[Contender]:
    """Those whose adapter and database exist and, if `names` is given, whose name or adapter is among them."""
    for contender in ROSTER:
        wanted = names is None or bool({contender.name, contender.adapter} & names)
        if wanted and contender.available and contender.database in databases:
            yield contender
