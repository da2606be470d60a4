"""The hooks: navigation, pages, a job panel, an action, a style sheet, and who may use them.

The notes are kept in memory, to keep the sample small; a real plugin would bring a table by `jobkit_migrations`.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobkit import hookimpl
from jobkit.admin.views import JobDetail
from jobkit.hookspecs import Actor, Resource
from jobkit_dashboard.extend import (
    Action,
    Asset,
    GoTo,
    NavItem,
    Panel,
    PluginContext,
    PluginPage,
    PluginRoute,
)

notes: dict[int, list[str]] = {}


@hookimpl
def jobkit_authorize(actor: Actor, action: str, resource: Resource) -> bool | None:
    """Whoever may see jobs may read notes; writing takes an operator. All else is none of our business."""
    if action == "notes.view":
        return True
    if action == "notes.write":
        return bool(actor.roles & {"operator", "admin"}) or actor.via == "cli"
    return None


@hookimpl(optionalhook=True)
def jobkit_dashboard_nav() -> list[NavItem]:
    """A link with the number of notes."""
    return [NavItem("notes", "Notes", "notes.view", badge=lambda: str(_count()) if notes else None)]


@hookimpl(optionalhook=True)
def jobkit_dashboard_routes() -> list[PluginRoute]:
    """The page, and where its form goes."""
    return [
        PluginRoute("", all_notes, "notes.view"),
        PluginRoute("add", add, "notes.write", methods=("POST",)),
    ]


@hookimpl(optionalhook=True)
def jobkit_dashboard_panels(ctx: PluginContext, job: JobDetail) -> list[Panel]:
    """The job's notes."""

    def data() -> Mapping[str, object]:
        return {"notes": notes.get(job.job.id, []), "job_id": job.job.id}

    return [Panel("notes", "Notes", "notes.view", data, template="panel.html")]


@hookimpl(optionalhook=True)
def jobkit_dashboard_job_actions(ctx: PluginContext, job: JobDetail) -> list[Action]:
    """A note of the state that the job has now."""

    def run(ctx: PluginContext, job: JobDetail) -> str:
        notes.setdefault(job.job.id, []).append(f"{ctx.actor.name} saw it {job.job.state.value}")
        return "noted"

    return [Action("note", "Note it", "notes.write", run, confirm="Note the state that this job has now?")]


@hookimpl(optionalhook=True)
def jobkit_dashboard_assets() -> list[Asset]:
    """Our style sheet."""
    return [Asset("css", "dashboard_panel", "static/notes.css")]


def all_notes(ctx: PluginContext) -> PluginPage:
    """The page: all notes, and a form."""
    return PluginPage(
        "Notes", {"notes": sorted(notes.items()), "writes": ctx.may("notes.write")}, template="notes.html"
    )


def add(ctx: PluginContext) -> GoTo:
    """Keep what the form brought, and go back to the page."""
    job_id = ctx.form.get("job", "")
    if job_id.isdecimal() and len(job_id) < 20:
        notes.setdefault(int(job_id), []).append(ctx.form.get("text", "")[:500])
    return GoTo()


def _count() -> int:
    return sum(map(len, notes.values()))
