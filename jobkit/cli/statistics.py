"""The figures of `jobkit stats`, and conditions on them for monitoring.

Invariant: every figure comes from the reads that pages use: capped, cheap, and said to be so.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.shapes import plain

if TYPE_CHECKING:
    from jobkit.admin.reads import Reads
    from jobkit.admin.views import Count, NodeView, QueueView

__all__ = ["METRICS", "Condition", "Figures", "figures", "percentiles", "prometheus"]


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at everything. `ended`: jobs that became final within `since`, by state."""

    at: datetime
    since: timedelta
    states: Mapping[str, Count]
    ended: Mapping[str, Count]
    inserted: Count
    queues: tuple[QueueView, ...]
    nodes: tuple[NodeView, ...]

    @property
    def finished(self) -> int:
        """Jobs that became final within the time."""
        return sum(count.value for count in self.ended.values())

    @property
    def failures(self) -> float:
        """The share of those that were discarded; 0 where none ended."""
        return self.ended["discarded"].value / self.finished if self.finished else 0.0

    @property
    def oldest(self) -> timedelta | None:
        """For how long the first available job of any queue has waited; None where no job waits."""
        return max((q.oldest_age for q in self.queues if q.oldest_age is not None), default=None)

    @property
    def rate(self) -> float:
        """Jobs that ended a minute."""
        return self.finished / max(self.since.total_seconds() / 60, 1e-9)


def figures(reads: Reads, since: timedelta) -> Figures:
    """Look once."""
    seconds = max(int(since.total_seconds()), 1)
    ended = reads.states(f"finished:<{seconds}s").counts
    states = reads.states()
    return Figures(
        at=states.at,
        since=since,
        states={str(state): count for state, count in states.counts.items()},
        ended={name: ended[state] for state in ended if (name := str(state)) in _ENDS},
        inserted=reads.count(f"inserted:<{seconds}s").count,
        queues=reads.queues(),
        nodes=reads.nodes(),
    )


_ENDS: Final = ("completed", "discarded", "cancelled")


def _state(name: str) -> Callable[[Figures], float]:
    return lambda found: float(found.states[name].value)


METRICS: Final[dict[str, tuple[Callable[[Figures], float], str]]] = {
    "failures": (lambda f: f.failures, "share of jobs that ended as discarded within --since (5%)"),
    "failed": (lambda f: float(f.ended["discarded"].value), "jobs discarded within --since"),
    "finished": (lambda f: float(f.finished), "jobs that ended within --since"),
    "oldest": (
        lambda f: (f.oldest or timedelta(0)).total_seconds(),
        "for how long the first available job has waited (10m)",
    ),
    "available": (_state("available"), "jobs that wait"),
    "scheduled": (_state("scheduled"), "jobs for later"),
    "retryable": (_state("retryable"), "jobs that will be tried again"),
    "executing": (_state("executing"), "jobs that run"),
    "nodes": (lambda f: float(sum(not n.stale for n in f.nodes)), "live nodes"),
    "stale": (lambda f: float(sum(n.stale for n in f.nodes)), "nodes that are lost or silent"),
    "orphans": (lambda f: float(sum(n.orphans for n in f.nodes)), "executing jobs of dead nodes"),
    "unserved": (
        lambda f: float(sum(q.status == "no nodes" for q in f.queues)),
        "queues that no node works on",
    ),
    "paused": (lambda f: float(sum(q.paused for q in f.queues)), "paused queues"),
}
_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
_CONDITION: Final = re.compile(r"\s*([a-z]+)\s*(>=|<=|>|<|=)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """`oldest>10m`: a metric, an operator, and a number, share or duration."""

    text: str
    metric: str
    sign: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read one; raises CommandError."""
        found = _CONDITION.fullmatch(text)
        if found is None or found[1] not in METRICS:
            known = ", ".join(METRICS)
            raise CommandError(f"{text!r} is no condition", ExitCode.USAGE, hint=f"METRIC>LIMIT, of: {known}")
        return cls(text.strip(), found[1], found[2], _limit(found[1], found[3], text))

    def met(self, found: Figures) -> bool:
        """Whether it holds."""
        return _OPERATORS[self.sign](METRICS[self.metric][0](found), self.limit)

    def said(self, found: Figures) -> str:
        """The condition with the value that was found."""
        value = METRICS[self.metric][0](found)
        if self.metric == "oldest":
            return f"{self.text}: {value:.0f}s"
        return f"{self.text}: {value:.1%}" if "%" in self.text else f"{self.text}: {value:g}"


def _limit(metric: str, text: str, whole: str) -> float:
    from jobkit.config import parse_duration
    from jobkit.errors import ConfigError

    try:
        if metric == "oldest":
            return parse_duration(text).total_seconds()
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except (ConfigError, ValueError):
        raise CommandError(
            f"{whole!r} is no condition: {text!r} is no limit for {metric}", ExitCode.USAGE
        ) from None


def percentiles(reads: Reads, since: timedelta, *, pages: int = 5) -> dict[str, object]:
    """Of the newest completed jobs within the time: how long they ran and waited, in seconds."""
    query, cursor = f"state:completed finished:<{max(int(since.total_seconds()), 1)}s", None
    ran: list[float] = []
    waited: list[float] = []
    for _ in range(pages):
        page = reads.jobs(query, cursor=cursor, limit=200)
        ran += [job.duration.total_seconds() for job in page.jobs if job.duration is not None]
        waited += [job.wait.total_seconds() for job in page.jobs if job.wait is not None]
        if page.next is None:
            break
        cursor = page.next
    return {"sample": len(ran), "ran": _spread(ran), "waited": _spread(waited)}


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    values.sort()
    at = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    found = {name: values[min(int(share * len(values)), len(values) - 1)] for name, share in at.items()}
    return found | {"max": values[-1]}


def prometheus(found: Figures) -> str:
    """The figures in Prometheus' text format."""
    lines = ["# HELP jobkit_jobs Jobs by state.", "# TYPE jobkit_jobs gauge"]
    lines += [f'jobkit_jobs{{state="{state}"}} {count.value}' for state, count in found.states.items()]
    lines += ["# HELP jobkit_queue_jobs Jobs by queue and state.", "# TYPE jobkit_queue_jobs gauge"]
    for queue in found.queues:
        counts = {"available": queue.available.value, "executing": queue.executing}
        lines += [f'jobkit_queue_jobs{{queue="{queue.name}",state="{s}"}} {n}' for s, n in counts.items()]
    lines += _gauge(
        "jobkit_queue_limit", "Jobs that may run at once.", {q.name: q.limit for q in found.queues}
    )
    oldest = {q.name: plain(q.oldest_age or timedelta(0)) for q in found.queues}
    lines += _gauge("jobkit_queue_oldest_seconds", "For how long the first available job has waited.", oldest)
    lines += ["# HELP jobkit_nodes Live nodes.", "# TYPE jobkit_nodes gauge"]
    lines.append(f"jobkit_nodes {sum(not node.stale for node in found.nodes)}")
    return "\n".join(lines)


def _gauge(name: str, text: str, values: Mapping[str, object]) -> list[str]:
    rows = [f'{name}{{queue="{queue}"}} {value}' for queue, value in values.items()]
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge", *rows]
