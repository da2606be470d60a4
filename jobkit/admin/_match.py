"""Whether one job matches a query: the plain evaluator, over what display shows of the job.

This is what the language means; SQL only finds candidates faster. Invariant: content (args, meta, tags,
errors) is looked at in its redacted form only, and what redaction put there matches nothing, so a search can
tell nobody more than the page does.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from jobkit.admin._ast import (
    BARE,
    GROUPS,
    Ago,
    Compare,
    Custom,
    Exact,
    Moment,
    Op,
    Part,
    Query,
    Range,
    Scalar,
    Term,
    Value,
    Wild,
)
from jobkit.admin._facts import Facts, error_class
from jobkit.jobs import FINAL, JobState
from jobkit.redact import FAILED, REDACTED

__all__ = ["DEFAULT_TIMEOUT", "OVERDUE", "Surroundings", "folded", "matches"]

OVERDUE: Final = timedelta(minutes=5)
"""An available job that has been due for longer is overdue."""
DEFAULT_TIMEOUT: Final = timedelta(seconds=300)
"""Of a worker that no node has published."""

_MARKERS: Final = re.compile(re.escape(REDACTED) + "|" + re.escape(FAILED))
_FOLD: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a query may ask about that stands in other tables, read once for each search."""

    now: datetime
    live: frozenset[str] = frozenset()
    """Nodes that have a row and are not marked lost."""
    paused: frozenset[str] = frozenset()
    """Queues that are paused now."""
    timeouts: Mapping[str, timedelta | None] = field(default_factory=dict)
    """Worker -> timeout as published; None = no limit."""

    def timeout(self, worker: str) -> timedelta | None:
        """After which time a run of this worker counts as stuck; None = never."""
        return self.timeouts.get(worker, DEFAULT_TIMEOUT)


def folded(text: str) -> str:
    """The text with ASCII letters in lower case, and no others changed: the same on every database."""
    return text.translate(_FOLD)


def matches(query: Query, job: Facts, around: Surroundings) -> bool:
    """Whether every term matches. Terms of plugins' qualifiers count as matching: their SQL decides."""
    return all(term.field == "sort" or _custom(term) or _term(term, job, around) for term in query)


def _custom(term: Term) -> bool:
    return isinstance(term.values[0], Custom)


def _term(term: Term, job: Facts, around: Surroundings) -> bool:
    if term.path:
        root = job.args if term.field == "args" else job.meta
        found = list(_at(root, term.path))
        hit = any(_json(value, leaf) for value in term.values for leaf in found)
    else:
        test = _TESTS[term.field]
        hit = any(test(job, value, around) for value in term.values)
    return hit is not term.negated


# -- text


def _fragments(text: str) -> list[str]:
    return _MARKERS.split(text)


def _contains(text: str, needle: str) -> bool:
    return any(needle in folded(fragment) for fragment in _fragments(text))


def _text_is(text: str, value: Value) -> bool:
    """A text that may hold redacted parts, against an exact value or one with stars."""
    fragments = _fragments(text)
    if isinstance(value, Exact):
        return len(fragments) == 1 and text == value.value
    if not isinstance(value, Wild):
        return False
    if value.open_start and value.open_end:
        return any(value.text in fragment for fragment in fragments)
    return fragments[-1].endswith(value.text) if value.open_start else fragments[0].startswith(value.text)


# -- JSON


def _at(value: object, path: Sequence[Part]) -> Iterator[object]:
    """The values at a path."""
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield from _at(value[step], rest)
    elif isinstance(value, list):
        if step is None:
            for item in value:
                yield from _at(item, rest)
        elif step < len(value):
            yield from _at(value[step], rest)


def _json(value: Value, leaf: object) -> bool:
    """Whether a leaf of args or meta is what a term asks for. Objects and lists are no leaves."""
    if isinstance(value, Wild):
        if not value.text:
            return leaf is not None
        return isinstance(leaf, str) and _text_is(leaf, value)
    if isinstance(value, Exact):
        return _json_equal(value, leaf)
    if not isinstance(value, Compare | Range) or isinstance(leaf, bool) or not isinstance(leaf, int | float):
        return False
    return _ordered(value, leaf)


def _json_equal(wanted: Exact, leaf: object) -> bool:
    value = wanted.value
    if isinstance(value, str):
        return isinstance(leaf, str) and _text_is(leaf, wanted)
    if value is None or isinstance(value, bool):
        return leaf is value
    if isinstance(leaf, str):
        return leaf == wanted.text
    return isinstance(leaf, int | float) and not isinstance(leaf, bool) and leaf == value


