"""What a run measures, in which order.

Rounds are interleaved: each one measures everything once, in an order of its own, so that a machine that
warms up or slows down touches all contenders alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.harness.measure import FULL, QUICK, Size
from benchmarks.harness.roster import Contender, Setting
from benchmarks.limits import LIMITS, Limit

ROUNDS = {
    "drain": 3,
    "single": 3,
    "bulk": 3,
    "bulk_unique": 3,
    "latency": 2,
    "latency_transaction": 2,
    "limit": 3,
}
EXTRAS = {
    "bulk_unique": "unique",
    "latency_transaction": "transaction",
    "idle50": "idle50",
    "memory": "memory",
}
LEADERS = frozenset({"jobkit", "oban", "pgqueuer", "huey"})
INSERTS = frozenset({"single", "bulk", "bulk_unique"})
ALL_KINDS = (
    "drain",
    "single",
    "bulk",
    "bulk_unique",
    "latency",
    "latency_transaction",
    "idle",
    "idle50",
    "memory",
    "limit",
)
QUICK_KINDS = ("drain", "single", "bulk", "bulk_unique", "latency", "latency_transaction", "limit")


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement of one round: a contender at a setting, or a limit."""

    kind: str
    contender: Contender | None = None
    setting: Setting | None = None
    limit: Limit | None = None

    @property
    def key(self) -> str:
        """The name its samples are kept under."""
        if self.limit:
            return f"limit|{self.limit.name}|"
        assert self.contender is not None
        setting = str(self.setting) if self.kind == "drain" else ""
        return f"{self.kind}|{self.contender.name}|{setting}"


@dataclass(frozen=True, slots=True)
class Plan:
    """All tasks of a run, round by round."""

    size: Size
    rounds: tuple[tuple[Task, ...], ...]

    def __iter__(self) -> Iterator[Task]:
        for tasks in self.rounds:
            yield from tasks


def make(
    contenders: Sequence[Contender],
    databases: set[str],
    *,
    quick: bool,
    kinds: set[str],
    rounds: int | None,
    seed: int,
) -> Plan:
    """Lay out the rounds; `rounds` overrides how often each kind is repeated."""
    offered = QUICK_KINDS if quick else ALL_KINDS
    tasks = [
        task for kind in (kinds or set(offered)) for task in tasks_of(kind, contenders, databases, quick)
    ]
    shuffle = random.Random(seed).shuffle
    laid: list[tuple[Task, ...]] = []
    for number in range(max([repeats(task.kind, quick, rounds) for task in tasks], default=0)):
        chosen = sorted(
            (task for task in tasks if repeats(task.kind, quick, rounds) > number), key=lambda task: task.key
        )
        shuffle(chosen)
        if quick:
            chosen.sort(key=lambda task: not leads(task))
        laid.append(tuple(chosen))
    return Plan(QUICK if quick else FULL, tuple(laid))


def repeats(kind: str, quick: bool, rounds: int | None) -> int:
    return rounds or (1 if quick else ROUNDS.get(kind, 1))


def leads(task: Task) -> bool:
    """Whether a quick run takes this first, lest its time run out: what jobkit is measured against most."""
    return task.contender is None or task.contender.adapter in LEADERS


def tasks_of(kind: str, contenders: Sequence[Contender], databases: set[str], quick: bool) -> list[Task]:
    if kind == "limit":
        chosen = [limit for limit in LIMITS if limit.database in databases]
        return [Task(kind, limit=limit) for limit in chosen if not quick or "100" in limit.name]
    able = [one for one in contenders if kind not in EXTRAS or EXTRAS[kind] in one.extras]
    if quick and kind != "drain":
        able = [one for one in able if one.durable]
    if kind in INSERTS:
        able = [one for one in able if not one.twin]
    if kind == "drain":
        return [Task(kind, one, setting) for one in able for setting in settings(one, quick)]
    return [Task(kind, one, typical(kind, one)) for one in able]


def settings(contender: Contender, quick: bool) -> tuple[Setting, ...]:
    """All of a contender's, or in a quick run the first of each kind of `perform`."""
    if not quick:
        return contender.settings
    return tuple({setting.kind: setting for setting in reversed(contender.settings)}.values())


def typical(kind: str, contender: Contender) -> Setting:
    """The setting of what is not a drain: one process, concurrency ten, or a hundred where memory is watched."""
    ones = [setting for setting in contender.settings if setting.processes == 1]
    if kind == "memory":
        return ones[0]
    return next((setting for setting in ones if setting.concurrency == 10), ones[0])
