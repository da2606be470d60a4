"""Inserting single jobs by worker name, as operators do.

Invariant: args go through the worker's own checks wherever this process knows it, and what a worker
published (queue, attempts, secret paths) counts where it does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from jobkit.admin._desk import Desk, Draft
from jobkit.admin._system_reads import LIVE_FOR
from jobkit.admin.errors import Invalid
from jobkit.admin.results import InsertPreview, InsertRequest, InsertResult
from jobkit.errors import ArgsError
from jobkit.hookspecs import Resource
from jobkit.inserting import rows_of
from jobkit.jobs import JobOptions, JobRow, JobState, NewJob
from jobkit.registry import WorkerUnavailable
from jobkit.storage.operator import holders
from jobkit.workers import decode

if TYPE_CHECKING:
    from jobkit.workers import Worker

__all__ = ["Inserting"]


class Inserting:
    """See `Actions`, whose methods these are."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._app = desk.app

    def insert(self, request: InsertRequest, reason: str) -> InsertResult:
        """Writes the row."""
        row, known, warnings = self._row(request)
        permission = "jobs.insert" if known else "jobs.insert_any"
        draft = Draft(permission, "job", (), reason)
        self._desk.require(permission, self._resource(row), draft)

        def work(conn: Any) -> InsertResult:
            inserted = self._app.storage.insert(conn, [row])[0]
            draft.ids = (str(inserted.id),)
            draft.after = {
                "worker": row.worker,
                "queue": row.queue,
                "state": row.state.value,
                "duplicate": inserted.duplicate,
            }
            return InsertResult(inserted.id, inserted.duplicate, warnings)

        result = self._desk.write(draft, work)
        if row.state is JobState.AVAILABLE and not result.duplicate:
            self._desk.wake([row.queue])
        return result

    def preview(self, request: InsertRequest) -> InsertPreview:
        """What would be written."""
        row, known, warnings = self._row(request)
        permission = "jobs.insert" if known else "jobs.insert_any"
        self._desk.require(permission, self._resource(row), Draft(permission, "job"))
        duplicate = None
        if row.unique_key is not None:
            with self._desk.context.reading() as conn:
                duplicate = holders(conn, self._app.tables, [row.unique_key]).get(row.unique_key)
        return self._previewed(row, duplicate, warnings)

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

    @staticmethod
    def _resource(row: JobRow) -> Resource:
        return Resource("job", None, row.queue, row.worker, tuple(json.loads(row.tags)))

    # -- the way to the row

    def _row(self, request: InsertRequest) -> tuple[JobRow, bool, tuple[str, ...]]:
        """The row, whether anybody knows the worker, and what to warn of. Raises Invalid."""
        warnings: list[str] = []
        try:
            cls = self._resolved(request.worker, warnings)
            published = {} if cls is not None else self._published(request.worker, warnings)
            job = self._unknown(request, published or {}) if cls is None else decode(cls, request.args).job()
            row = rows_of(self._app, [job.replace(**_options(request))])[0]
        except ArgsError as error:
            raise Invalid(self._app.redactor.text(str(error), worker=request.worker, kind="error")) from error
        return row, cls is not None or published is not None, tuple(warnings)

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
