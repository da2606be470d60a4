"""Making a job, and changing one that has not started."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from jobkit.admin.errors import AdminError, Invalid, NotPermitted
from jobkit.admin.results import InsertPreview, InsertRequest, JobEdit
from jobkit.errors import ArgsError
from jobkit_dashboard.context import Context
from jobkit_dashboard.replies import Page, Redirect, Reply
from jobkit_dashboard.text import json_source
from jobkit_dashboard.times import parse_local, parse_span
from jobkit_dashboard.views.job import job_id_of
from jobkit_dashboard.words import say

__all__ = ["create", "edit", "edit_form", "new_form"]

FIELDS: Final = ("worker", "args", "queue", "priority", "max_attempts", "when", "tags", "unique")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a JSON text is wrong."""

    line: int
    column: int
    text: str


def _blank(ctx: Context) -> dict[str, str]:
    values = dict.fromkeys(FIELDS, "")
    values["args"] = "{}"
    values["worker"] = ctx.query.text("worker", 128)
    clone = ctx.query.get("clone", "")
    if clone.isdecimal() and len(clone) <= 19:
        job = ctx.reads.job(int(clone))
        values |= {
            "worker": job.job.worker,
            "args": json_source(job.args),
            "queue": job.job.queue,
            "priority": str(job.job.priority),
            "max_attempts": str(job.job.max_attempts),
            "tags": ", ".join(job.job.tags),
        }
    return values


def new_form(ctx: Context) -> Page:
    """`R/jobs/new`."""
    return _form(ctx, _blank(ctx))


def _form(
    ctx: Context,
    values: dict[str, str],
    *,
    problem: str = "",
    place: Place | None = None,
    preview: InsertPreview | None = None,
) -> Page:
    clone = ctx.query.get("clone") or ctx.form.get("clone", "")
    return Page(
        "new.html",
        say("New job"),
        {
            "values": values,
            "workers": ctx.reads.workers(),
            "queues": [queue.name for queue in ctx.reads.queues()],
            "problem": problem,
            "place": place,
            "preview": preview,
            "clone": clone,
            "hidden": "[redacted]" in values["args"] or "[redaction failed]" in values["args"],
        },
        status=422 if problem else 200,
        nav="jobs",
    )


def create(ctx: Context) -> Reply:
    """`POST R/jobs/new`: with `dry` only shows the row that would be written."""
    values = {name: ctx.form.get(name, "").strip() for name in FIELDS}
    place = _misplaced(values["args"])
    if place is not None:
        return _form(ctx, values, problem=say("the args are no JSON object"), place=place)
    if "[redacted]" in values["args"] or "[redaction failed]" in values["args"]:
        return _form(ctx, values, problem=say("the args hold redacted places: type the real values there"))
    try:
        request = _request(ctx, values)
        if ctx.form.get("step") == "dry":
            return _form(ctx, values, preview=ctx.actions.preview_insert(request))
        made = ctx.actions.insert(request)
    except NotPermitted:
        raise
    except (AdminError, ArgsError) as error:
        if not isinstance(error, Invalid | ArgsError):
            raise
        return _form(ctx, values, problem=str(error))
    return Redirect(ctx.url(f"/jobs/{made.id}", did="duplicate" if made.duplicate else "inserted"))


def _misplaced(text: str) -> Place | None:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        return Place(error.lineno, error.colno, error.msg)
    except RecursionError:
        return Place(1, 1, "nested too deep")
    return None if isinstance(found, dict) else Place(1, 1, "expected an object in braces")


def _request(ctx: Context, values: dict[str, str]) -> InsertRequest:
    delay = parse_span(values["when"])
    at = None if delay is not None else parse_local(values["when"], ctx.prefs.tz)
    if values["when"] and delay is None and at is None:
        raise Invalid(f"{values['when'][:60]!r} is neither a delay (10m, 2h) nor a time (2026-12-01 09:00)")
    return InsertRequest(
        worker=values["worker"],
        args=values["args"],
        queue=values["queue"] or None,
        priority=_whole("priority", values["priority"]),
        max_attempts=_whole("max attempts", values["max_attempts"]),
        schedule_in=delay,
        scheduled_at=at,
        tags=_tags(values["tags"]),
        unique=False if values["unique"] == "no" else None,
    )


def _whole(name: str, text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise Invalid(f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)


def _tags(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))


def edit_form(ctx: Context) -> Page:
    """`R/jobs/{id}/edit`."""
    job = ctx.reads.job(job_id_of(ctx)).job
    local = job.scheduled_at.astimezone(ctx.prefs.tz)
    values = {
        "queue": job.queue,
        "priority": str(job.priority),
        "max_attempts": str(job.max_attempts),
        "scheduled_at": local.isoformat(sep=" ", timespec="microseconds"),
        "tags": ", ".join(job.tags),
    }
    return _edit_page(ctx, job.id, values, dict(values))


def _edit_page(
    ctx: Context,
    job_id: int,
    values: dict[str, str],
    shown: dict[str, str],
    *,
    problem: str = "",
    changes: dict[str, tuple[object, object]] | None = None,
) -> Page:
    data = {"job_id": job_id, "values": values, "shown": shown, "problem": problem, "changes": changes}
    return Page(
        "edit.html", say("Edit job {id}", id=job_id), data, status=422 if problem else 200, nav="jobs"
    )


_EDITED: Final = ("queue", "priority", "max_attempts", "scheduled_at", "tags")


def edit(ctx: Context) -> Reply:
    """`POST R/jobs/{id}/edit`: first shows the difference, then saves it against what was shown."""
    job_id = job_id_of(ctx)
    values = {name: ctx.form.get(name, "").strip() for name in _EDITED}
    shown = {name: ctx.form.get(f"shown_{name}", "") for name in _EDITED}
    try:
        wanted = _edit(ctx, {name: values[name] for name in _EDITED if values[name] != shown[name]})
        before = _edit(ctx, shown)
        if ctx.form.get("step") != "save":
            changes = ctx.actions.preview_edit(job_id, wanted)
            return _edit_page(ctx, job_id, values, shown, changes=changes)
        result = ctx.actions.edit([job_id], wanted, shown=before, reason=ctx.form.text("reason", 500))
    except Invalid as error:
        return _edit_page(ctx, job_id, values, shown, problem=str(error))
    if not result.ok:
        return _edit_page(ctx, job_id, values, shown, problem=result.results[0].text)
    return Redirect(ctx.url(f"/jobs/{job_id}", did="edited"))


def _edit(ctx: Context, values: dict[str, str]) -> JobEdit:
    at = parse_local(values["scheduled_at"], ctx.prefs.tz) if values.get("scheduled_at") else None
    if values.get("scheduled_at") and at is None:
        raise Invalid(f"{values['scheduled_at'][:60]!r} is no time such as 2026-12-01 09:00")
    return JobEdit(
        queue=values.get("queue") or None,
        priority=_whole("priority", values.get("priority", "")),
        max_attempts=_whole("max attempts", values.get("max_attempts", "")),
        scheduled_at=at,
        tags=_tags(values["tags"]) if "tags" in values else None,
    )
