"""The configuration: one validated, frozen value, in which every setting knows where it came from.

Invariant: a `Config` that exists is valid. Command line wins over constructor over environment over file over
default; nothing else is read, and nothing is read again later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from sqlalchemy.engine import URL

from jobkit._names import check_name
from jobkit._plugin_settings import decode_settings
from jobkit._settings import DEFAULT, SETTINGS, Origin, OriginKind, SettingSpec, environment_name, nearest
from jobkit._sources import (
    CONFIG_VARIABLE,
    Found,
    Layer,
    environment_layer,
    file_layer,
    find_file,
    named_layer,
    unknown_variables,
)
from jobkit._urls import check_url, engine_url, is_memory_sqlite, mask_setting, mask_url
from jobkit._values import (
    ProcessConfig,
    QueueConfig,
    QueueSpec,
    format_duration,
    format_size,
    parse_duration,
    parse_queues,
    parse_size,
    show,
)
from jobkit.errors import ConfigError
from jobkit.redact import RedactionRules

__all__ = [
    "SETTINGS",
    "Config",
    "ConfigValues",
    "Origin",
    "OriginKind",
    "ProcessConfig",
    "QueueConfig",
    "QueueSpec",
    "RedactionRules",
    "Setting",
    "SettingSpec",
    "check_url",
    "engine_url",
    "environment_name",
    "format_duration",
    "format_size",
    "is_memory_sqlite",
    "mask_url",
    "parse_duration",
    "parse_queues",
    "parse_size",
    "unknown_variables",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective setting as `config show` prints it: `value` is plain (text, number, list) and masked."""

    name: str
    value: object
    origin: Origin


class ConfigValues(TypedDict, total=False):
    """What `Config(...)` takes: each setting as its own type or in any form that the file allows."""

    database_url: str | URL | None
    queues: QueueSpec | None
    prune_after: timedelta | str | None
    shutdown_grace: timedelta | str
    unknown_worker_grace: timedelta | str | int | None
    dead_after: timedelta | str
    table_prefix: str
    schema: str | None
    imports: Iterable[str]
    app: str | None
    disable: Iterable[str]
    notify: Literal["after_commit", "in_statement", "off"]
    arm: Literal["auto", "portable"]
    sqlite_synchronous: Literal["full", "extra", "normal", "off"]
    postgres_prepare: Literal["auto", "on", "off"]
    redaction: RedactionRules | Mapping[str, object] | Literal["off"]
    process: ProcessConfig | Mapping[str, object]
    replace: Mapping[str, str]
    plugins: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True, init=False)
