"""Finding jobs that will still run, and saying what was found instead.

Invariant: only reads, and shows args and meta to a test's log no other way than redacted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Row

from jobkit._testing_match import EnqueuedJob, Expected
from jobkit._testing_reach import SyncConnection, connection_of, tables_expected
from jobkit.core import Core
from jobkit.jobs import JobState
from jobkit.storage.engine import reading
from jobkit.storage.schema import Tables

__all__ = ["WAITING", "Found", "find"]

WAITING: Final = frozenset({JobState.AVAILABLE, JobState.SCHEDULED, JobState.RETRYABLE})
"""The states of jobs that will still run: one that executes is running already, a final one has run."""

_SHOWN: Final = 20
_LONGEST: Final = 2_000
_COLUMNS: Final = (
    *("id", "worker", "queue", "state", "args", "meta", "tags"),
    *("priority", "attempt", "max_attempts", "inserted_at", "scheduled_at"),
)


class Found:
    """All jobs that will still run, and which of them are the expected ones."""

    def __init__(
        self, core: Core, expected: Expected, jobs: Sequence[EnqueuedJob], others: Counter[str]
    ) -> None:
        self._core = core
        self._expected = expected
        self._jobs = jobs
        self._others = others
        self.matching: list[EnqueuedJob] = [job for job in jobs if expected.differs(job) is None]

    def missing(self) -> str:
        """The text of an assertion that found no match."""
        return f"no job that will still run has {self._wanted()}\n{self._inventory()}"

    def unwanted(self) -> str:
        """The text of an assertion that found what should not be there."""
        lines = [self._line(job) for job in self.matching[:_SHOWN]]
        return "\n".join((f"expected no job with {self._wanted()}; found {len(self.matching)}:", *lines))

    def _inventory(self) -> str:
        """The jobs there are, those of the expected worker first, each with the place where it differs."""
        ordered = sorted(self._jobs, key=lambda job: (job.worker != self._expected.worker, job.id))
        lines = [f"{len(ordered)} jobs will still run:" if ordered else "no job at all will still run"]
        lines += [
            f"{self._line(job)}\n    differs in {self._expected.differs(job)}" for job in ordered[:_SHOWN]
        ]
        if len(ordered) > _SHOWN:
            lines.append(f"  ... and {len(ordered) - _SHOWN} more")
        if self._others:
            told = ", ".join(f"{count} {state}" for state, count in sorted(self._others.items()))
            lines.append(f"besides, not counted: {told}")
        return "\n".join(lines)

    def _wanted(self) -> str:
        wanted = self._expected
        parts = [
            f"{name}={self._shown(name, getattr(wanted, name), wanted.worker, ())}"
            for name in ("worker", "queue", "args", "meta", "tags", "scheduled_at")
            if getattr(wanted, name) is not None
        ]
        return ", ".join(parts) or "any properties"

    def _line(self, job: EnqueuedJob) -> str:
        secret = cast("Sequence[str]", job.meta.get("secret_paths", ()))
        args = self._shown("args", job.args, job.worker, secret)
        meta = self._shown("meta", job.meta, job.worker, ())
        tags = self._shown("tags", list(job.tags), job.worker, ())
        return (
            f"  {job.id} {job.worker} [{job.state}] queue={job.queue} args={args} meta={meta} tags={tags} "
            f"scheduled_at={job.scheduled_at.isoformat()}"
        )

    def _shown(self, name: str, value: object, worker: str | None, secret: Sequence[str]) -> str:
        if name in ("worker", "queue", "scheduled_at"):
            return repr(value)
        plain = _plain(value)
        text = repr(
            self._core.redactor.value(plain, path=name, worker=worker, kind=name, secret_paths=secret)
        )
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def find(core: Core, expected: Expected, conn: SyncConnection | None) -> Found:
    """Read what there is, in the caller's transaction or on a connection of jobkit's own."""
    if conn is not None:
        joined = connection_of(conn)
        with tables_expected():
            return _read(core, core.storage_for(joined).tables, expected, joined)
    core.ready()
    with tables_expected(), core.engine.connect() as own, reading(own):
        return _read(core, core.tables, expected, own)


def _read(core: Core, tables: Tables, expected: Expected, conn: Connection) -> Found:
    jobs = tables.jobs
    waiting = sa.select(*(jobs.c[name] for name in _COLUMNS)).where(jobs.c.state.in_(WAITING))
    rows = [_job(row) for row in conn.execute(waiting.order_by(jobs.c.id))]
    others = (
        sa.select(jobs.c.state, sa.func.count().label("number"))
        .where(jobs.c.state.not_in(WAITING))
        .group_by(jobs.c.state)
    )
    if expected.worker is not None:
        others = others.where(jobs.c.worker == expected.worker)
    counts = Counter({row.state: row.number for row in conn.execute(others)})
    return Found(core, expected, rows, counts)


def _job(row: Row[Any]) -> EnqueuedJob:
    values = dict(row._mapping)
    values["state"] = JobState(values["state"])
    for name in ("args", "meta", "tags"):
        values[name] = _decoded(values[name])
    if not isinstance(values["args"], dict):
        values["args"] = {}  # a row that was broken by hand: nothing matches it
    values["tags"] = tuple(values["tags"])
    return EnqueuedJob(**values)


def _decoded(text: str | bytes) -> object:
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return value


def _plain(value: object) -> object:
    """`value` with whatever has no JSON form as text, so that it can be redacted and shown."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else repr(value)
