"""Where settings come from: a file, the environment, keywords, options; each read into a flat layer.

Invariant: a layer's values are as they were found, not yet validated, and each carries its origin. Names that
no setting has are refused here (files, keywords, options), with the nearest name that exists.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from jobkit._settings import SETTINGS, Origin, OriginKind, closest, environment_name, nearest
from jobkit._values import show
from jobkit.errors import ConfigError

__all__ = [
    "Found",
    "Key",
    "Layer",
    "environment_layer",
    "file_layer",
    "find_file",
    "named_layer",
    "unknown_variables",
]

Key: TypeAlias = tuple[str, ...]
"""A dotted name in parts: `("queues",)`, `("process", "children")`, `("plugins", "pruner", "batch")`."""


@dataclass(frozen=True, slots=True)
class Found:
    """A raw value and where it was found."""

    value: object
    origin: Origin


Layer: TypeAlias = dict[Key, Found]
Locate: TypeAlias = Callable[[Key], Origin]

CONFIG_VARIABLE: Final = "JOBKIT_CONFIG"
_FILE: Final = "jobkit.toml"
_PYPROJECT: Final = "pyproject.toml"
_OPEN: Final = ("replace", "plugins")
_GROUPS: Final = frozenset(name.partition(".")[0] for name in SETTINGS if "." in name)
_PARAMETERS: Final = {spec.parameter: spec.name for spec in SETTINGS.values()}


# ---------------------------------------------------------------- from nested values to a flat layer


def _flatten(tree: Mapping[str, object], locate: Locate) -> Layer:
    layer: Layer = {}
    for name, value in tree.items():
        layer |= _branch(str(name), value, locate)
    return layer


def _branch(name: str, value: object, locate: Locate) -> Layer:
    if name in SETTINGS or name in _PARAMETERS:
        key = tuple(_PARAMETERS.get(name, name).split("."))
        return {key: Found(value, locate(key))}
    if name == "plugins":
        return _plugin_tables(value, locate)
    if name == "replace":
        return {key: Found(item, locate(key)) for key, item in _items(name, value, locate)}
    if name in _GROUPS:
        return _group(name, value, locate)
    top_level = [known for known in SETTINGS if "." not in known]
    raise _unknown((name,), (*top_level, *_GROUPS, *_OPEN), locate)


def _group(name: str, value: object, locate: Locate) -> Layer:
    if name == "redaction" and isinstance(value, str) and value.strip().lower() == "off":
        return {("redaction", "off"): Found(True, locate((name,)))}
    members = [known.partition(".")[2] for known in SETTINGS if known.startswith(f"{name}.")]
    if all(hasattr(value, member) for member in members):  # RedactionRules, ProcessConfig
        value = {member: getattr(value, member) for member in members}
    layer: Layer = {}
    for key, item in _items(name, value, locate):
        if key[1] not in members:
            raise _unknown(key, members, locate)
        layer[key] = Found(item, locate(key))
    return layer


def _plugin_tables(value: object, locate: Locate) -> Layer:
    layer: Layer = {}
    for (_, plugin), table in _items("plugins", value, locate):
        if not isinstance(table, Mapping):
            raise ConfigError(
                f"{locate(('plugins', plugin))}: found {show(table)}, expected a table of settings"
            )
        for setting, item in table.items():
            key = ("plugins", plugin, str(setting))
            layer[key] = Found(item, locate(key))
    return layer


def _items(name: str, value: object, locate: Locate) -> Iterable[tuple[Key, object]]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{locate((name,))}: found {show(value)}, expected a table")
    return [((name, str(key)), item) for key, item in value.items()]


def _unknown(key: Key, known: Iterable[str], locate: Locate) -> ConfigError:
    return ConfigError(f"{locate(key)}: there is no setting {'.'.join(key)!r}{nearest(key[-1], known)}")


# ---------------------------------------------------------------- keywords and options


def named_layer(values: Mapping[str, object], kind: OriginKind) -> Layer:
    """Return the layer of keywords or options by setting name (`process.children` or `process_children`).

    What was left out is no value: None (for keywords only where the setting has no None of its own), and for
    options an empty list.
    """

    def locate(key: Key) -> Origin:
        spec = SETTINGS.get(".".join(key))
        if kind == "command line":
            return Origin(kind, spec.option if spec else "--" + "-".join(key).replace("_", "-"))
        return Origin(kind, ".".join(key))

    options = kind == "command line"
    return {
        key: found for key, found in _flatten(values, locate).items() if _given(key, found.value, options)
    }


def _given(key: Key, value: object, options: bool) -> bool:
    spec = SETTINGS.get(".".join(key))
    if spec is None:
        return value is not None or key[0] == "plugins"
    if options:
        return value is not None and not (spec.repeatable and value in ((), []))
    return value is not None or spec.nullable


# ---------------------------------------------------------------- the environment


def environment_layer(environ: Mapping[str, str], plugins: Collection[str]) -> Layer:
    """Return the layer of the `JOBKIT_*` variables; an empty variable is unset.

    `JOBKIT_PLUGINS_PRUNER_BATCH` belongs to the plugin of `plugins` whose name it starts with (the
    longest), else to the plugin named by its first word.
    """
    layer: Layer = {}
    for spec in SETTINGS.values():
        if (value := environ.get(spec.env, "")).strip():
            layer[tuple(spec.name.split("."))] = Found(value, Origin("environment", spec.env))
    if environ.get("JOBKIT_REDACTION", "").strip():
        layer |= _group("redaction", environ["JOBKIT_REDACTION"], lambda key: _variable("JOBKIT_REDACTION"))
    for variable, value in sorted(environ.items()):
        if (key := _open_key(variable, plugins)) and value.strip():
            layer[key] = Found(value, _variable(variable))
    return layer


def _variable(name: str) -> Origin:
    return Origin("environment", name)


def _open_key(variable: str, plugins: Collection[str]) -> Key | None:
    if (rest := variable.removeprefix("JOBKIT_REPLACE_")) not in (variable, ""):
        return ("replace", _plugin_named(rest, plugins) or rest.lower())
    rest = variable.removeprefix("JOBKIT_PLUGINS_")
    if rest in (variable, ""):
        return None
    owners = [plugin for plugin in plugins if rest.startswith(_word(plugin) + "_")]
    plugin = max(owners, key=len) if owners else rest.partition("_")[0].lower()
    setting = rest[len(plugin) + 1 :].lower()
    return ("plugins", plugin, setting) if setting else None


def _word(plugin: str) -> str:
    return environment_name(plugin).removeprefix("JOBKIT_")


def _plugin_named(word: str, plugins: Collection[str]) -> str | None:
    return next((plugin for plugin in sorted(plugins) if _word(plugin) == word), None)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a line for each `JOBKIT_*` variable that is not read but whose name is close to one that is."""
    read = {spec.env for spec in SETTINGS.values()} | {CONFIG_VARIABLE, "JOBKIT_REDACTION"}
    words = [name.removeprefix("JOBKIT_") for name in read]  # the common prefix would make all names similar
    unread = [name for name in sorted(environ) if name.startswith("JOBKIT_") and name not in read]
    hints = {name: closest(name.removeprefix("JOBKIT_"), words) for name in unread if not _open_key(name, ())}
    found = [(name, hint) for name, hint in hints.items() if hint]
    return [f"nothing reads the variable {name}; did you mean JOBKIT_{hint}?" for name, hint in found]


