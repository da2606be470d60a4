"""Actions on jobs: what one chunk of jobs gets done to it, in one transaction.

Invariant: the rows are locked, judged, and changed under the very states that they were judged by; each job
gets one result, and doing it again changes nothing more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jobkit._names import check_name, check_tags, clamped
from jobkit.admin._ast import Query
from jobkit.admin._desk import Desk, Draft
from jobkit.admin._facts import Facts
from jobkit.admin._fields import MAX_ID
from jobkit.admin._rules import Rule, refusal, resource_of
from jobkit.admin.errors import Invalid, NotFound
from jobkit.admin.results import ActionResult, JobEdit, JobResult
from jobkit.errors import ArgsError
from jobkit.hookspecs import Resource
from jobkit.jobs import FINAL, MAX_ATTEMPTS, MAX_PRIORITY, JobState
from jobkit.outcomes import MAX_DELAY
from jobkit.storage.base import Change
from jobkit.storage.operator import delete_jobs, lock_jobs, take_keys

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["MAX_IDS", "Chunk", "JobActions", "checked_edit", "edit_text"]

MAX_IDS: Final = 500


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done to each job. `due(place)`: when the job at this place of the whole selection
    starts.
    """

    rule: Rule
    edit: JobEdit | None = None
    shown: JobEdit | None = None
    due: Callable[[int], datetime] | None = None


@dataclass(slots=True)
class Chunk:
    """What came of some jobs: a result for each, and what the audit and the waker want to know."""

    results: list[JobResult] = field(default_factory=list)
    facts: dict[int, Facts] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    before: dict[str, object] = field(default_factory=dict)
    after: dict[str, object] = field(default_factory=dict)


