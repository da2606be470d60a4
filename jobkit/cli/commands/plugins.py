"""`jobkit plugins`: what is installed, what it does, and what is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.errors import CommandError, failure_of
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Group
from jobkit.cli.output import Output
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape, plain
from jobkit.cli.words import many

if TYPE_CHECKING:
    from jobkit.registry import PluginState

__all__ = ["SHAPES", "plugins"]

STYLES: Final = {
    "active": "green",
    "replaced": "yellow",
    "disabled": "dim",
    "skipped": "red",
    "duplicate": "red",
}
_FIELDS: Final = (
    Field("name", help="the plugin's name", column="name"),
    Field(
        "status",
        help="active, replaced, disabled, skipped or duplicate",
        column="status",
        style=lambda p: STYLES.get(p.status, ""),
    ),
    Field("distribution", help="what brings it", column="distribution", nullable=True),
    Field("version", help="of the distribution", column="version", nullable=True),
    Field("kind", help="built-in, distribution, import or given"),
    Field("place", help="module or object"),
    Field("hooks", "list", help="the hooks it implements", column="hooks"),
    Field("replaces", help="the plugin it stands in for", nullable=True),
    Field("replaced_by", help="the plugin that stands in for it", nullable=True),
    Field("requires", "list", help="plugins it needs"),
    Field("settings", "object", get=lambda p: plain(p.settings), help="its settings, decoded", nullable=True),
    Field("error", help="why it takes no part", column="error"),
    Field("notes", "list", help="remarks on an active plugin"),
    Field("failures", "integer", help="how often a hook of it raised in this process"),
)


def _of_state(field: Field) -> Field:
    """The same field of one plugin with its nodes."""
    return replace(field, get=lambda row: field.value(row["plugin"]))


LIST: Final = Shape(
    "plugins.list", _FIELDS, title="Plugins", extra=(Field("problems", "list", help="what was left out"),)
)
SHOW: Final = Shape(
    "plugins.show",
    (
        *(_of_state(field) for field in _FIELDS),
        Field("nodes", "object", help="live nodes: what each says of the plugin's services"),
    ),
    listing=False,
    title="One plugin",
)
DOCTOR: Final = Shape(
    "plugins.doctor",
    (
        Field("plugin", help="which one; empty for none in particular", column="plugin"),
        Field("problem", help="what is wrong", column="problem"),
    ),
    title="What is wrong with plugins and workers",
)
SHAPES: Final = (LIST, SHOW, DOCTOR)


@click.group(cls=Group)
def plugins() -> None:
    """List, show and check plugins: built-in ones, those of installed distributions, and the app's own."""


@plugins.command(
    "list",
    cls=Command,
    examples=[
        ("jobkit plugins", "All plugins with distribution and version."),
        ("jobkit plugins --json=name,status,error", "Three fields, for machines."),
    ],
)
@click.option("--status", multiple=True, help="Only those of this status.")
@click.pass_context
def list_(ctx: click.Context, status: tuple[str, ...]) -> None:
    """List plugins in the order in which they are registered; later ones are asked first."""
    session = session_of(ctx)
    registry = session.app.registry
    found = [plugin for plugin in registry.plugins if not status or plugin.status in status]
    session.out.items(LIST, found, extra={"problems": registry.problems})


@plugins.command(
    "show", cls=Command, examples=[("jobkit plugins show pruner", "Its hooks, settings and place.")]
)
@click.argument("name")
@click.pass_context
def show(ctx: click.Context, name: str) -> None:
    """Show one plugin: where it comes from, its hooks, its settings."""
    session = session_of(ctx)
    found = [plugin for plugin in session.app.registry.plugins if plugin.name == name]
    if not found:
        raise CommandError(
            f"there is no plugin {name!r}", ExitCode.NOT_FOUND, hint="list them: jobkit plugins"
        )
    best = next((plugin for plugin in found if plugin.status == "active"), found[0])
    nodes = _nodes(session, best)
    session.out.item(SHOW, {"plugin": best, "nodes": nodes}, lambda out: _draw(out, best, nodes))


def _nodes(session: Session, plugin: PluginState) -> dict[str, object]:
    """What live nodes say of its services; nothing where the database cannot be asked."""
    try:
        views = session.reads.plugins()
    except Exception as error:  # noqa: BLE001 - a plugin is shown with and without a database
        session.out.note(f"nothing of its nodes: {session.redact(failure_of(error).message)}")
        return {}
    return {node: facts for view in views if view.name == plugin.name for node, facts in view.ticks.items()}


def _draw(out: Output, plugin: PluginState, nodes: dict[str, object]) -> None:
    settings = plain(plugin.settings)
    out.pairs(
        {
            "name": plugin.name,
            "status": plugin.status + (f": {plugin.error}" if plugin.error else ""),
            "distribution": " ".join(filter(None, (plugin.distribution, plugin.version))),
            "place": plugin.place,
            "replaces": plugin.replaces,
            "requires": plugin.requires,
            "hooks": plugin.hooks,
            **(
                {f"setting {key}": value for key, value in settings.items()}
                if isinstance(settings, dict)
                else {}
            ),
            "notes": plugin.notes,
            **{f"on {node}": facts for node, facts in nodes.items()},
        }
    )


@plugins.command(
    "doctor",
    cls=Command,
    examples=[("jobkit plugins doctor", "Exit code 10 where a plugin or worker is broken.")],
)
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Check all plugins and import all workers; exit code 10 where something is wrong."""
    session = session_of(ctx)
    registry = session.app.registry
    found = [
        {"plugin": plugin.name, "problem": text}
        for plugin in registry.plugins
        for text in (*([plugin.error] if plugin.status in ("skipped", "duplicate") else []), *plugin.notes)
    ]
    for name in list(registry.workers):
        try:
            registry.resolve(name)
        except Exception as error:  # noqa: BLE001 - importing a worker may raise anything
            found.append({"plugin": "", "problem": str(error)})
    told = {entry["problem"] for entry in found}
    found += [{"plugin": "", "problem": text} for text in registry.problems if text not in told]
    session.out.items(DOCTOR, found, empty="all plugins and workers are in order")
    if found:
        raise CommandError(f"{many(len(found), 'problem')} with plugins or workers", ExitCode.PROBLEMS)
