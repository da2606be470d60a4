"""`jobkit schema NAME`: the JSON Schema of what a command prints with --json."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

import click

from jobkit.cli import commands
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.session import session_of
from jobkit.cli.shapes import Field, Shape

__all__ = ["SHAPES", "all_shapes", "schema"]

LIST: Final = Shape(
    "schema.list",
    (
        Field("name", help="what `jobkit schema` takes", column="name"),
        Field(
            "version", "integer", help="goes up when a field is renamed or changes its type", column="version"
        ),
        Field("title", help="what it is", column="about"),
    ),
    title="Documented outputs",
)
SHAPES: Final = (LIST,)


def all_shapes() -> dict[str, Shape]:
    """Every documented output by name."""
    found: dict[str, Shape] = {}
    for module in pkgutil.iter_modules(commands.__path__):
        shapes: tuple[Shape, ...] = getattr(
            importlib.import_module(f"{commands.__name__}.{module.name}"), "SHAPES", ()
        )
        found |= {shape.name: shape for shape in shapes}
    return dict(sorted(found.items()))


@click.command(
    cls=Command,
    examples=[
        ("jobkit schema", "All documented outputs."),
        ("jobkit schema jobs.list", "The JSON Schema of `jobkit jobs list --json`."),
    ],
)
@click.argument("name", required=False)
@click.pass_context
def schema(ctx: click.Context, name: str | None) -> None:
    """Print the JSON Schema of an output, or list all outputs."""
    session = session_of(ctx)
    shapes = all_shapes()
    if name is None:
        session.out.items(LIST, list(shapes.values()))
        return
    wanted = name.removeprefix("jobkit.").partition("/")[0]
    if wanted not in shapes:
        raise CommandError(
            f"there is no output {name!r}", ExitCode.NOT_FOUND, hint="list them: jobkit schema"
        )
    session.out.document(shapes[wanted].json_schema())
