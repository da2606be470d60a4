"""`R/api/v1/`: the same reads and actions as JSON, for bearer tokens. Off unless switched on.

Invariant: nothing is to be had here that a page would not give to the same actor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from jobkit.admin.errors import Conflict, Invalid, NotFound
from jobkit.admin.results import ActionResult, InsertRequest, JobAction
from jobkit_dashboard.context import Context
from jobkit_dashboard.guard.limits import parse_json
from jobkit_dashboard.replies import Json, Reply
from jobkit_dashboard.views.job import job_id_of

__all__ = ["act", "insert", "job", "jobs", "queue", "reads"]

ACTIONS: Final = ("retry", "run_now", "cancel", "delete")


def _body(ctx: Context) -> Mapping[str, object]:
    found = parse_json(ctx.request.body) if ctx.request.body else {}
    if not isinstance(found, dict):
        raise Invalid("expected a JSON object")
    return cast("Mapping[str, object]", found)


def _document(name: str, data: Mapping[str, object]) -> Json:
    return Json({"schema": f"jobkit.{name}/1", **data})


def jobs(ctx: Context) -> Reply:
    """`GET jobs?q=&cursor=&limit=`."""
    limit = ctx.query.get("limit", "50")
    page = ctx.reads.jobs(
        ctx.query.get("q", ""),
        sort=ctx.query.text("sort") or None,
        cursor=ctx.query.get("cursor") or None,
        limit=int(limit) if limit in map(str, range(1, 201)) else 50,
    )
    if page.problems:
        from jobkit.admin.errors import QueryRefused

        raise QueryRefused(page.problems)
    return _document("jobs.list", {"items": page.jobs, "next": page.next, "query": page.query})


def job(ctx: Context) -> Reply:
    """`GET jobs/{id}`."""
    return _document("jobs.show", {"job": ctx.reads.job(job_id_of(ctx))})


def act(ctx: Context) -> Reply:
    """`POST jobs/{id}/{action}`: 409 where the job's state does not allow it."""
    action = ctx.values["action"]
    if action not in ACTIONS:
        raise NotFound(f"there is no action {action!r}; there are {', '.join(ACTIONS)}")
    reason = _body(ctx).get("reason", "")
    result: ActionResult = getattr(ctx.actions, cast("JobAction", action))(
        [job_id_of(ctx)], reason=str(reason)[:500]
    )
    first = result.results[0]
    if first.result == "missing":
        raise NotFound(first.text)
    if first.result != "done":
        raise Conflict(first.text)
    return _document("jobs.action", {"result": first})


def insert(ctx: Context) -> Reply:
    """`POST jobs`: `{"worker": ..., "args": {...}, "queue": ...}`."""
    body = dict(_body(ctx))
    import json

    args, worker = body.pop("args", {}), body.pop("worker", "")
    known = {"queue", "priority", "max_attempts", "tags"}
    unknown = set(body) - known
    if unknown:
        raise Invalid(
            f"there is no field {sorted(unknown)[0]!r}; there are args, worker, {', '.join(sorted(known))}"
        )
    tags = body.pop("tags", [])
    if not isinstance(tags, list) or not isinstance(worker, str):
        raise Invalid("tags must be a list and worker a text")
    request = InsertRequest(worker=worker, args=json.dumps(args), tags=tuple(map(str, tags)), **body)  # type: ignore[arg-type]
    made = ctx.actions.insert(request)
    return Json(
        {"schema": "jobkit.jobs.insert/1", "id": made.id, "duplicate": made.duplicate},
        200 if made.duplicate else 201,
    )


def reads(ctx: Context) -> Reply:
    """`GET queues|nodes|cron`."""
    kind = ctx.values["kind"]
    found = {"queues": ctx.reads.queues, "nodes": ctx.reads.nodes, "cron": ctx.reads.cron}.get(kind)
    if found is None:
        raise NotFound("there is no such list")
    ctx.require(f"view.{kind}")
    return _document(f"{kind}.list", {"items": found()})


def queue(ctx: Context) -> Reply:
    """`POST queues/{action}` with `{"name": ...}`."""
    body = _body(ctx)
    name, reason = str(body.get("name", "")), str(body.get("reason", ""))[:500]
    if ctx.values["action"] == "pause":
        change = ctx.actions.pause_queue(name, reason=reason)
    elif ctx.values["action"] == "resume":
        change = ctx.actions.resume_queue(name, reason=reason)
    else:
        raise NotFound("queues can be paused and resumed")
    return _document("queues.change", {"change": change})