def _leaves(value: object) -> Iterator[str]:
    """Every value inside as text; keys, true, false and null are none."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str):
        yield value
    elif value is not None and not isinstance(value, bool):
        yield str(value)


# -- order

_OPERATORS: Final[Mapping[Op, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}


def _ordered(value: Value, found: float) -> bool:
    if isinstance(value, Exact):
        return found == value.value
    if isinstance(value, Compare):
        return _OPERATORS[value.op](found, _plain(value.scalar))
    assert isinstance(value, Range)
    return (value.low is None or found >= _plain(value.low)) and (
        value.high is None or found <= _plain(value.high)
    )


def _plain(scalar: Scalar) -> int | float:
    assert isinstance(scalar, int | float)
    return scalar


def _span(value: Value, found: timedelta | None) -> bool:
    """A duration against `>30s` or `1m..5m`."""
    if found is None:
        return False
    micros = found // timedelta(microseconds=1)
    return _ordered(in_micros(value), micros)


def in_micros(value: Value) -> Value:
    """A comparison of spans as one of whole microseconds."""

    def micros(scalar: Scalar | None) -> int | None:
        return scalar.delta // timedelta(microseconds=1) if isinstance(scalar, Ago) else None

    if isinstance(value, Compare):
        return Compare(value.op, micros(value.scalar) or 0, value.text)
    assert isinstance(value, Range)
    return Range(micros(value.low), micros(value.high), value.low_text, value.high_text)


def interval(value: Value, now: datetime) -> tuple[datetime | None, datetime | None]:
    """The instants that a term about a time means, as (from, before); None is open.

    A span means an age: `<2h` is less than two hours ago. A date is the whole day.
    """
    if isinstance(value, Range):
        low = _bounds(value.low, now) if value.low is not None else None
        high = _bounds(value.high, now) if value.high is not None else None
        if isinstance(value.low, Ago) or isinstance(value.high, Ago):  # ages: the lower one is the later
            low, high = high, low
        return low[0] if low else None, high[1] if high else None
    assert isinstance(value, Compare)
    start, end = _bounds(value.scalar, now)
    op = _MIRRORED[value.op] if isinstance(value.scalar, Ago) else value.op
    return {
        "<": (None, start),
        "<=": (None, end),
        ">": (end, None),
        ">=": (start, None),
        "=": (start, end),
    }[op]


_MIRRORED: Final[Mapping[Op, Op]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_TICK: Final = timedelta(microseconds=1)


def _bounds(scalar: Scalar, now: datetime) -> tuple[datetime, datetime]:
    if isinstance(scalar, Moment):
        return scalar.start, scalar.end
    assert isinstance(scalar, Ago)
    at = now - scalar.delta
    return at, at + _TICK


def _time(value: Value, found: datetime | None, now: datetime) -> bool:
    if found is None:
        return False
    start, end = interval(value, now)
    return (start is None or found >= start) and (end is None or found < end)


# -- the fields


def _bare(job: Facts, value: Value, around: Surroundings) -> bool:
    assert isinstance(value, Exact)
    if isinstance(value.value, int) and job.id == value.value:
        return True
    needle = folded(value.text)
    texts = (job.worker, *job.tags, job.error)
    return any(_contains(text, needle) for text in texts) or _in_values(job.args, needle)


def _in_values(root: object, needle: str) -> bool:
    return any(_contains(leaf, needle) for leaf in _leaves(root))


def _needle(value: Value) -> str:
    assert isinstance(value, Exact)
    return folded(str(value.value))


def _is(job: Facts, value: Value, around: Surroundings) -> bool:
    assert isinstance(value, Exact)
    name = str(value.value)
    if name in GROUPS:
        return job.state in GROUPS[name]
    return condition(name, job, around)


def condition(name: str, job: Facts, around: Surroundings) -> bool:
    """Whether an `is:` condition that is no group of states holds."""
    if name == "orphaned":
        return job.state is JobState.EXECUTING and job.node not in around.live
    if name == "stuck":
        limit = around.timeout(job.worker)
        return (
            job.state is JobState.EXECUTING
            and limit is not None
            and job.attempted_at is not None
            and job.attempted_at < around.now - limit
        )
    if name == "overdue":
        return job.state is JobState.AVAILABLE and job.scheduled_at < around.now - OVERDUE
    if name == "paused":
        waiting = job.state not in FINAL and job.state is not JobState.EXECUTING
        return waiting and job.queue in around.paused
    return {"snoozed": job.snoozed > 0, "cron": job.cron is not None, "unique": job.unique_key is not None}[
        name
    ]


def _has(job: Facts, value: Value, around: Surroundings) -> bool:
    assert isinstance(value, Exact)
    return {
        "error": job.has_errors,
        "tags": job.has_tags,
        "meta": job.has_meta,
        "unique": job.kept_unique_key is not None,
    }[str(value.value)]


def _name(read: Callable[[Facts], str | None]) -> Callable[[Facts, Value, Surroundings], bool]:
    def test(job: Facts, value: Value, around: Surroundings) -> bool:
        text = read(job)
        return text is not None and _text_is(text, value)

    return test


def _class_is(job: Facts, value: Value, around: Surroundings) -> bool:
    name = error_class(job.error)
    return bool(name) and (_text_is(name, value) or _text_is(name.rpartition(".")[2], value))


_TESTS: Final[Mapping[str, Callable[[Facts, Value, Surroundings], bool]]] = {
    BARE: _bare,
    "id": lambda job, value, _: _ordered(value, job.id),
    "state": lambda job, value, _: isinstance(value, Exact) and job.state.value == value.value,
    "is": _is,
    "has": _has,
    "queue": _name(lambda job: job.queue),
    "worker": _name(lambda job: job.worker),
    "node": _name(lambda job: job.node),
    "cron": _name(lambda job: job.cron),
    "unique": _name(lambda job: job.unique_key),
    "tag": lambda job, value, _: any(_text_is(tag, value) for tag in job.tags),
    "priority": lambda job, value, _: _ordered(value, job.priority),
    "attempt": lambda job, value, _: _ordered(value, job.attempt),
    "max": lambda job, value, _: _ordered(value, job.max_attempts),
    "args": lambda job, value, _: _in_values(job.args, _needle(value)),
    "meta": lambda job, value, _: _in_values(job.meta, _needle(value)),
    "error": lambda job, value, _: _contains(job.error, _needle(value)),
    "error.class": _class_is,
    "inserted": lambda job, value, around: _time(value, job.inserted_at, around.now),
    "scheduled": lambda job, value, around: _time(value, job.scheduled_at, around.now),
    "started": lambda job, value, around: _time(value, job.attempted_at, around.now),
    "finished": lambda job, value, around: _time(value, job.finished_at, around.now),
    "ran": lambda job, value, _: _span(value, job.duration),
    "wait": lambda job, value, _: _span(value, job.wait),
}
