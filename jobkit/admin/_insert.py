"""Inserting jobs by worker name, as operators do.

Invariant: nothing is written unless every job that was asked for is in order; args go through the worker's own
checks wherever this process knows it, and what a worker published (queue, attempts, secret paths) counts where it
does not.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select

from jobkit.admin._desk import Desk, Draft
from jobkit.admin._system_reads import LIVE_FOR
from jobkit.admin.errors import Invalid, InvalidRequests
from jobkit.admin.results import InsertPreview, InsertRequest, InsertResult
from jobkit.errors import ArgsError
from jobkit.hookspecs import Resource
from jobkit.inserting import rows_of
from jobkit.jobs import Inserted, JobOptions, JobRow, JobState, NewJob
from jobkit.registry import WorkerUnavailable
from jobkit.storage.operator import holders
from jobkit.workers import decode

if TYPE_CHECKING:
    from jobkit.workers import Worker

__all__ = ["Inserting"]


CHUNK: Final = 5_000
"""Rows of one transaction: nodes that claim meanwhile wait for a fraction of a second."""
_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class _Ready:
    """A request that is in order: the row, whether anybody knows the worker, and what to warn of."""

    row: JobRow
    known: bool
    warnings: tuple[str, ...]

    @property
    def permission(self) -> str:
        """What inserting it takes."""
        return "jobs.insert" if self.known else "jobs.insert_any"

    @property
    def resource(self) -> Resource:
        """What policies are asked about."""
        row = self.row
        return Resource("job", None, row.queue, row.worker, tuple(json.loads(row.tags)))


@dataclass(frozen=True, slots=True)
class _Definition:
    """What is known of a worker: its class, or else what live nodes published (None: nothing)."""

    cls: type[Worker] | None
    published: Mapping[str, Any] | None
    warnings: tuple[str, ...]


class Inserting:
    """See `Actions`, whose methods these are."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._app = desk.app

    def insert(self, request: InsertRequest, reason: str) -> InsertResult:
        """Writes the row."""
        ready = self._checked([request])[0]
        draft = Draft(ready.permission, "job", (), reason)
        self._desk.require(ready.permission, ready.resource, draft)
        return self._write([ready], draft)[0]

    def insert_many(
        self,
        requests: Sequence[InsertRequest],
        reason: str,
        done: Callable[[Sequence[InsertResult]], None] | None,
    ) -> tuple[InsertResult, ...]:
        """Writes the rows, all of which are in order, chunk by chunk."""
        checked = self._checked(requests)
        permissions = {(ready.permission, ready.resource) for ready in checked}
        for permission, resource in sorted(permissions, key=str):
            self._desk.require(permission, resource, Draft(permission, "job", (), reason))
        results: list[InsertResult] = []
        for start in range(0, len(checked), CHUNK):
            chunk = checked[start : start + CHUNK]
            permission = "jobs.insert" if all(ready.known for ready in chunk) else "jobs.insert_any"
            made = self._write(chunk, Draft(permission, "job", (), reason))
            results += made
            if done is not None:
                done(made)
        return tuple(results)

    def _write(self, chunk: Sequence[_Ready], draft: Draft) -> list[InsertResult]:
        """One transaction with one audit row."""

        def work(conn: Any) -> list[InsertResult]:
            made = self._app.storage.insert(conn, [ready.row for ready in chunk])
            draft.ids = tuple(str(inserted.id) for inserted in made)
            draft.after = _told([ready.row for ready in chunk], made)
            return [
                InsertResult(inserted.id, inserted.duplicate, ready.warnings)
                for inserted, ready in zip(made, chunk, strict=True)
            ]

        results = self._desk.write(draft, work)
        self._desk.wake(
            {
                ready.row.queue
                for ready, result in zip(chunk, results, strict=True)
                if ready.row.state is JobState.AVAILABLE and not result.duplicate
            }
        )
        return results

    def preview(self, request: InsertRequest) -> InsertPreview:
        """What would be written."""
        return self.preview_many([request])[0]

    def preview_many(self, requests: Sequence[InsertRequest]) -> tuple[InsertPreview, ...]:
        """What would be written."""
        checked = self._checked(requests)
        permissions = {(ready.permission, ready.resource) for ready in checked}
        for permission, resource in sorted(permissions, key=str):
            self._desk.require(permission, resource, Draft(permission, "job"))
        keys = [ready.row.unique_key for ready in checked if ready.row.unique_key is not None]
        held: Mapping[str, int] = {}
        if keys:
            with self._desk.context.reading() as conn:
                held = holders(conn, self._app.tables, keys)
        return tuple(
            self._previewed(ready.row, held.get(ready.row.unique_key or ""), ready.warnings)
            for ready in checked
        )

    def _previewed(self, row: JobRow, duplicate: int | None, warnings: tuple[str, ...]) -> InsertPreview:
        redactor, meta = self._app.redactor, json.loads(row.meta)
        secret = meta.pop("secret_paths", [])
        tags = redactor.value(json.loads(row.tags), path="tags", worker=row.worker, kind="tags")
        return InsertPreview(
            worker=row.worker,
            queue=row.queue,
            state=row.state,
            args=redactor.value(json.loads(row.args), worker=row.worker, secret_paths=secret),
            meta=redactor.value(meta, path="meta", worker=row.worker, kind="meta"),
            tags=tuple(map(str, tags)) if isinstance(tags, list) else (),
            priority=row.priority,
            max_attempts=row.max_attempts,
            scheduled_at=row.scheduled_at,
            duplicate_of=duplicate,
            warnings=warnings,
        )

    # -- the way to the row

    def _checked(self, requests: Sequence[InsertRequest]) -> list[_Ready]:
        """All of them, or Invalid for one, InvalidRequests for several, which names each that is wrong."""
        definitions: dict[str, _Definition] = {}
        checked: list[_Ready] = []
        problems: dict[int, str] = {}
        for place, request in enumerate(requests):
            if request.worker not in definitions:
                definitions[request.worker] = self._definition(request.worker)
            try:
                checked.append(self._ready(request, definitions[request.worker]))
            except ArgsError as error:
                problems[place] = self._app.redactor.text(str(error), worker=request.worker, kind="error")
        if problems and len(requests) == 1:
            raise Invalid(problems[0])
        if problems:
            raise InvalidRequests(problems)
        return checked

    def _ready(self, request: InsertRequest, definition: _Definition) -> _Ready:
        """Raises ArgsError."""
        cls, published = definition.cls, definition.published
        if cls is None:
            job = self._unknown(request, published or {})
        else:
            _refuse_unknown_args(cls, request)
            job = decode(cls, request.args).job()
        row = rows_of(self._app, [job.replace(**_options(request))])[0]
        return _Ready(row, cls is not None or published is not None, definition.warnings)

    def _definition(self, name: str) -> _Definition:
        warnings: list[str] = []
        cls = self._resolved(name, warnings)
        published = None if cls is not None else self._published(name, warnings)
        return _Definition(cls, published, tuple(warnings))

    def _resolved(self, name: str, warnings: list[str]) -> type[Worker] | None:
        try:
            return self._app.registry.resolve(name)
        except WorkerUnavailable as error:
            warnings.append(self._app.redactor.text(str(error), kind="log"))
            return None

    def _published(self, name: str, warnings: list[str]) -> Mapping[str, Any] | None:
        """What live nodes say of the worker; None where they do not know it."""
        c = self._app.tables.workers.c
        with self._desk.context.reading() as conn:
            row = conn.execute(select(c.last_seen_at, c.config).where(c.name == name)).first()
        if row is None or row.last_seen_at < self._desk.context.now - LIVE_FOR:
            warnings.append(f"no live node knows a worker {name!r}; the job would wait, and be discarded")
            return None
        config = json.loads(row.config)
        if config.get("unique"):
            warnings.append("uniqueness is not applied: this process does not know the worker's code")
        warnings.append("the args are not checked: this process does not know the worker's code")
        return config if isinstance(config, dict) else {}

    @staticmethod
    def _unknown(request: InsertRequest, config: Mapping[str, Any]) -> NewJob:
        args = _json_object(request.args)
        options: dict[str, Any] = {
            name: config[name]
            for name in ("queue", "max_attempts", "priority")
            if config.get(name) is not None
        }
        secret = tuple(path for path in config.get("secret") or () if isinstance(path, str))
        return NewJob(worker=request.worker, args=args, secret=secret, **options)


