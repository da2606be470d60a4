"""The options that every command takes, before or after its name.

Invariant: none of them is an argument of a command's function; each writes into the session, and a later one wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
from click.core import ParameterSource

from jobkit.cli.session import Session, session_of
from jobkit.cli.times import DurationParam, zone_named

__all__ = ["common_options", "settings_options"]

Store = Callable[[Session, Any], None]


def _option(*declarations: str, store: Store, **attributes: Any) -> click.Option:
    def take(ctx: click.Context, param: click.Parameter, value: object) -> object:
        given = ctx.get_parameter_source(param.name or "") not in (None, ParameterSource.DEFAULT)
        if given:
            try:
                store(session_of(ctx), value)
            except ValueError as error:
                if not ctx.resilient_parsing:
                    raise click.BadParameter(str(error), ctx=ctx, param=param) from None
        return value

    return click.Option(declarations, expose_value=False, callback=take, **attributes)


def _choose(session: Session, name: str) -> None:
    """One format a command; the last of two would win, and be a surprise to the reader of the first."""
    before = session.given.output.format
    if before not in (None, name):
        raise ValueError(f"--{before} and --{name}: give one of them")
    session.given.output.format = name  # type: ignore[assignment]


def _json(session: Session, value: str) -> None:
    _choose(session, "json")
    session.given.output.fields = "" if value == "*" else value


def _format(name: str) -> Store:
    return lambda session, value: _choose(session, name)


def _set(session: Session, values: tuple[str, ...]) -> None:
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{text!r}: expected NAME=VALUE, such as plugins.pruner.batch=500")
        session.given.settings[name.strip()] = value
        session.given.by_set.add(name.strip())


def _attribute(name: str) -> Store:
    return lambda session, value: setattr(session.given, name, value)


def _output(name: str) -> Store:
    return lambda session, value: setattr(session.given.output, name, value)


def _zone(session: Session, value: str) -> None:
    session.given.output.zone = zone_named(value)
    session.given.output.zone_name = value


def common_options() -> list[click.Option]:
    """Options for output, configuration and verbosity."""
    return [
        _option(
            "--config",
            store=_attribute("config"),
            metavar="FILE",
            help="The jobkit.toml or pyproject.toml to use.",
        ),
        _option(
            "--set",
            "set_",
            store=_set,
            metavar="NAME=VALUE",
            multiple=True,
            help="Any setting, plugins' too.",
        ),
        _option("--json", store=_json, metavar="[=FIELDS]", help="JSON; with =a,b only these fields."),
        _option("--jsonl", store=_format("jsonl"), is_flag=True, help="One JSON object a line."),
        _option("--csv", store=_format("csv"), is_flag=True, help="Comma-separated values."),
        _option("--tsv", "--plain", store=_format("tsv"), is_flag=True, help="Tab-separated, as in a pipe."),
        _option("--table", store=_format("table"), is_flag=True, help="A table, as on a terminal."),
        _option("--columns", store=_output("columns"), metavar="A,B", help="The columns to show."),
        _option(
            "--header", store=_output("header"), is_flag=True, help="Column names above separated values."
        ),
        _option(
            "--color",
            store=_output("color"),
            type=click.Choice(["auto", "always", "never"]),
            help="Colours; auto also looks at NO_COLOR.",
        ),
        _option(
            "--tz",
            store=_zone,
            metavar="ZONE",
            help="Zone of times shown and typed (UTC; local; Europe/Paris).",
        ),
        _option("--absolute", store=_output("absolute"), is_flag=True, help="Times in tables as dates."),
        _option(
            "--db-timeout",
            store=_attribute("db_timeout"),
            type=DurationParam(),
            help="How long a read may take (10s).",
        ),
        _option(
            "-v", "--verbose", store=_attribute("verbose"), count=True, help="More in the log; twice for all."
        ),
        _option("-q", "--quiet", store=_output("quiet"), is_flag=True, help="No remarks."),
        _option(
            "--no-app",
            store=_attribute("no_app"),
            is_flag=True,
            help="Leave app and imports alone; their plugins are not asked.",
        ),
        _option("--debug", store=_attribute("debug"), is_flag=True, help="Tracebacks of unexpected errors."),
    ]


SHOWN: Final = frozenset({"database_url", "app", "imports"})


def settings_options(*, taken: frozenset[str] = frozenset(), shown: bool = False) -> list[click.Option]:
    """One option for each setting; those in `taken` mean something else to the command."""
    from jobkit.config import SETTINGS

    return [
        _setting(spec.name, spec.options, spec.help, spec.repeatable, spec.default is False, shown)
        for spec in SETTINGS.values()
        if not taken & set(spec.options)
    ]


def _setting(
    name: str, declarations: tuple[str, ...], text: str, repeatable: bool, switch: bool, shown: bool
) -> click.Option:
    def store(session: Session, value: object) -> None:
        session.given.settings[name] = "true" if value is True else value

    return _option(
        *declarations,
        f"setting_{name.replace('.', '_')}",
        store=store,
        multiple=repeatable,
        is_flag=switch,
        help=text,
        hidden=not shown and name not in SHOWN,
    )


def root_settings() -> list[click.Option]:
    """The three settings that may stand before the command; the others follow it."""
    return [
        _setting("database_url", ("--db", "--database-url"), "The database's URL.", False, False, True),
        _setting("app", ("--app",), "The app, as module:attribute.", False, False, True),
        _setting("imports", ("--import", "--imports"), "A module with workers.", True, False, True),
    ]