class JobActions:
    """See `Actions`, whose methods these are."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def act(self, order: Order, ids: Sequence[int], reason: str) -> ActionResult:
        """On these ids, in one transaction. Raises NotPermitted where it is permitted for none."""
        wanted = list(dict.fromkeys(ids))
        if not 1 <= len(wanted) <= MAX_IDS:
            raise Invalid(f"an action takes 1 to {MAX_IDS} ids, not {len(wanted)}; use a bulk operation")
        draft = Draft(order.rule.permission, "job", wanted, reason)
        self._require_any(order.rule, wanted, draft)
        made: list[Chunk] = []

        def work(conn: Connection) -> None:
            chunk = self.chunk(conn, order, wanted, Query())
            _describe(draft, order, chunk)
            made[:] = [chunk]

        self._desk.write(draft, work)
        self._desk.wake(made[0].queues)
        return ActionResult(order.rule.action, tuple(made[0].results))

    def preview_edit(self, job_id: int, edit: JobEdit) -> dict[str, tuple[object, object]]:
        """What the edit would change, redacted. Raises NotFound."""
        desk = self._desk
        with desk.context.reading() as conn:
            found = desk.context.searcher(conn, Query()).by_ids([job_id])
        if not found:
            raise NotFound(f"job {job_id} is not here (any more)")
        desk.require("jobs.edit", resource_of(found[0]), Draft("jobs.edit", "job", [job_id]))

        def shown(value: object) -> object:
            return desk.app.redactor.value(value, path="tags", worker=found[0].worker, kind="tags")

        changed = _changed(found[0], _edit_change(found[0], edit, found[0].now))
        return {name: (shown(old), shown(new)) for name, (old, new) in changed.items()}

    def _require_any(self, rule: Rule, ids: Sequence[int], draft: Draft) -> None:
        """Refuse at once where no job of these may be acted on."""
        if not self._desk.app.registry.has("jobkit_authorize"):
            self._desk.require(rule.permission, Resource("job"), draft)
            return
        with self._desk.context.reading() as conn:
            jobs = self._desk.context.searcher(conn, Query()).by_ids(ids)
        resources = [resource_of(job) for job in jobs] or [Resource("job", str(ids[0]))]
        if not any(self._desk.may(rule.permission, resource) for resource in resources):
            self._desk.deny(rule.permission, draft)

    # -- one chunk

    def chunk(
        self, conn: Connection, order: Order, ids: Sequence[int], query: Query, place: int = 0
    ) -> Chunk:
        """Acts on those of the ids that (still) match, within the caller's transaction."""
        app = self._desk.app
        lock_jobs(conn, app.tables, [job_id for job_id in ids if 0 <= job_id <= MAX_ID])
        searcher = self._desk.context.searcher(conn, query)
        facts = {job.id: job for job in searcher.by_ids(ids, brief=True)}
        made = Chunk(facts=facts)
        gone = "no longer matches" if query.terms else "is not here (any more)"
        judged = {job_id: self._judged(order, job_id, facts.get(job_id), gone) for job_id in ids}
        fit = [job_id for job_id, refused in judged.items() if refused is None]
        done = self._done(conn, order, [facts[job_id] for job_id in fit], made, place)
        made.results = [judged[job_id] or done[job_id] for job_id in ids]
        return made

    def _judged(self, order: Order, job_id: int, job: Facts | None, gone: str) -> JobResult | None:
        """Why nothing can be done to this job; None where something can."""
        rule = order.rule
        if job is None:
            return JobResult(job_id, "missing", f"job {job_id} {gone}")
        if self._desk.app.registry.has("jobkit_authorize") and not self._desk.may(
            rule.permission, resource_of(job)
        ):
            return JobResult(job_id, "denied", f"job {job_id}: not permitted", job.state)
        if job.state not in rule.states:
            text = f"job {job_id} {refusal(rule.action, job.state)}; nothing done"
            return JobResult(job_id, "skipped", text, job.state, job.state)
        return None if order.edit is None else _unfit(job, order.edit, order.shown)

    def _done(
        self, conn: Connection, order: Order, jobs: Sequence[Facts], made: Chunk, place: int
    ) -> dict[int, JobResult]:
        if order.rule.action == "delete":
            return self._deleted(conn, order.rule, jobs)
        refused = self._without_key(conn, jobs) if order.rule.action == "retry" else {}
        able = [job for job in jobs if job.id not in refused]
        changes = [self._change(order, job, place + at) for at, job in enumerate(able)]
        landed = {c.job_id: c for c in self._desk.app.storage.transition(conn, changes)}
        results = {}
        for job in able:
            results[job.id] = self._result(order, job, landed.get(job.id), made)
        return refused | results

    def _without_key(self, conn: Connection, jobs: Sequence[Facts]) -> dict[int, JobResult]:
        """Takes unique keys back; the results of those jobs whose key another one holds."""
        wanted = {
            job.id: key
            for job in jobs
            if job.unique_key is None and job.state in FINAL and (key := job.kept_unique_key) is not None
        }
        held = take_keys(conn, self._desk.app.tables, wanted) if wanted else {}
        states = {job.id: job.state for job in jobs}
        return {
            job_id: JobResult(
                job_id,
                "conflict",
                f"conflict: job {holder} holds the key; job {job_id} stays {states[job_id].value}",
                states[job_id],
                states[job_id],
            )
            for job_id, holder in held.items()
        }

    def _deleted(self, conn: Connection, rule: Rule, jobs: Sequence[Facts]) -> dict[int, JobResult]:
        gone = delete_jobs(conn, self._desk.app.tables, [job.id for job in jobs])
        return {
            job.id: JobResult(job.id, "done", f"job {job.id} {rule.done}", job.state)
            if job.id in gone
            else _raced(job)
            for job in jobs
        }

    def _change(self, order: Order, job: Facts, place: int) -> Change:
        now = self._desk.context.now
        expect = frozenset({job.state})
        if order.edit is not None:
            return _edit_change(job, order.edit, now)
        if order.rule.action == "cancel":
            return Change(JobState.CANCELLED, now, id=job.id, expect=expect)
        due = now if order.due is None else max(order.due(place), now)
        to = JobState.SCHEDULED if due > now else JobState.AVAILABLE
        spare = order.rule.action == "retry"
        return Change(to, now, id=job.id, expect=expect, scheduled_at=due, spare_attempt=spare)

    def _result(self, order: Order, job: Facts, change: Change | None, made: Chunk) -> JobResult:
        if change is None:
            return _raced(job)
        after = job.state if change.to is None else change.to
        if after is JobState.AVAILABLE:
            made.queues.add(change.queue or job.queue)
        text = f"job {job.id} {order.rule.done}"
        if order.edit is not None:
            changed = _changed(job, change)
            made.before |= {name: old for name, (old, _) in changed.items()}
            made.after |= {name: new for name, (_, new) in changed.items()}
            text = f"job {job.id}: " + edit_text(changed)
        elif after is JobState.SCHEDULED and change.scheduled_at is not None:
            text = f"job {job.id} is scheduled for {change.scheduled_at.isoformat(timespec='seconds')}"
        return JobResult(job.id, "done", text, job.state, after)


def _raced(job: Facts) -> JobResult:
    return JobResult(job.id, "conflict", f"job {job.id} changed meanwhile; nothing done", job.state)


def _describe(draft: Draft, order: Order, chunk: Chunk) -> None:
    """Fills the audit row: what the jobs were, and what came of them."""
    done = [result for result in chunk.results if result.result == "done"]
    if not done:
        draft.result = "conflict"
    counted = Counter(result.result for result in chunk.results)
    if order.edit is not None:
        draft.before, draft.after = chunk.before, {**chunk.after, "results": dict(counted)}
        return
    kept = [
        {"id": job.id, "worker": job.worker, "queue": job.queue, "state": job.state.value}
        for result in done[:100]
        if (job := chunk.facts.get(result.id)) is not None
    ]
    draft.before = {"jobs": kept}
    draft.after = {"results": dict(counted)}


# -- edits


