"""One job: everything that is stored of it, its story, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jobkit.admin._context import Context as AdminContext
from jobkit.admin.actions import Actions
from jobkit.admin.errors import AdminError, NotFound
from jobkit.admin.results import Ids, JobAction
from jobkit.admin.views import JobDetail, OperationView
from jobkit.admin.why import Explanation, explain
from jobkit.jobs import FINAL
from jobkit_dashboard.context import Context
from jobkit_dashboard.guard.redirects import safe_target
from jobkit_dashboard.replies import Download, Page, Redirect, Reply
from jobkit_dashboard.svg import state_picture
from jobkit_dashboard.text import json_text
from jobkit_dashboard.tracebacks import parse_traceback
from jobkit_dashboard.tree import tree_of
from jobkit_dashboard.views.neighbours import neighbours
from jobkit_dashboard.views.related import related
from jobkit_dashboard.words import say

__all__ = ["ACTIONS", "act", "data_download", "job_page", "run_plugin_action"]

ACTIONS: Final[dict[str, str]] = {
    "retry": say("Retry"),
    "run_now": say("Run now"),
    "cancel": say("Cancel"),
    "delete": say("Delete"),
    "edit": say("Edit"),
}
SHOWN_ERRORS: Final = 5
SHOWN_BYTES: Final = 64 * 1024


def job_id_of(ctx: Context) -> int:
    """The id in the address, exactly."""
    return int(ctx.values["id"])


def job_page(ctx: Context) -> Page:
    """`R/jobs/{id}`."""
    job_id = job_id_of(ctx)
    job = ctx.reads.job(job_id)
    back = ctx.query.get("from")
    listed = back if back and safe_target(back, ctx.request.root) == back and "/jobs" in back else None
    errors = job.errors if ctx.query.text("errors") == "all" else job.errors[:SHOWN_ERRORS]
    return Page(
        "job.html",
        say("{worker} · job {id}", worker=job.job.worker, id=job_id),
        {
            "job": job,
            "summary": job.job,
            "buttons": _buttons(ctx, job),
            "plugin_actions": ctx.dash.extensions.actions(ctx, job),
            "panels": [] if ctx.live else ctx.dash.extensions.panels(ctx, job),
            "errors": [(error, parse_traceback(error.traceback)) for error in errors],
            "more_errors": len(job.errors) - len(errors),
            "args": tree_of(job.args, "args"),
            "meta": tree_of(job.meta, "meta"),
            "raw_args": json_text(job.args)[:SHOWN_BYTES],
            "large": job.args_size > SHOWN_BYTES,
            "picture": state_picture(job),
            "why": None if job.job.state in FINAL else _why(ctx, job_id),
            "operation": _operation(ctx),
            "listed": listed,
            "around": neighbours(ctx, listed, job_id) if listed and not ctx.live else (None, None),
            "related": [] if ctx.live else related(ctx, job),
            "plugin_result": ctx.query.text("plugin", 200),
        },
        regions={"head": "job/head.html", "story": "job/story.html", "errors": "job/errors.html"},
        token=_token(job),
        nav="jobs",
    )


def _token(job: JobDetail) -> object:
    s = job.job
    return (
        s.state, s.attempt, s.max_attempts, s.queue, s.priority, s.tags, s.node, s.scheduled_at, s.attempted_at,
        s.finished_at, s.markers, len(job.errors), job.errors[:1], len(job.activity), job.meta,
    )  # fmt: skip


def _buttons(ctx: Context, job: JobDetail) -> list[tuple[str, str, str]]:
    """(action, label, why not) of what this actor may do; the reason is empty where the state allows it."""
    buttons = []
    for action, label in ACTIONS.items():
        state = job.actions.get(action)
        if state is not None and state.permitted and ctx.may(f"jobs.{action}"):
            buttons.append((action, label, "" if state.allowed else state.reason))
    return buttons


def _why(ctx: Context, job_id: int) -> Explanation | None:
    try:
        return explain(AdminContext(ctx.app, ctx.actor, ctx.reads.timeout), job_id)
    except AdminError:
        return None


def _operation(ctx: Context) -> OperationView | None:
    """What the operation named in the address did, as the database tells."""
    given = ctx.query.get("op", "")
    if not given.isdecimal() or len(given) > 19:
        return None
    try:
        return ctx.reads.operation(int(given))
    except AdminError:
        return None


def act(ctx: Context) -> Reply:
    """`POST R/jobs/{id}/{action}`: do it at once, and show the result on the job's page."""
    job_id, action = job_id_of(ctx), ctx.values["action"]
    if action not in ("retry", "run_now"):
        raise NotFound(f"there is no such action: {action}")
    operation = start_and_run(ctx.actions, action, (job_id,), reason=ctx.form.text("reason", 500))  # type: ignore[arg-type]
    back = ctx.form.get("from")
    return Redirect(ctx.url(f"/jobs/{job_id}", op=operation.id, **{"from": back}))


def start_and_run(
    actions: Actions, action: JobAction, ids: Sequence[int], *, key: str | None = None, reason: str = ""
) -> OperationView:
    """An operation on a few jobs, done before it returns."""
    operation = actions.start(action, Ids(tuple(ids)), key=key, reason=reason)
    return actions.run_operation(operation.id)


def data_download(ctx: Context) -> Reply:
    """`R/jobs/{id}/data`: args and meta as a file, redacted."""
    job = ctx.reads.job(job_id_of(ctx))
    text = json_text({"id": job.job.id, "worker": job.job.worker, "args": job.args, "meta": job.meta})
    return Download(f"job-{job.job.id}.json", "application/json", lambda: [text, "\n"])


def run_plugin_action(ctx: Context) -> Reply:
    """`POST R/jobs/{id}/do/{plugin}/{name}`."""
    from jobkit_dashboard.audit import note

    job = ctx.reads.job(job_id_of(ctx))
    plugin, name = ctx.values["plugin"], ctx.values["name"]
    for brought in ctx.dash.extensions.actions(ctx, job):
        if (brought.plugin, brought.item.id) == (plugin, name):
            break
    else:
        raise NotFound(f"the plugin {plugin} has no action {name} for job {job.job.id}")
    if brought.item.confirm and ctx.form.get("sure") != "1":
        return _sure(ctx, job, plugin, name, brought.item.confirm, brought.item.label)
    given = ctx.dash.extensions.context(plugin, ctx)
    action = brought.item
    said = ctx.dash.extensions.call(plugin, f"action {name}", lambda: str(action.run(given, job)), 2.0)
    note(
        ctx.app,
        ctx.actor,
        f"{plugin}.{name}",
        "failed" if said is None else "ok",
        kind="job",
        ids=(str(job.job.id),),
        reason=said or "",
        request_id=ctx.request.request_id,
    )
    return Redirect(
        ctx.url(f"/jobs/{job.job.id}", plugin=f"{action.label}: {'done' if said is not None else 'failed'}")
    )


def _sure(ctx: Context, job: JobDetail, plugin: str, name: str, question: str, label: str) -> Page:
    return Page(
        "sure.html",
        label,
        {
            "question": question,
            "label": label,
            "action": ctx.url(f"/jobs/{job.job.id}/do/{plugin}/{name}"),
            "fields": [("sure", "1")],
            "back": ctx.url(f"/jobs/{job.job.id}"),
            "danger": True,
            "reason": False,
            "details": (),
        },
        nav="jobs",
    )
