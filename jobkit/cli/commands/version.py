"""`jobkit version`: jobkit's version and those of what it stands on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Final

import click

from jobkit.cli.framework import Command
from jobkit.cli.session import session_of
from jobkit.cli.shapes import Field, Shape

__all__ = ["SHAPES", "version"]

PARTS: Final = ("sqlalchemy", "pluggy", "msgspec", "croniter", "alembic", "click", "rich", "psycopg")

VERSION: Final = Shape(
    "version",
    (
        Field("jobkit", help="jobkit's version"),
        Field("python", help="the interpreter's version"),
        Field("platform", help="the operating system"),
        *(
            Field(name, nullable=True, help=f"the version of {name}; null where it is not installed")
            for name in PARTS
        ),
    ),
    listing=False,
    title="Versions",
)
SHAPES: Final = (VERSION,)


@click.command(
    cls=Command,
    examples=[("jobkit version", "Versions."), ("jobkit version --json", "The same for machines.")],
)
@click.pass_context
def version(ctx: click.Context) -> None:
    """Print the versions of jobkit, Python and the libraries below it."""
    found = {
        "jobkit": _version("jobkit-queue"),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        **{name: _version(name) for name in PARTS},
    }
    session_of(ctx).out.item(VERSION, found)


def _version(distribution: str) -> str | None:
    try:
        return version_of(distribution)
    except PackageNotFoundError:
        return None