class Config:
    """The settings of one app.

    `Config(...)` reads neither file nor environment; `Config.load()` reads both. Durations are timedeltas,
    None where switched off. Raises ConfigError, which names the value, what was expected, and where it was.
    """

    database_url: str = field(repr=False)
    queues: Mapping[str, QueueConfig]
    prune_after: timedelta | None
    shutdown_grace: timedelta
    unknown_worker_grace: timedelta | None
    dead_after: timedelta
    table_prefix: str
    schema: str | None
    imports: tuple[str, ...]
    app: str | None
    disable: tuple[str, ...]
    notify: Literal["after_commit", "in_statement", "off"]
    arm: Literal["auto", "portable"]
    sqlite_synchronous: Literal["full", "extra", "normal", "off"]
    postgres_prepare: Literal["auto", "on", "off"]
    redaction: RedactionRules
    process: ProcessConfig
    replace: Mapping[str, str]
    plugins: Mapping[str, Mapping[str, object]] = field(repr=False)
    file: Path | None = field(compare=False)
    _origins: Mapping[str, Origin] = field(repr=False, compare=False)

    def __init__(self, **values: Unpack[ConfigValues]) -> None:
        _fill(self, named_layer(values, "constructor"), None)

    @classmethod
    def load(
        cls,
        *,
        file: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, object] | None = None,
        command_line: Mapping[str, object] | None = None,
        search_from: Path | None = None,
    ) -> Config:
        """Return the configuration of this process.

        `file` (or JOBKIT_CONFIG) names a jobkit.toml or pyproject.toml; without it, the nearest one in
        `search_from` (the working directory) or above is used, if there is any. `overrides` are keywords and
        `command_line` options, by setting name. Raises ConfigError.
        """
        variables = os.environ if environ is None else environ
        path = _path(file or variables.get(CONFIG_VARIABLE, "").strip() or None, search_from)
        from_file = file_layer(path) if path else {}
        named = named_layer(overrides or {}, "constructor") | named_layer(command_line or {}, "command line")
        plugins = {key[1] for key in from_file | named if key[0] in ("plugins", "replace")}
        config: Config = object.__new__(cls)
        _fill(config, from_file | environment_layer(variables, plugins) | named, path)
        return config

    def origin(self, name: str) -> Origin:
        """Return where the setting `name` (dotted: `process.children`, `plugins.pruner.batch`) came from."""
        if name in self._origins or name in SETTINGS or name.startswith(("plugins.", "replace.")):
            return self._origins.get(name, DEFAULT)
        raise ConfigError(f"there is no setting {name!r}{nearest(name, SETTINGS)}")

    @overload
    def plugin(self, name: str, settings_type: type[T]) -> T: ...
    @overload
    def plugin(self, name: str, settings_type: None = None) -> Mapping[str, object]: ...
    def plugin(self, name: str, settings_type: type[T] | None = None) -> T | Mapping[str, object]:
        """Return `[plugins.NAME]` as a plugin's settings, a dataclass or msgspec.Struct.

        Without a type: the values as they were found. Raises ConfigError, which names file and key.
        """
        values = self.plugins.get(name, {})
        if settings_type is None:
            return values
        return decode_settings(name, settings_type, values, lambda key: self.origin(f"plugins.{name}.{key}"))

    def unknown_plugins(self, known: Iterable[str]) -> list[str]:
        """Return a line for each name in `plugins`, `replace` and `disable` that no plugin in `known` has."""
        names = sorted(known)
        found = [(f"plugins.{name}", name) for name in self.plugins]
        found += [(f"replace.{name}", name) for name in self.replace]
        found += [("disable", name) for name in self.disable]
        return [
            f"{self._place(key)}: there is no plugin {name!r}{nearest(name, names)}"
            for key, name in found
            if name not in names
        ]

    def _place(self, key: str) -> Origin:
        inside = (
            origin for name, origin in self._origins.items() if name == key or name.startswith(f"{key}.")
        )
        return next(inside, DEFAULT)

    def describe(self) -> list[Setting]:
        """Return every effective setting with its origin, in a fixed order, passwords masked."""
        settings = [
            Setting(name, spec.display(_value(self, name)), self.origin(name))
            for name, spec in SETTINGS.items()
        ]
        for name, distribution in sorted(self.replace.items()):
            settings.append(Setting(f"replace.{name}", distribution, self.origin(f"replace.{name}")))
        for name, table in sorted(self.plugins.items()):
            for key, value in sorted(table.items()):
                full = f"plugins.{name}.{key}"
                settings.append(Setting(full, mask_setting(key, _plain(value)), self.origin(full)))
        return settings

    def to_plain(self) -> dict[str, object]:
        """Return the settings as nested TOML and JSON types; `Config.from_plain` makes an equal Config.

        The database's password is in it: this is for handing a configuration to a child process.
        """
        plain: dict[str, object] = {}
        for name, spec in SETTINGS.items():
            group, _, member = name.rpartition(".")
            table = plain.setdefault(group, {}) if group else plain
            if isinstance(table, dict):
                table[member] = spec.plain(_value(self, name))
        plain["replace"] = dict(self.replace)
        plain["plugins"] = {name: _plain(table) for name, table in self.plugins.items()}
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, object]) -> Config:
        """Return the Config that `to_plain` described. Raises ConfigError."""
        config: Config = object.__new__(cls)
        _fill(config, named_layer(plain, "constructor"), None)
        return config

    def override(self, **values: Unpack[ConfigValues]) -> Config:
        """Return a copy with other values for some settings; the rest keep origins. Raises ConfigError."""
        kept: Layer = {}
        for key, found in named_layer(self.to_plain(), "constructor").items():
            if (origin := self.origin(".".join(key))) is not DEFAULT:
                kept[key] = Found(found.value, origin)
        config: Config = object.__new__(type(self))
        _fill(config, kept | named_layer(values, "constructor"), self.file)
        return config


def _path(file: str | Path | None, search_from: Path | None) -> Path | None:
    if file is not None:
        return Path(file).absolute()
    return find_file((search_from or Path.cwd()).absolute())


# ---------------------------------------------------------------- from layers to values


def _fill(config: Config, layer: Layer, file: Path | None) -> None:
    values = {name: spec.default for name, spec in SETTINGS.items()}
    for key, found in layer.items():
        name = ".".join(key)
        if name in SETTINGS:
            values[name] = _located(found, SETTINGS[name].parse)
    groups = {
        "redaction": RedactionRules(**_members(values, "redaction")),
        "process": ProcessConfig(**_members(values, "process")),
    }
    plain = {name: value for name, value in values.items() if "." not in name}
    plain["queues"] = MappingProxyType(cast("dict[str, QueueConfig]", plain["queues"]))
    origins = {".".join(key): found.origin for key, found in layer.items()}
    for name, value in {**plain, **groups, **_open_tables(layer), "file": file, "_origins": origins}.items():
        object.__setattr__(config, name, value)


def _members(values: Mapping[str, object], group: str) -> dict[str, Any]:
    return {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{group}.")}


def _open_tables(layer: Layer) -> dict[str, Mapping[str, object]]:
    replace: dict[str, object] = {}
    plugins: dict[str, dict[str, object]] = {}
    for key, found in layer.items():
        if key[0] in ("replace", "plugins"):
            _located(Found(key[1], found.origin), lambda name: check_name(name, "plugin", ConfigError))
        if key[0] == "replace":
            replace[key[1]] = _located(found, _distribution)
        elif key[0] == "plugins":
            plugins.setdefault(key[1], {})[key[2]] = found.value
    return {
        "replace": MappingProxyType(replace),
        "plugins": MappingProxyType({name: MappingProxyType(table) for name, table in plugins.items()}),
    }


def _distribution(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ConfigError(f"found {show(value)}, expected the name of a distribution")


def _located(found: Found, parse: Callable[[object], T]) -> T:
    try:
        return parse(found.value)
    except ConfigError as error:
        raise ConfigError(f"{found.origin}: {error}") from None


def _value(config: Config, name: str) -> object:
    value: object = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