def checked_edit(edit: JobEdit, now: datetime) -> JobEdit:
    """The edit with its values in range. Raises Invalid."""
    try:
        return JobEdit(
            queue=None if edit.queue is None else check_name(edit.queue, "queue"),
            priority=None if edit.priority is None else clamped(edit.priority, 0, MAX_PRIORITY, "priority"),
            max_attempts=None
            if edit.max_attempts is None
            else clamped(edit.max_attempts, 1, MAX_ATTEMPTS, "max_attempts"),
            scheduled_at=_checked_time(edit.scheduled_at, now),
            tags=None if edit.tags is None else tuple(check_tags(edit.tags)),
            add_tags=tuple(check_tags(edit.add_tags)),
            remove_tags=tuple(edit.remove_tags),
        )
    except ArgsError as error:
        raise Invalid(str(error)) from error


def _checked_time(at: datetime | None, now: datetime) -> datetime | None:
    if at is None:
        return None
    if at.utcoffset() is None:
        raise Invalid("the time needs a zone")
    if at > now + MAX_DELAY:
        raise Invalid("the time lies more than 100 years ahead")
    return at


def _tags_after(job: Facts, edit: JobEdit) -> tuple[str, ...] | None:
    """The tags as stored (not as shown: an edit must not write what redaction made of them)."""
    if edit.tags is None and not edit.add_tags and not edit.remove_tags:
        return None
    tags = job.stored_tags if edit.tags is None else edit.tags
    kept = [tag for tag in tags if tag not in edit.remove_tags]
    return tuple(dict.fromkeys([*kept, *edit.add_tags]))


def _unfit(job: Facts, edit: JobEdit, shown: JobEdit | None) -> JobResult | None:
    if shown is not None and (name := _differing(job, shown)):
        text = f"job {job.id}: its {name} was changed by someone else meanwhile; nothing done"
        return JobResult(job.id, "conflict", text, job.state, job.state)
    if edit.max_attempts is not None and edit.max_attempts <= job.attempt:
        text = f"job {job.id} has used {job.attempt} attempts; the maximum must lie above that"
        return JobResult(job.id, "failed", text, job.state, job.state)
    tags = _tags_after(job, edit)
    if tags is not None:
        try:
            check_tags(tags)
        except ArgsError as error:
            return JobResult(job.id, "failed", f"job {job.id}: {error}", job.state, job.state)
    if not _changed(job, _edit_change(job, edit, job.now)):
        text = f"job {job.id} is like that already; nothing done"
        return JobResult(job.id, "skipped", text, job.state, job.state)
    return None


def _differing(job: Facts, shown: JobEdit) -> str | None:
    """The first field whose value is no longer what the operator saw."""
    seen: dict[str, tuple[object, object]] = {
        "queue": (shown.queue, job.queue),
        "priority": (shown.priority, job.priority),
        "max attempts": (shown.max_attempts, job.max_attempts),
        "due time": (shown.scheduled_at, job.scheduled_at),
        "tags": (shown.tags, job.tags),
    }
    return next((name for name, (saw, is_now) in seen.items() if saw is not None and saw != is_now), None)


def _edit_change(job: Facts, edit: JobEdit, now: datetime) -> Change:
    """available means due, so a time in the future makes a job scheduled, and one that has come makes it
    available.
    """
    to: JobState | None = None
    due = edit.scheduled_at
    if due is not None and due <= now:
        due = now
        to = JobState.AVAILABLE if job.state is not JobState.AVAILABLE else None
    elif due is not None and job.state is JobState.AVAILABLE:
        to = JobState.SCHEDULED
    tags = _tags_after(job, edit)
    return Change(
        to,
        now,
        id=job.id,
        expect=frozenset({job.state}),
        scheduled_at=due,
        queue=edit.queue,
        priority=edit.priority,
        max_attempts=edit.max_attempts,
        tags=None if tags is None else msgspec.json.encode(tags).decode(),
    )


def _changed(job: Facts, change: Change) -> dict[str, tuple[object, object]]:
    """field -> (before, after), of those that differ."""
    new_tags = None if change.tags is None else tuple(json.loads(change.tags))
    fields: Mapping[str, tuple[Any, Any]] = {
        "queue": (job.queue, change.queue),
        "priority": (job.priority, change.priority),
        "max_attempts": (job.max_attempts, change.max_attempts),
        "scheduled_at": (job.scheduled_at, change.scheduled_at),
        "tags": (job.stored_tags, new_tags),
    }
    found: dict[str, tuple[object, object]] = {}
    for name, (old, new) in fields.items():
        if new is not None and new != old:
            found[name] = (_plain(old), _plain(new))
    if change.to is not None:
        found["state"] = (job.state.value, change.to.value)
    return found


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def edit_text(changed: Mapping[str, tuple[object, object]]) -> str:
    """`priority 0 -> 3, queue a -> b`; tags are not quoted here, since they may hold secrets."""
    return ", ".join(
        "tags changed" if name == "tags" else f"{name} {old} -> {new}" for name, (old, new) in changed.items()
    )
