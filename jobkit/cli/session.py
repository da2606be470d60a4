"""One invocation of the command line: what was asked for globally, and what commands get made from it.

Invariant: the configuration, the app and the database are touched when a command first asks for them, never before; a
command that only reads imports no app.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.output import Output, OutputOptions

if TYPE_CHECKING:
    from jobkit.admin.actions import Actions
    from jobkit.admin.reads import Reads
    from jobkit.config import Config
    from jobkit.core import Core
    from jobkit.hookspecs import Actor

__all__ = ["Session", "session_of"]

_SUBJECT: Final = re.compile(
    r"((?:\[plugins\.[\w.-]+\] [\w-]+|\bJOBKIT_\w+|(?:--)?\bdatabase[_-]url|--[\w-]+-(?:file|url|path))'?: )"
)
"""What an error of the configuration begins with: the name of a setting, of its variable or option."""


@dataclass(slots=True)
class Given:
    """The options that every command takes."""

    settings: dict[str, object] = field(default_factory=dict)
    by_set: set[str] = field(default_factory=set)
    """The settings that came by `--set`, which may have no option of their own."""
    config: str | None = None
    db_timeout: timedelta | None = None
    verbose: int = 0
    debug: bool = False
    no_app: bool = False
    output: OutputOptions = field(default_factory=OutputOptions)


class Session:
    """What a command works with."""

    def __init__(self) -> None:
        self.given = Given()
        self.out = Output(self.given.output)
        self.own_process = False
        """Whether the process ends with the command, as it does outside of tests."""
        self.endless = False
        """Whether the command goes on until Ctrl-C, which is then no error."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    @cached_property
    def config(self) -> Config:
        """The configuration of this invocation; raises CommandError or ConfigError."""
        from jobkit.config import Config
        from jobkit.errors import ConfigError

        try:
            return Config.load(file=self.given.config, command_line=nested(self.given.settings))
        except ConfigError as error:
            if str(error).startswith("command line "):
                text = _as_given(str(error).removeprefix("command line "), self.given.by_set)
                raise CommandError(text, ExitCode.USAGE) from None
            raise

    @cached_property
    def app(self) -> Core:
        """The core of the user's app, with its workers and plugins, imported; not with `--no-app`."""
        if self.given.no_app:
            return self.core
        from jobkit.cli.apps import load_app, load_modules
        from jobkit.core import Core

        config = self.config
        if config.app is None:
            load_modules(config.imports)
            return Core(config)
        self.export()
        core = load_app(config.app)
        self._check_obeyed(core)
        return core

    @cached_property
    def core(self) -> Core:
        """A core for commands that only look at the database; the app is left alone.

        Only where nothing but the app itself knows the database is it imported after all.
        """
        from jobkit.core import Core

        config = self.config
        only_the_app_knows = config.app is not None and config.origin("database_url").kind == "default"
        if only_the_app_knows and not self.given.no_app:
            return self.app
        return Core(config.override(imports=(), app=None))

    @cached_property
    def actor(self) -> Actor:
        """Who acts: `user@host`."""
        from jobkit.admin.access import cli_actor

        return cli_actor()

    @cached_property
    def reads(self) -> Reads:
        """What there is to see."""
        from jobkit.admin.reads import Reads

        return Reads(self.core, self.actor, timeout=self.given.db_timeout or timedelta(seconds=10))

    @cached_property
    def actions(self) -> Actions:
        """What there is to do; with the app, whose plugins have a say in every change."""
        from jobkit.admin.actions import Actions

        return Actions(self.app, self.actor)

    def redact(self, text: str) -> str:
        """The text without secrets; used on errors, which may carry a URL with its password.

        A setting may be called like a secret: what jobkit says about it is none, and the values in that are masked
        where they are found. So its name is looked at apart from what follows it.
        """
        from jobkit.redact import RedactionRules, Redactor

        config: Config | None = self.__dict__.get("config")
        redactor = Redactor(config.redaction if config is not None else RedactionRules())
        return "".join(redactor.text(part, kind="log") for part in _SUBJECT.split(text))

    @property
    def database_url(self) -> str | None:
        """The database that was worked with, as far as the command came."""
        for name in ("core", "app"):
            if (core := self.__dict__.get(name)) is not None:
                return str(core.config.database_url)
        config: Config | None = self.__dict__.get("config")
        return None if config is None else config.database_url

    def close(self) -> None:
        """Close what was opened."""
        for name in ("core", "app"):
            core = self.__dict__.pop(name, None)
            if core is not None:
                core.close()

    def export(self) -> None:
        """Let an app that reads the environment see what was given on the command line."""
        for name, value in self.given.settings.items():
            if "." not in name or not name.startswith(("plugins.", "replace.")):
                os.environ[_variable(name)] = _text(value)
        if self.given.config:
            os.environ["JOBKIT_CONFIG"] = self.given.config

    def _check_obeyed(self, core: Core) -> None:
        """An app may set things itself; then an option that says otherwise must not be dropped silently."""
        theirs = {setting.name: setting.value for setting in core.config.describe()}
        ours = {setting.name: setting.value for setting in self.config.describe()}
        for name in self.given.settings:
            if name not in ("app", "queues") and name in ours and ours[name] != theirs.get(name):
                origin = core.config.origin(name)
                raise CommandError(
                    f"--{name.replace('.', '-').replace('_', '-')} has no effect: the app "
                    f"{self.config.app} sets {name} itself ({origin})",
                    ExitCode.USAGE,
                )


def session_of(ctx: click.Context) -> Session:
    """The session of this invocation, made at the first call."""
    return ctx.ensure_object(Session)


def nested(settings: Mapping[str, object]) -> dict[str, object]:
    """`plugins.pruner.batch` as tables within tables; all other names as they are."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        if not name.startswith(("plugins.", "replace.")):
            tree[name] = value
            continue
        at = tree
        *tables, last = name.split(".")
        for table in tables:
            at = at.setdefault(table, {})
        at[last] = value
    return tree


def _as_given(text: str, by_set: Iterable[str]) -> str:
    """The error with `--set NAME`, where the setting was given by that."""
    from jobkit.config import SETTINGS

    for name in by_set:
        own = SETTINGS[name].option if name in SETTINGS else f"--{re.sub('[._]', '-', name)}"
        if text.startswith(f"{own}:"):
            return f"--set {name}{text.removeprefix(own)}"
    return text


def _variable(name: str) -> str:
    from jobkit.config import environment_name

    return environment_name(name)


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, (list, tuple)) else str(value)