# ---------------------------------------------------------------- the file


def find_file(start: Path) -> Path | None:
    """Return the nearest `jobkit.toml`, or `pyproject.toml` with `[tool.jobkit]`, in `start` or above it."""
    for folder in (start, *start.parents):
        if os.path.isfile(path := folder / _FILE):
            return path
        if os.path.isfile(path := folder / _PYPROJECT) and _has_table(path):
            return path
    return None


def _has_table(path: Path) -> bool:
    # Another tool's broken or unreadable pyproject.toml somewhere above is no business of ours.
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return "jobkit" in text and _table(path, _parse(path, text)) is not None


def file_layer(path: Path) -> Layer:
    """Return the layer of a file: `[tool.jobkit]` of a pyproject.toml, else the whole file.

    A relative SQLite path means: relative to the file. Raises ConfigError.
    """
    tree = _table(path, _parse(path, _read(path)))
    if tree is None:
        raise ConfigError(f"{path} has no table [tool.jobkit]")
    label = path.name if path.parent == Path.cwd() else str(path)
    prefix = ("tool", "jobkit") if path.name == _PYPROJECT else ()

    def locate(key: Key) -> Origin:
        table = ".".join((*prefix, *key[:-1]))
        return Origin("file", f"{label} [{table}] {key[-1]}" if table else f"{label} {key[-1]}")

    layer = _flatten(tree, locate)
    if found := layer.get(("database_url",)):
        layer[("database_url",)] = Found(_anchored(found.value, path.parent), found.origin)
    return layer


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _parse(path: Path, text: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # TOMLDecodeError is a ValueError, an endless number another
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _table(path: Path, tree: Mapping[str, object]) -> Mapping[str, object] | None:
    if path.name != _PYPROJECT:
        return tree
    tool = tree.get("tool")
    table = tool.get("jobkit") if isinstance(tool, Mapping) else None
    return table if isinstance(table, Mapping) else None


def _anchored(url: object, folder: Path) -> object:
    # Found from a subfolder, the file must not lead to a second, empty database beside the real one.
    if not isinstance(url, str) or folder == Path.cwd():
        return url
    scheme, mark, rest = url.partition(":///")
    path, question, query = rest.partition("?")
    relative = mark and scheme.startswith("sqlite") and path and not path.startswith(("/", ":", "file:"))
    if not relative or os.path.isabs(path):
        return url
    return f"{scheme}:///{folder / path}{question}{query}"
