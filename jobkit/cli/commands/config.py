"""`jobkit config`: every setting with its value and where it came from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Group
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape

if TYPE_CHECKING:
    from jobkit.config import Config, Setting

__all__ = ["SHAPES", "config"]

SHOW: Final = Shape(
    "config.show",
    (
        Field("name", help="the setting", column="setting"),
        Field("value", "any", help="the effective value, passwords masked", column="value", nullable=True),
        Field("origin", get=lambda s: str(s.origin), help="where it came from", column="from"),
        Field(
            "origin_kind",
            get=lambda s: s.origin.kind,
            help="default, file, environment, constructor, command line",
        ),
    ),
    title="Effective settings",
)
CHECK: Final = Shape(
    "config.check",
    (
        Field("level", help="ok, warning or error", column="level"),
        Field("text", help="what was found", column="text"),
    ),
    title="What is wrong with the configuration",
)
SHAPES: Final = (SHOW, CHECK)


@click.group(cls=Group, default="show")
def config() -> None:
    """Show and check the configuration: command line over environment over file over defaults."""


@config.command(
    "show",
    cls=Command,
    settings=True,
    examples=[
        ("jobkit config show", "All settings with their origins."),
        ("jobkit config show dead_after --db sqlite:///x.db", "One setting, with other options as given."),
    ],
)
@click.argument("names", nargs=-1)
@click.option(
    "--effective", is_flag=True, help="Fail where the app, whose settings they are, cannot be imported."
)
@click.pass_context
def show(ctx: click.Context, names: tuple[str, ...], effective: bool) -> None:
    """Print each setting, or those named, with its value and where it came from. Passwords are masked.

    With an app these are the settings that the app has, which may be set in its code; with --no-app those that it
    would find.
    """
    session = session_of(ctx)
    found = _of_app(session, effective)
    settings = [_own(session, setting) for setting in found.describe()]
    for name in names:
        if not any(s.name == name or s.name.startswith(f"{name}.") for s in settings):
            found.origin(name)
    wanted = [
        s for s in settings if not names or any(s.name == n or s.name.startswith(f"{n}.") for n in names)
    ]
    if found.file is not None:
        session.out.note(f"file: {found.file}")
    session.out.items(SHOW, wanted)


def _of_app(session: Session, must: bool) -> Config:
    """The app's configuration; where it cannot be had, the one that it would find, with a warning."""
    if session.config.app is None or session.given.no_app:
        return session.config
    try:
        return session.app.config
    except CommandError as error:
        if must or error.code is not ExitCode.CONFIG:
            raise
        session.out.warn(f"{session.redact(error.message)}; these are the settings that it would find")
        return session.config


def _own(session: Session, setting: Setting) -> Setting:
    """Which app it is, no app says of itself."""
    if setting.name != "app":
        return setting
    return next(own for own in session.config.describe() if own.name == "app")


@config.command(
    "check",
    cls=Command,
    settings=True,
    examples=[("jobkit config check", "Exit code 0 if all is well, 3 or 10 if not.")],
)
@click.pass_context
def check(ctx: click.Context) -> None:
    """Check the settings, the app's import, and the names of plugins, without a database."""
    session = session_of(ctx)
    found = _findings(session)
    session.out.items(CHECK, found)
    if any(finding["level"] != "ok" for finding in found):
        raise CommandError("the configuration has problems", ExitCode.PROBLEMS)


def _findings(session: Session) -> list[dict[str, str]]:
    from jobkit.config import unknown_variables

    core = session.app
    problems = [*unknown_variables(os.environ), *core.registry.problems]
    broken = [
        f"plugin {plugin.source} is {plugin.status}: {plugin.error}"
        for plugin in core.registry.plugins
        if plugin.status in ("skipped", "duplicate")
    ]
    core.registry.schedules()
    found = [{"level": "warning", "text": text} for text in dict.fromkeys((*problems, *broken))]
    return found or [{"level": "ok", "text": "the configuration is in order"}]
