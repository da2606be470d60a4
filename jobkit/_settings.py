"""The table of all settings: name, parser, default, and the words that describe it.

Invariant: a setting is defined here and nowhere else; loading, `config show`, the options of the command line
and the documentation all walk this table.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from jobkit._names import check_name
from jobkit._urls import check_url, mask_url
from jobkit._values import (
    ProcessConfig,
    choice,
    format_duration,
    format_queues,
    format_size,
    limited_duration,
    optional,
    parse_bool,
    parse_count,
    parse_list,
    parse_queues,
    parse_size,
    show,
)
from jobkit.errors import ConfigError

__all__ = [
    "DEFAULT",
    "SETTINGS",
    "Origin",
    "OriginKind",
    "SettingSpec",
    "closest",
    "environment_name",
    "nearest",
]

OriginKind: TypeAlias = Literal["default", "file", "environment", "constructor", "command line"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: `where` is the variable, option, keyword, or the file with its key."""

    kind: OriginKind
    where: str = ""

    def __str__(self) -> str:
        if self.kind == "default":
            return "default"
        return self.where if self.kind == "file" else f"{self.kind} {self.where}"


DEFAULT: Final = Origin("default")


def environment_name(name: str) -> str:
    """Return the variable of a dotted name: `process.children` is `JOBKIT_PROCESS_CHILDREN`."""
    return "JOBKIT_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, case and dashes aside, or None where none is similar."""
    plain = {_fold(candidate): candidate for candidate in sorted(known)}
    found = difflib.get_close_matches(_fold(name), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else None


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the closest known name, or an empty text."""
    found = closest(name, known)
    return f"; did you mean {found!r}?" if found else ""


def _identity(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """One setting as data. `default` is the parsed value; `plain` turns a value into TOML's own types."""

    name: str
    parse: Callable[[object], object]
    default: object
    form: str
    help: str
    plain: Callable[..., object] = _identity
    shown: Callable[..., object] | None = None
    short: tuple[str, ...] = ()
    repeatable: bool = False
    nullable: bool = False

    @property
    def env(self) -> str:
        """The environment variable."""
        return environment_name(self.name)

    @property
    def option(self) -> str:
        """The long option of the command line."""
        return "--" + self.parameter.replace("_", "-")

    @property
    def options(self) -> tuple[str, ...]:
        """All spellings of the option, the short ones first."""
        return (*self.short, self.option)

    @property
    def parameter(self) -> str:
        """The name as a Python parameter: `process_children`."""
        return self.name.replace(".", "_")

    def display(self, value: object) -> object:
        """Return a value as `config show` prints it: plain, passwords masked."""
        return (self.shown or self.plain)(value)


# ---------------------------------------------------------------- parsers that only this table needs


def _identifier(what: str, length: int, *, empty: bool) -> Callable[[object], str]:
    pattern = re.compile(rf"[a-z_][a-z0-9_]{{0,{length - 1}}}", re.ASCII)

    def parse(value: object) -> str:
        text = value.strip() if isinstance(value, str) else None
        if text is not None and (pattern.fullmatch(text) or (empty and not text)):
            return text
        raise ConfigError(
            f"{show(value)} is no valid {what}; expected at most {length} lower-case letters, digits "
            "and '_', not starting with a digit"
        )

    return parse


def _or_none(parse: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else parse(value)


def _dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _module(value: object) -> str:
    if isinstance(value, str) and _dotted(value):
        return value
    raise ConfigError(f"{show(value)} is no module name; expected one such as jobs or shop.jobs")


def _app(value: object) -> str:
    module, colon, attribute = value.strip().partition(":") if isinstance(value, str) else ("", "", "")
    if colon and _dotted(module) and _dotted(attribute):
        return f"{module}:{attribute}"
    raise ConfigError(f"{show(value)} names no app; expected module:attribute, such as shop.jobs:app")


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ConfigError(f"found {show(value)}, expected text that is not empty")


def _pattern(value: object) -> str:
    text = _text(value)
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"{show(value)} is no regular expression: {error}") from None
    return text


def _plugin_name(value: object) -> str:
    return check_name(value, "plugin", ConfigError)


def _memory(value: object) -> int:
    size = parse_size(value)
    if size < 16_000_000:
        raise ConfigError(f"{show(value)} is too little for a Python process; expected at least 16MB")
    return size


def _off_or_number(value: object) -> object:
    return "never" if value is None else value


# ---------------------------------------------------------------- the table

_PROCESS: Final = ProcessConfig()
_DURATION: Final = "a duration such as 10s, 5m, 2h or 7d"

_TABLE: Final = (
    SettingSpec(
        "database_url",
        check_url,
        "sqlite:///jobkit.db",
        "a database URL",
        "The database that holds the jobs: SQLite or Postgres, with any driver or none.",
        shown=mask_url,
        short=("--db",),
    ),
    SettingSpec(
        "queues",
        parse_queues,
        parse_queues("default:10,mailers:5"),
        "name:limit, separated by commas",
        "The queues that a node runs, and how many jobs of each at once.",
        plain=format_queues,
    ),
    SettingSpec(
        "prune_after",
        optional(limited_duration(timedelta(microseconds=1), why="; to keep finished jobs write never")),
        timedelta(days=7),
        f"{_DURATION}, or never",
        "How long finished jobs are kept, counted from the moment they became final.",
        plain=format_duration,
        nullable=True,
    ),
    SettingSpec(
        "shutdown_grace",
        limited_duration(),
        timedelta(seconds=25),
        _DURATION,
        "How long running jobs may go on after the first stop signal.",
        plain=format_duration,
        short=("--grace",),
    ),
    SettingSpec(
        "unknown_worker_grace",
        optional(limited_duration()),
        timedelta(minutes=10),
        f"{_DURATION}, 0 (at once), or never",
        "How long a job waits for a node that knows its worker before it is discarded.",
        plain=format_duration,
        nullable=True,
    ),
    SettingSpec(
        "dead_after",
        limited_duration(
            timedelta(seconds=3), timedelta(hours=1), why=", since nodes give a sign of life once a second"
        ),
        timedelta(seconds=15),
        f"{_DURATION}, 3s to 1h",
        "How long a node may be silent before others rescue its jobs.",
        plain=format_duration,
    ),
    SettingSpec(
        "table_prefix",
        _identifier("table prefix", 24, empty=True),
        "jobkit_",
        "lower-case letters, digits and _",
        "What the names of jobkit's tables start with.",
    ),
    SettingSpec(
        "schema",
        _or_none(_identifier("schema", 63, empty=False)),
        None,
        "the name of a Postgres schema",
        "The Postgres schema of jobkit's tables; left out, the connection's own.",
        nullable=True,
    ),
    SettingSpec(
        "imports",
        parse_list(_module),
        (),
        "module names",
        "Modules whose workers and plugins the app has; the working directory is importable.",
        short=("--import",),
        repeatable=True,
    ),
    SettingSpec(
        "app",
        _or_none(_app),
        None,
        "module:attribute",
        "The app itself, where the program makes its own.",
        nullable=True,
    ),
    SettingSpec(
        "disable",
        parse_list(_plugin_name),
        (),
        "names of plugins",
        "Plugins that are not used, built-in ones included.",
        repeatable=True,
    ),
    SettingSpec(
        "notify",
        choice("after_commit", "in_statement", "off"),
        "after_commit",
        "after_commit, in_statement or off",
        "When other nodes are told of new jobs: after the commit, within the insert, or never (they poll).",
    ),
    SettingSpec(
        "arm",
        choice("auto", "portable"),
        "auto",
        "auto or portable",
        "Which storage statements are used: the database's own, or those that every database understands.",
    ),
    SettingSpec(
        "sqlite_synchronous",
        choice("full", "extra", "normal", "off"),
        "full",
        "full, extra, normal or off",
        "SQLite's synchronous pragma; below full a power failure may lose the last commits.",
    ),
    SettingSpec(
        "postgres_prepare",
        choice("auto", "on", "off"),
        "auto",
        "auto, on or off",
        "Server-side prepared statements; auto leaves them out behind a transaction-mode pooler.",
    ),
    SettingSpec(
        "redaction.keys",
        parse_list(_text),
        (),
        "names of keys",
        "Further keys whose values are secret, besides the built-in ones.",
        repeatable=True,
    ),
    SettingSpec(
        "redaction.patterns",
        parse_list(_pattern),
        (),
        "regular expressions",
        "Further patterns of text that is secret, besides the built-in ones.",
        repeatable=True,
    ),
    SettingSpec(
        "redaction.allow",
        parse_list(_text),
        (),
        "paths such as args.token_count",
        "Paths that are shown although their names look secret.",
        repeatable=True,
    ),
    SettingSpec(
        "redaction.off",
        parse_bool,
        False,
        "true or false",
        "Shows everything, secrets included.",
    ),
    SettingSpec(
        "process.children",
        parse_count(1, 1_024),
        _PROCESS.children,
        "a whole number",
        'The most child processes that run runner="process" workers.',
    ),
    SettingSpec(
        "process.max_jobs",
        optional(parse_count(1, 2**31 - 1)),
        _PROCESS.max_jobs,
        "a whole number, or never",
        "After how many jobs a child process is replaced.",
        plain=_off_or_number,
        nullable=True,
    ),
    SettingSpec(
        "process.max_memory",
        optional(_memory),
        _PROCESS.max_memory,
        "a size such as 512MB, or never",
        "At which size a child process is replaced after its job.",
        plain=format_size,
        nullable=True,
    ),
)

SETTINGS: Final = MappingProxyType({spec.name: spec for spec in _TABLE})
"""All settings by name, in the order in which they are shown; `replace.*` and `plugins.*` are open tables."""
