"""Recurring entries. Whatever the state of one of them, the others are shown."""

from __future__ import annotations

import itertools
from typing import Final

from jobkit.admin.errors import NotFound
from jobkit.admin.views import CronRun, CronView
from jobkit_dashboard.context import Context
from jobkit_dashboard.replies import Page, Redirect, Reply
from jobkit_dashboard.words import say

__all__ = ["change_cron", "cron_entry_page", "cron_page"]

_BAR: Final = 8
_TALL: Final = 24


def cron_page(ctx: Context) -> Page:
    """`R/cron`."""
    entries = ctx.reads.cron()
    counts = {
        status: sum(entry.status == status for entry in entries)
        for status in ("active", "paused", "missed", "invalid")
    }
    return Page(
        "cron.html",
        say("Cron"),
        {"entries": [(entry, bars(entry)) for entry in entries], "counts": counts},
        regions={"cron": "cron/list.html"},
        token=[_token(entry) for entry in entries],
        nav="cron",
    )


def _token(entry: CronView) -> object:
    last = entry.last_run
    return (
        entry.key, entry.cron, entry.timezone, entry.status, entry.paused_reason, entry.next_runs, entry.missed_at,
        entry.problem, last and (last.run_at, last.state), len(entry.history),
    )  # fmt: skip


def bars(entry: CronView) -> list[tuple[int, int, int, str]]:
    """x, y, height and outcome of the bars of a history, oldest first."""
    runs = list(reversed(entry.history[:30]))
    longest = max((_seconds(run) for run in runs), default=0.0) or 1.0
    found = []
    for at, run in enumerate(runs):
        height = max(3, round(_TALL * _seconds(run) / longest))
        found.append((at * _BAR, _TALL - height, height, run.state.value if run.state else "gone"))
    return found


def _seconds(run: CronRun) -> float:
    return run.duration.total_seconds() if run.duration is not None else 0.0


def cron_entry_page(ctx: Context) -> Page:
    """`R/cron/show`."""
    entry = ctx.reads.cron_entry(ctx.query.get("key", "")[:200])
    return Page(
        "cron_entry.html",
        say("Cron {key}", key=entry.key),
        {"entry": entry, "overlaps": _overlaps(entry), "did": _did(ctx, entry)},
        regions={"entry": "cron/entry.html"},
        token=_token(entry),
        nav="cron",
    )


def _overlaps(entry: CronView) -> frozenset[object]:
    """The runs that were still going when the next was due."""
    runs = list(reversed(entry.history))
    pairs = itertools.pairwise(runs)
    return frozenset(a.run_at for a, b in pairs if a.finished_at is not None and a.finished_at > b.run_at)


def _did(ctx: Context, entry: CronView) -> str:
    did, job = ctx.query.text("did"), ctx.query.text("job")
    if did == "run" and job.isdecimal():
        return say("Its job was enqueued as job {job}; the schedule goes on as before.", job=job)
    if did == "pause" and entry.status == "paused":
        return say("The entry is paused: it does not run until it is resumed.")
    if did == "resume" and entry.status != "paused":
        return say("The entry runs again from now on; what was due meanwhile is not made up for.")
    return ""


def change_cron(ctx: Context) -> Reply:
    """`POST R/cron/{action}`: run, pause, resume; running asks first."""
    action, key = ctx.values["action"], ctx.form.get("key", "")[:200]
    reason = ctx.form.text("reason", 500)
    if action == "run":
        ctx.require("cron.run")
        if ctx.form.get("sure") != "1":
            return _sure(ctx, key)
        made = ctx.actions.run_cron(key, reason=reason)
        return Redirect(ctx.url("/cron/show", key=key, did="run", job=made.job_id))
    if action not in ("pause", "resume"):
        raise NotFound(f"there is no such action: {action}")
    ctx.require("cron.pause")
    (ctx.actions.pause_cron if action == "pause" else ctx.actions.resume_cron)(key, reason=reason)
    return Redirect(ctx.url("/cron/show", key=key, did=action))


def _sure(ctx: Context, key: str) -> Page:
    entry = ctx.reads.cron_entry(key)
    return Page(
        "sure.html",
        say("Run {key} now", key=key),
        {
            "question": say(
                "Enqueue the job of {key} now? It is tagged manual and does not count as a scheduled run.",
                key=key,
            ),
            "label": say("Run now"),
            "action": ctx.url("/cron/run"),
            "fields": [("key", key), ("sure", "1")],
            "back": ctx.url("/cron/show", key=key),
            "danger": False,
            "reason": True,
            "details": (("Schedule", entry.words or entry.cron), ("Worker", entry.worker)),
        },
        nav="cron",
    )
