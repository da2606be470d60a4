"""How a `[plugins.NAME]` table becomes the plugin's settings struct.

Invariant: whatever is wrong with a value is a `ConfigError` that names the key and where the value came from;
a plugin never sees a value of a wrong type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from jobkit._settings import Origin, nearest
from jobkit._urls import mask_setting
from jobkit._values import is_never, parse_bool, parse_duration, parse_list, show
from jobkit.errors import ConfigError

__all__ = ["decode_settings"]

T = TypeVar("T")
_COLLECTIONS = (list, tuple, set, frozenset)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    key: str
    type: object
    required: bool


def decode_settings(
    plugin: str, settings_type: type[T], values: Mapping[str, object], origin: Callable[[str], Origin]
) -> T:
    """Return a `settings_type` (a dataclass or msgspec.Struct) of the values; `origin(key)` locates each.

    Text is understood as durations, switches, numbers and lists where the field's type asks for them, so that
    every value can come from the environment. Raises ConfigError.
    """
    fields = {field.key: field for field in _fields(settings_type)}
    for key in values:
        if key not in fields:
            raise ConfigError(
                f"{origin(key)}: the plugin {plugin!r} has no setting {key!r}{nearest(key, fields)}"
            )
    found = {fields[key].name: _decode(fields[key], value, origin(key)) for key, value in values.items()}
    if missing := [field.key for field in fields.values() if field.required and field.name not in found]:
        raise ConfigError(f"[plugins.{plugin}] lacks the setting {missing[0]!r}, which has no default")
    try:
        return settings_type(**found)
    except (ValueError, TypeError, ConfigError) as error:  # the struct's own checks
        raise ConfigError(f"[plugins.{plugin}] ({_places(values, origin)}): {error}") from error


def _places(values: Mapping[str, object], origin: Callable[[str], Origin]) -> str:
    return ", ".join(str(origin(key)) for key in values) or "default"


def _fields(settings_type: type[object]) -> Iterator[_Field]:
    hints = get_type_hints(settings_type, include_extras=True)
    if isinstance(settings_type, type) and issubclass(settings_type, msgspec.Struct):
        for info in msgspec.structs.fields(settings_type):
            yield _Field(info.name, info.encode_name, hints[info.name], info.required)
    elif dataclasses.is_dataclass(settings_type):
        for field in dataclasses.fields(settings_type):
            if field.init:
                missing = (
                    field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
                )
                yield _Field(field.name, field.name, hints[field.name], missing)
    else:
        raise ConfigError(f"the settings {settings_type!r} are neither a dataclass nor a msgspec.Struct")


def _decode(field: _Field, value: object, origin: Origin) -> object:
    try:
        return msgspec.convert(_prepared(value, field.type), field.type, strict=False)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    except msgspec.ValidationError as error:
        reason = str(error)[:1].lower() + str(error)[1:]
        raise ConfigError(f"{origin}: found {show(mask_setting(field.key, value))}, {reason}") from None


def _prepared(value: object, hint: object) -> object:
    """Return the value in a form that msgspec converts to `hint`; what it cannot help with stays as it is."""
    kinds = _kinds(hint)
    if NoneType in kinds and not {str, bool} & set(kinds) and is_never(value):
        return None
    if timedelta in kinds and (value is not None or NoneType not in kinds):
        return parse_duration(value)
    if not isinstance(value, str) or str in kinds:
        return value
    if bool in kinds:
        return parse_bool(value)
    if any(get_origin(kind) in _COLLECTIONS or kind in _COLLECTIONS for kind in kinds):
        return parse_list(str)(value)
    return Path(value) if Path in kinds else value.strip()


def _kinds(hint: object) -> tuple[object, ...]:
    if get_origin(hint) is Annotated:
        return _kinds(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(kind for part in get_args(hint) for kind in _kinds(part))
    return (hint,)
