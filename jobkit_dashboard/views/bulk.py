"""Actions on many jobs: a page that says what would happen, then an operation that does it.

Invariant: nothing changes before the confirmation is sent, and sending it twice starts one operation; jobs inserted
after the list was drawn are not touched.
"""

from __future__ import annotations

import secrets
import threading
from datetime import timedelta
from typing import Final, cast

from jobkit.admin.actions import Actions
from jobkit.admin.errors import AdminError, Invalid, NotFound
from jobkit.admin.results import Ids, JobAction, Matching, Preview, Selection
from jobkit_dashboard.context import Context
from jobkit_dashboard.replies import Page, Redirect, Reply
from jobkit_dashboard.words import say

__all__ = ["cancel_operation", "confirm", "operation_page", "operations_page", "start"]

LABELS: Final[dict[str, str]] = {
    "retry": say("Retry"),
    "run_now": say("Run now"),
    "cancel": say("Cancel"),
    "delete": say("Delete"),
}
MOST_IDS: Final = 500
_AT_ONCE: Final = 50
SPREADS: Final = (0, 1, 5, 10, 30, 60)


def _asked(ctx: Context) -> tuple[JobAction, Selection]:
    """The action and the jobs that a form names. Raises Invalid, NotFound."""
    fields = ctx.form if ctx.request.method == "POST" else ctx.query
    only, _, job_id = fields.get("only", "").partition(":")
    action = only or fields.text("action")
    if action not in LABELS:
        raise NotFound(f"there is no action {action!r} on jobs")
    if only:
        return cast("JobAction", action), Ids((_id(job_id),))
    if fields.get("which") == "matching":
        bound = fields.get("max_id", "")
        return cast("JobAction", action), Matching(fields.get("q", "")[:2_000], _id(bound) if bound else None)
    ids = tuple(dict.fromkeys(_id(text) for text in fields.all("id")))
    if not ids:
        raise Invalid(say("no job is selected: tick some rows, or choose all that match"))
    if len(ids) > MOST_IDS:
        raise Invalid(f"at most {MOST_IDS} jobs can be ticked; choose all that match a query instead")
    return cast("JobAction", action), Ids(ids)


def _id(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 19:
        raise Invalid(f"{text[:40]!r} is no job's id")
    return int(text)


def confirm(ctx: Context) -> Reply:
    """`R/jobs/confirm`: what would happen; changes nothing."""
    action, selection = _asked(ctx)
    ctx.require(f"jobs.{action}")
    return _confirmation(ctx, action, selection)


def _confirmation(ctx: Context, action: JobAction, selection: Selection, problem: str = "") -> Page:
    preview = ctx.actions.preview(action, selection)
    fields = ctx.form if ctx.request.method == "POST" else ctx.query
    back = ctx.back(fields.get("back"), "/jobs")
    return Page(
        "confirm.html",
        f"{LABELS[action]} {_many(preview)}",
        {
            "action": action,
            "label": LABELS[action],
            "preview": preview,
            "selection": selection,
            "matching": isinstance(selection, Matching),
            "key": fields.get("key") or secrets.token_hex(16),
            "back": back,
            "spreads": SPREADS if action in ("retry", "run_now") else (),
            "problem": problem,
            "typed": _to_type(preview),
            "many": _many(preview),
        },
        status=422 if problem else 200,
        nav="jobs",
    )


def _many(preview: Preview) -> str:
    count = preview.will_change
    return f"{count.text} job{'' if count.value == 1 and count.precision == 'exact' else 's'}"


def _to_type(preview: Preview) -> str:
    """What has to be typed before going on; empty where nothing has to be."""
    return str(preview.will_change.value) if preview.type_count and preview.will_change.value > 1 else ""


def start(ctx: Context) -> Reply:
    """`POST R/jobs/bulk`: start the operation, and go to its page."""
    action, selection = _asked(ctx)
    ctx.require(f"jobs.{action}")
    preview = ctx.actions.preview(action, selection)
    wanted = _to_type(preview)
    if wanted and ctx.form.text("count").replace(",", "") != wanted:
        return _confirmation(
            ctx, action, selection, say("type the number of jobs, {count}, to go on", count=wanted)
        )
    spread = ctx.form.text("spread")
    minutes = int(spread) if spread in map(str, SPREADS) else 0
    few = isinstance(selection, Ids) and len(selection.ids) <= _AT_ONCE
    if not few:
        ctx.dash.rates.bulk(ctx.actor.id)
    operation = ctx.actions.start(
        action,
        selection,
        key=_key(ctx),
        spread=timedelta(minutes=minutes) if minutes and action in ("retry", "run_now") else None,
        reason=ctx.form.text("reason", 500),
    )
    if few and isinstance(selection, Ids):
        operation = ctx.actions.run_operation(operation.id)
        if len(selection.ids) == 1 and action != "delete":
            return Redirect(ctx.url(f"/jobs/{selection.ids[0]}", op=operation.id))
    else:
        work(ctx.actions, operation.id)
    return Redirect(ctx.url(f"/operations/{operation.id}", back=ctx.back(ctx.form.get("back"), "/jobs")))


def _key(ctx: Context) -> str | None:
    key = ctx.form.get("key", "")
    return key if key.isalnum() and len(key) <= 64 else None


def work(actions: Actions, operation_id: int) -> None:
    """Do an operation in a thread of its own; whoever holds its lease does it, and it survives us."""
    threading.Thread(
        target=_work, args=(actions, operation_id), name=f"jobkit-operation-{operation_id}", daemon=True
    ).start()


def _work(actions: Actions, operation_id: int) -> None:
    try:
        actions.run_operation(operation_id)
    except AdminError:
        # Its page tells; another process, or the next look at the page, goes on with it.
        return


def operation_page(ctx: Context) -> Page:
    """`R/operations/{id}`."""
    operation = ctx.reads.operation(int(ctx.values["id"]))
    if operation.open and not ctx.read_only and not operation.cancel_requested:
        # Whoever looks at an operation that a crashed process left takes it up.
        stale = (ctx.now - operation.updated_at).total_seconds() > 60
        if stale:
            work(ctx.actions, operation.id)
    return Page(
        "operation.html",
        f"{LABELS.get(operation.action, operation.action.capitalize())}: operation {operation.id}",
        {"operation": operation, "back": ctx.back(ctx.query.get("back"), "/jobs"), "labels": LABELS},
        regions={"operation": "operation/state.html"},
        token=(operation.state, operation.handled, operation.cancel_requested, operation.total),
        nav="jobs",
    )


def operations_page(ctx: Context) -> Page:
    """`R/operations`."""
    operations = ctx.reads.operations()
    return Page(
        "operations.html",
        say("Bulk operations"),
        {"operations": operations},
        regions={"operations": "operation/list.html"},
        token=[(o.id, o.state, o.handled) for o in operations],
        nav="jobs",
    )


def cancel_operation(ctx: Context) -> Reply:
    """`POST R/operations/{id}/cancel`."""
    operation = ctx.actions.cancel_operation(int(ctx.values["id"]), reason=ctx.form.text("reason", 500))
    return Redirect(ctx.url(f"/operations/{operation.id}"))
