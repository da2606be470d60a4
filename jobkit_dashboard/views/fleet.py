"""Queues and nodes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, cast

from jobkit.admin.errors import AdminError, Invalid, NotFound
from jobkit.admin.views import FacetValue, NodeView, QueueView
from jobkit_dashboard.context import Context
from jobkit_dashboard.replies import Page, Redirect, Reply
from jobkit_dashboard.text import term
from jobkit_dashboard.times import parse_span
from jobkit_dashboard.views.jobs import COSTLY
from jobkit_dashboard.words import say

__all__ = ["change_node", "change_queue", "node_page", "nodes_page", "queue_page", "queues_page"]

_MOST_TICKED: Final = 200
_SAMPLE: Final = 200
_LONGEST: Final = timedelta(days=365)
QUEUE_SORTS: Final = {
    "trouble": say("trouble first"),
    "name": "name",
    "available": "available",
    "executing": "executing",
    "oldest": "oldest",
}
COMMANDS: Final = {"pause": "Pause", "resume": "Resume", "drain": "Drain", "forget": "Forget"}


def queues_page(ctx: Context) -> Page:
    """`R/queues`."""
    queues = _queues(ctx)
    wanted, status = ctx.query.text("name", 128), ctx.query.text("status")
    found = [q for q in queues if wanted.lower() in q.name.lower() and status in ("", q.status)]
    sort = ctx.query.text("sort") if ctx.query.text("sort") in QUEUE_SORTS else "trouble"
    return Page(
        "queues.html",
        say("Queues"),
        {
            "queues": _sorted(found, sort),
            "any": bool(queues),
            "name": wanted,
            "status": status,
            "statuses": ("running", "paused", "part paused", "no nodes", "stopping"),
            "sort": sort,
            "sorts": QUEUE_SORTS,
            "did": _did_ticked(ctx),
        },
        regions={"queues": "fleet/queues.html"},
        token=[_queue_token(queue) for queue in found],
        nav="queues",
    )


def _queues(ctx: Context) -> tuple[QueueView, ...]:
    """All queues, counted for everybody who looks at them now."""
    return ctx.dash.samples.get(("queues", ctx.audience), ctx.reads.queues, behind=COSTLY).value


def _sorted(queues: list[QueueView], sort: str) -> list[QueueView]:
    if sort == "name":
        return sorted(queues, key=lambda q: q.name)
    if sort == "available":
        return sorted(queues, key=lambda q: -q.available.value)
    if sort == "executing":
        return sorted(queues, key=lambda q: -q.executing)
    if sort == "oldest":
        return sorted(queues, key=lambda q: -(q.oldest_age or timedelta()))
    return queues


def _queue_token(queue: QueueView) -> object:
    nodes = [(n.node, n.limit, n.override, n.executing, n.paused) for n in queue.nodes]
    return (
        queue.name, queue.status, queue.paused_until, queue.reason, queue.limit, queue.executing, queue.available.text,
        queue.scheduled.text, queue.retryable.text, queue.oldest_available_at, nodes,
    )  # fmt: skip


def queue_page(ctx: Context) -> Page:
    """`R/queues/show`."""
    name = ctx.query.get("name", "")[:200]
    queue = next((queue for queue in _queues(ctx) if queue.name == name), None) or ctx.reads.queue(name)
    workers, sampled = _workers(ctx, queue.name)
    return Page(
        "queue.html",
        say("Queue {name}", name=queue.name),
        {"queue": queue, "did": _did_queue(ctx, queue), "workers": workers, "sampled": sampled},
        regions={"queue": "fleet/queue.html"},
        token=_queue_token(queue),
        nav="queues",
    )


def _workers(ctx: Context, name: str) -> tuple[tuple[FacetValue, ...], int]:
    """The workers whose jobs are newest in the queue, and among how many jobs."""
    if not ctx.may("view.jobs"):
        return (), 0
    key = ("workers", ctx.audience, name)
    try:
        found = ctx.dash.samples.get(
            key, lambda: ctx.reads.facets(term(name, "queue"), sample=_SAMPLE), least=10.0, behind=COSTLY
        ).value
    except AdminError:
        return (), 0
    return next((facet.values for facet in found.facets if facet.qualifier == "worker"), ()), found.sample


def _did_queue(ctx: Context, queue: QueueView) -> str:
    """What the last action did, as far as the database bears it out."""
    did = ctx.query.text("did")
    if did == "pause" and queue.paused:
        return say("The queue is paused: from its next beat on no node claims from it.")
    if did == "resume" and not queue.paused:
        return say("The queue runs again: nodes claim from it from their next beat on.")
    if did == "scale":
        return say(
            "The limits are set: capacity is {limit} now; each node obeys at its next beat.",
            limit=queue.limit,
        )
    return ""


def change_queue(ctx: Context) -> Reply:
    """`POST R/queues/{action}`: pause, resume, scale; scaling shows first what it would do."""
    action, name = ctx.values["action"], ctx.form.get("name", "")[:200]
    reason = ctx.form.text("reason", 500)
    if action in ("pause", "resume") and "back" in ctx.form:
        return _change_ticked(ctx, action, reason)
    if action == "pause":
        ctx.require("queues.pause")
        ctx.actions.pause_queue(name, until=_until(ctx), reason=reason)
    elif action == "resume":
        ctx.require("queues.resume")
        ctx.actions.resume_queue(name, reason=reason)
    elif action == "scale":
        ctx.require("queues.scale")
        page = _scale(ctx, name, reason)
        if page is not None:
            return page
    else:
        raise NotFound(f"there is no such action: {action}")
    return Redirect(ctx.url("/queues/show", name=name, did=action))


def _change_ticked(ctx: Context, action: str, reason: str) -> Reply:
    """Pause or resume the queues that are ticked in the list, one after the other."""
    ctx.require(f"queues.{action}")
    names = list(dict.fromkeys(name[:200] for name in ctx.form.all("name")))
    if not names:
        raise Invalid(say("no queue is selected: tick some rows"))
    for name in names[:_MOST_TICKED]:
        if action == "pause":
            ctx.actions.pause_queue(name, reason=reason)
        else:
            ctx.actions.resume_queue(name, reason=reason)
    return Redirect(ctx.url("/queues", did=f"{action}d", n=len(names[:_MOST_TICKED])))


def _did_ticked(ctx: Context) -> str:
    count = ctx.query.text("n")
    if ctx.query.text("did") not in ("paused", "resumed") or not count.isdecimal() or len(count) > 4:
        return ""
    return (
        f"{count} queue{'' if count == '1' else 's'} {ctx.query.text('did')}; nodes obey at their next beat."
    )


def _until(ctx: Context) -> datetime | None:
    text = ctx.form.text("for")
    if not text:
        return None
    span = parse_span(text)
    if span is None or not timedelta() < span <= _LONGEST:
        raise Invalid(f"{text[:40]!r} is no time such as 30m or 2h")
    return ctx.now + span


def _scale(ctx: Context, name: str, reason: str) -> Page | None:
    """Set the limit, or first show what that would do."""
    text, node = ctx.form.text("limit"), ctx.form.get("node") or None
    if text and not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise Invalid(f"a limit is a whole number from 0 on, not {text[:40]!r}")
    limit = int(text) if text else None
    if ctx.form.get("sure") == "1":
        ctx.actions.scale_queue(name, limit, node=node, reason=reason)
        return None
    change = ctx.actions.preview_scale(name, limit, node=node)
    what = f"capacity goes from {change.capacity_before} to {change.capacity_after}"
    where = f"on node {node}" if node else "on all nodes"
    fields = [("name", name), ("limit", text), ("node", node or ""), ("sure", "1")]
    set_to = "the configured limit" if limit is None else f"the limit {limit}"
    return Page(
        "sure.html",
        say("Scale queue {name}", name=name),
        {
            "question": f"Set {set_to} for queue {name} {where}: {what}.",
            "label": say("Set the limit"),
            "action": ctx.url("/queues/scale"),
            "fields": fields,
            "back": ctx.url("/queues/show", name=name),
            "danger": change.capacity_after < change.capacity_before,
            "reason": True,
            "details": (),
        },
        nav="queues",
    )


def nodes_page(ctx: Context) -> Page:
    """`R/nodes`."""
    nodes = ctx.reads.nodes()
    versions = {str(node.info.get("version", "")) for node in nodes if not node.stale} - {""}
    return Page(
        "nodes.html",
        say("Nodes"),
        {"nodes": nodes, "versions": sorted(versions)},
        regions={"nodes": "fleet/nodes.html"},
        token=[_node_token(node) for node in nodes],
        nav="nodes",
    )


def _node_token(node: NodeView) -> object:
    return (
        node.node, dict(node.queues), node.executing, node.capacity, node.lost_at, node.stale, node.paused,
        node.draining, node.orphans, node.heartbeat_at.replace(microsecond=0),
    )  # fmt: skip


def node_page(ctx: Context) -> Page:
    """`R/nodes/show`."""
    node = ctx.reads.node(ctx.query.get("id", "")[:300])
    quoted = '"' + node.node.replace("\\", "\\\\").replace('"', '\\"') + '"'
    jobs = ctx.reads.jobs(f"state:executing node:{quoted}", limit=50)
    return Page(
        "node.html",
        say("Node {name}", name=node.node),
        {"node": node, "jobs": jobs.jobs, "query": f"node:{quoted}", "did": _did_node(ctx, node)},
        regions={"node": "fleet/node.html"},
        token=(_node_token(node), [(job.id, job.attempt) for job in jobs.jobs]),
        nav="nodes",
    )


def _did_node(ctx: Context, node: NodeView) -> str:
    did = ctx.query.text("did")
    if did == "drain" and node.draining:
        return say("The node was told to drain: it finishes its jobs and stops.")
    if did == "pause" and node.paused:
        return say("The node was told to pause: from its next beat on it claims nothing.")
    if did == "resume" and not (node.paused or node.draining):
        return say("The node was told to resume: it claims again from its next beat on.")
    return ""


def change_node(ctx: Context) -> Reply:
    """`POST R/nodes/{action}`: pause, resume, drain, forget; the last two ask first."""
    action, node = ctx.values["action"], ctx.form.get("id", "")[:300]
    if action not in COMMANDS:
        raise NotFound(f"there is no such action: {action}")
    ctx.require("nodes.pause" if action == "resume" else f"nodes.{action}")
    if action in ("drain", "forget") and ctx.form.get("sure") != "1":
        return _sure_node(ctx, action, node)
    ctx.actions.command_node(node, cast("object", action), reason=ctx.form.text("reason", 500))  # type: ignore[arg-type]
    if action == "forget":
        return Redirect(ctx.url("/nodes"))
    return Redirect(ctx.url("/nodes/show", id=node, did=action))


def _sure_node(ctx: Context, action: str, node: str) -> Page:
    view = ctx.reads.node(node)
    questions = {
        "drain": say(
            "Drain node {node}? It finishes its {count} running jobs and stops for good.",
            node=node,
            count=view.executing,
        ),
        "forget": say(
            "Forget node {node}? Its row is removed; it left {count} jobs behind.",
            node=node,
            count=view.orphans,
        ),
    }
    return Page(
        "sure.html",
        f"{COMMANDS[action]} node {node}",
        {
            "question": questions[action],
            "label": f"{COMMANDS[action]} the node",
            "action": ctx.url(f"/nodes/{action}"),
            "fields": [("id", node), ("sure", "1")],
            "back": ctx.url("/nodes/show", id=node),
            "danger": True,
            "reason": True,
            "details": (),
        },
        nav="nodes",
    )
