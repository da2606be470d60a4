"""One worker's args to JSON text and back.

Invariant: `decode(encode(x)) == x` for every x that `encode` lets pass, on both databases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import msgspec
import msgspec.inspect as mi

from jobkit._encoding import MAX_DEPTH, check_text, encode_json, encoded, same, survives
from jobkit.errors import ArgsError, WorkerDefinitionError

__all__ = ["MAX_ARGS_BYTES", "Codec"]

MAX_ARGS_BYTES: Final = 256 * 1024

T = TypeVar("T")


class Codec(Generic[T]):
    """Encodes, decodes and validates the args of `cls`, a dataclass with resolved annotations.

    Raises NameError if a nested class refers to a name that does not exist yet, WorkerDefinitionError for a
    type that cannot be an arg; the text names `place`.
    """

    __slots__ = ("_decode", "_floats", "_loose", "_name")

    def __init__(self, cls: type[T], name: str, place: str) -> None:
        self._name = name
        self._loose, self._floats = _inspected(cls, place)
        self._decode = msgspec.json.Decoder(cls).decode

    def encode(self, value: T) -> str:
        """The args as compact JSON. Raises ArgsError for args that would come back different."""
        try:
            raw = encode_json(value)
            if self._harmless(raw) and self._decode(raw) == value:
                return raw.decode()
        except Exception:  # noqa: BLE001 - whatever it was, the careful way finds the words for it
            pass
        return self._encode_carefully(value)

    def _harmless(self, raw: bytes) -> bool:
        """True if equality with what reads back is all that is left to check."""
        return (
            not self._loose
            and len(raw) <= MAX_ARGS_BYTES
            and b"\\u0000" not in raw
            and not (self._floats and b"null" in raw)
            and (len(raw) < 2 * MAX_DEPTH or raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH)
        )

    def _encode_carefully(self, value: T) -> str:
        raw = encoded(value, self._name)
        check_text(raw, value, self._name, MAX_ARGS_BYTES)
        back = self._read(raw, "refused")
        if (self._loose or back != value) and not self._survives(value, back, raw):
            raise ArgsError(f"{self._name}: {_lost(value, back)}")
        return raw.decode()

    def decode(self, text: str | bytes) -> T:
        """The args that `text` holds: missing ones take their defaults, unknown ones are ignored.

        Raises ArgsError.
        """
        return self._read(text, "do not decode")

    def _survives(self, value: T, back: T, raw: bytes) -> bool:
        return survives(value, back, raw, self._decode) if self._loose else same(value, back)

    def _read(self, text: str | bytes, verdict: str) -> T:
        try:
            return self._decode(text)
        except msgspec.DecodeError as error:
            raise ArgsError(f"{self._name}: args {verdict}: {error}") from error
        except Exception as error:  # a __post_init__ may raise anything
            raise ArgsError(f"{self._name}: args {verdict}: {type(error).__name__}: {error}") from error


def _lost(value: Any, back: Any) -> str:
    for field in dataclasses.fields(value):
        old, new = getattr(value, field.name), getattr(back, field.name)
        if type(old) is not type(new):
            return f"arg {field.name!r}: {type(old).__name__} comes back from JSON as {type(new).__name__}"
        if isinstance(old, datetime) and not same(old, new):
            return f"arg {field.name!r}: its offset from UTC has no form in JSON; convert it to UTC"
        if not same(old, new, strict=True):
            return f"arg {field.name!r} does not survive JSON; declare the types of what it holds"
    return "args do not survive JSON; large floats need a field of type float"


def _inspected(cls: type, place: str) -> tuple[bool, bool]:
    """Whether any part is declared so loosely that only its values tell its types; whether any may be a
    float.
    """
    try:
        parts = [*_parts(mi.type_info(cls), set())]
    except NameError:
        raise
    except Exception as error:
        raise WorkerDefinitionError(f"{place}: args need types with a JSON form: {error}") from error
    loose = [part for part in parts if _is_loose(part)]
    for part in parts:
        if part not in loose:
            _check_part(part, place)
    return bool(loose), any(isinstance(part, mi.FloatType) for part in parts)


def _is_loose(part: mi.Type) -> bool:
    if isinstance(
        part, mi.UnionType
    ):  # jsonb makes ints of large floats, which only a plain float field undoes
        return {mi.IntType, mi.FloatType} <= set(map(type, part.types))
    return isinstance(part, mi.AnyType | mi.RawType) or getattr(part, "cls", None) is object


def _check_part(part: mi.Type, place: str) -> None:
    if isinstance(part, mi.CustomType):
        raise WorkerDefinitionError(
            f"{place}: {part.cls!r} has no JSON form, so it cannot be part of the args"
        )
    inner = getattr(part, "cls", None)
    if isinstance(part, mi.DataclassType | mi.StructType) and not _has_equality(inner):
        raise WorkerDefinitionError(f"{place}: {inner!r} needs equality (eq=True) to be part of the args")


def _has_equality(cls: Any) -> bool:
    config = getattr(cls, "__struct_config__", None)
    return bool(config.eq) if config is not None else cls.__eq__ is not object.__eq__


def _parts(part: object, seen: set[int]) -> Iterator[mi.Type]:
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, mi.Type):
        yield part
    if isinstance(part, tuple):
        children: list[object] = list(part)
    elif isinstance(part, mi.Type | mi.Field):
        children = [getattr(part, name) for name in part.__struct_fields__]
    else:
        children = []
    for child in children:
        yield from _parts(child, seen)