def _refuse_unknown_args(cls: Any, request: InsertRequest) -> None:
    """Old rows may hold args that the worker no longer has; an operator who types one means another. Raises
    ArgsError.
    """
    try:
        found = json.loads(request.args)
    except (ValueError, RecursionError):
        return  # the worker's own decoder has the words for it
    names = [field.name for field in dataclasses.fields(cls)]
    for name in found if isinstance(found, dict) else ():
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}" if near else f"args are: {', '.join(names) or 'none'}"
            raise ArgsError(f"{request.worker} has no arg {name!r}; {hint}")


def _told(rows: Sequence[JobRow], made: Sequence[Inserted]) -> dict[str, object]:
    """What the audit keeps of inserted rows."""
    if len(rows) == 1:
        row = rows[0]
        return {
            "worker": row.worker,
            "queue": row.queue,
            "state": row.state.value,
            "duplicate": made[0].duplicate,
        }
    return {
        "workers": sorted({row.worker for row in rows})[:_TOLD],
        "queues": sorted({row.queue for row in rows})[:_TOLD],
        "inserted": sum(not inserted.duplicate for inserted in made),
        "duplicates": sum(inserted.duplicate for inserted in made),
    }


def _json_object(text: str) -> str:
    """The text as compact JSON of an object. Raises ArgsError."""
    from jobkit._encoding import checked_object

    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgsError(f"args: this is no JSON: {error}") from None
    checked = checked_object(found, "args", 256 * 1024)
    return json.dumps(checked, ensure_ascii=False, separators=(",", ":"))


def _options(request: InsertRequest) -> JobOptions:
    options: JobOptions = {}
    if request.queue is not None:
        options["queue"] = request.queue
    if request.priority is not None:
        options["priority"] = request.priority
    if request.max_attempts is not None:
        options["max_attempts"] = request.max_attempts
    if request.scheduled_at is not None:
        options["schedule_at"] = request.scheduled_at
    if request.schedule_in is not None:
        options["schedule_in"] = request.schedule_in
    if request.tags:
        options["tags"] = request.tags
    if request.meta:
        options["meta"] = request.meta
    if request.unique is False:
        options["unique"] = False
    return options
