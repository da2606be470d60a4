"""Changes of one shape go into one statement.

Invariant: within a group all ids differ and all changes set the same columns under the same kind of fence,
so one UPDATE over the group, returning ids, tells exactly which changes landed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from jobkit.jobs import FINAL, JobState
from jobkit.storage.base import Change, ErrorEntry
from jobkit.storage.schema import to_text

__all__ = ["EDITS", "FINAL_TIMES", "Group", "Shape", "error_json", "grouped", "in_input_order"]

EDITS: Final = ("queue", "priority", "max_attempts", "tags")
FINAL_TIMES: Final = {state: f"{state.value}_at" for state in sorted(FINAL)}


class Shape(NamedTuple):
    """What decides the text of the statement."""

    to: JobState | None
    leased: bool
    expect: frozenset[JobState]
    delta: int
    error: bool
    snoozed: bool
    scheduled: bool
    edits: tuple[str, ...]
    spare: bool

    @property
    def leaves_final(self) -> bool:
        """Whether the row may come out of a final state, whose time must go then."""
        return self.to is not None and not self.leased and not self.expect.isdisjoint(FINAL)

    @property
    def final_time(self) -> str | None:
        """The column that takes `Change.at`."""
        return FINAL_TIMES.get(self.to) if self.to is not None else None


@dataclass(slots=True)
class Group:
    """Changes of one shape with distinct ids; `node` owns all their leases."""

    shape: Shape
    node: str | None
    by_id: dict[int, Change]

    @property
    def changes(self) -> Collection[Change]:
        """The changes, in order."""
        return self.by_id.values()

    def landed(self, ids: Iterable[int]) -> list[Change]:
        """The changes of these ids, in order."""
        found = set(ids)
        if len(found) == len(self.by_id):
            return list(self.by_id.values())
        return [change for job_id, change in self.by_id.items() if job_id in found]

    def for_state(self, state: JobState, without: set[int]) -> Group:
        """The same changes, but only from that one state; ids in `without` have landed already."""
        rest = {job_id: change for job_id, change in self.by_id.items() if job_id not in without}
        return Group(self.shape._replace(expect=frozenset({state})), self.node, rest)


def grouped(changes: Sequence[Change]) -> list[Group]:
    """The changes by shape and node, in order of first appearance; a repeated id opens another group."""
    groups: list[Group] = []
    current: dict[tuple[Shape, str | None], Group] = {}
    for change in changes:
        lease = change.lease
        node, job_id = (None, change.id) if lease is None else (lease.node, lease.id)
        key = (_shape(change), node)
        group = current.get(key)
        assert job_id is not None
        if group is None or job_id in group.by_id:
            group = current[key] = Group(key[0], node, {})
            groups.append(group)
        group.by_id[job_id] = change
    return groups


def _shape(change: Change) -> Shape:
    if change.to is JobState.EXECUTING:
        raise ValueError("only a claim makes a job executing")
    if (change.lease is None) == (change.id is None):
        raise ValueError("a change is fenced by a lease or by an id with the states expected")
    edits = tuple(name for name in EDITS if getattr(change, name) is not None) if _edited(change) else ()
    return Shape(
        change.to,
        change.lease is not None,
        change.expect,
        change.attempt_delta,
        change.error is not None,
        change.snoozed,
        change.scheduled_at is not None,
        edits,
        change.spare_attempt,
    )


def _edited(change: Change) -> bool:
    return not (
        change.queue is None
        and change.priority is None
        and change.max_attempts is None
        and change.tags is None
    )


def in_input_order(changes: Sequence[Change], landed: Sequence[Sequence[Change]]) -> list[Change]:
    """The landed changes as they stood in the input."""
    if len(landed) == 1:
        return list(landed[0])
    there = {id(change) for group in landed for change in group}
    return [change for change in changes if id(change) in there]


def error_json(entry: ErrorEntry) -> str:
    """The entry as it stands in `errors`."""
    return json.dumps({"attempt": entry.attempt, "at": to_text(entry.at), "error": entry.error})


def claimed_at(change: Change) -> datetime:
    """The moment that names the lease of a leased change."""
    assert change.lease is not None
    return change.lease.at
