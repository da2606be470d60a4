"""Values to JSON text and back, refusing what would come back different.

Invariant: text that leaves here reads back as equal values of the same types, from SQLite's text as well as
from Postgres's jsonb; everything else is an ArgsError before any row exists.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from jobkit._canonical import instant
from jobkit.errors import ArgsError

__all__ = ["MAX_DEPTH", "check_text", "checked_object", "encode_json", "encoded", "same", "survives"]

MAX_DEPTH: Final = 100
"""Deepest nesting of lists and objects; both databases take more, every reader of args copes with this."""

_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_EXPONENT: Final = re.compile(rb"\de")
_ATOMS: Final = frozenset({str, int, bool, float, type(None)})
_BIG_FLOAT: Final = 1e16
encode_json: Final = msgspec.json.Encoder(decimal_format="string").encode
_DECODE: Final = msgspec.json.Decoder().decode


def encoded(value: object, what: str) -> bytes:
    """`value` as JSON. Raises ArgsError, its text begun with `what`, if msgspec cannot write it."""
    try:
        return encode_json(value)
    except RecursionError:
        raise ArgsError(f"{what}: nested too deeply, or refers to itself") from None
    except UnicodeEncodeError:
        raise ArgsError(f"{what}: text with a lone surrogate is no text that a database can hold") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgsError(f"{what}: has no JSON form: {error}") from None


def check_text(raw: bytes, value: object, what: str, limit: int) -> None:
    """Refuse JSON that a database would change or choke on; `raw` is that of `value`, `limit` in bytes."""
    if len(raw) > limit:
        raise ArgsError(
            f"{what}: {len(raw)} bytes of JSON, {limit} are allowed; store it and pass a reference"
        )
    if b"\\u0000" in raw and _NUL.search(raw):
        raise ArgsError(f"{what}: holds a NUL character, which Postgres cannot store")
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _depth(raw) > MAX_DEPTH:
        raise ArgsError(f"{what}: nested too deeply, {MAX_DEPTH} levels are allowed")
    # msgspec writes NaN and the infinities as null, so the slow walk is rare.
    if b"null" in raw and _has_nonfinite(msgspec.to_builtins(value, str_keys=True)):
        raise ArgsError(f"{what}: NaN and infinities have no JSON form")


def checked_object(value: object, what: str, limit: int) -> dict[str, object]:
    """A deep copy of a mapping of JSON values. Raises ArgsError for what does not survive."""
    if not isinstance(value, Mapping):
        raise ArgsError(f"{what}: a mapping is expected, not {type(value).__name__}")
    plain = dict(value)
    raw = encoded(plain, what)
    check_text(raw, plain, what, limit)
    copy: dict[str, object] = _DECODE(raw)
    if not survives(plain, copy, raw, _DECODE):
        raise ArgsError(f"{what}: only JSON's own types survive (text keys; no tuples, sets, dates, objects)")
    return copy


def survives(value: object, back: object, raw: bytes, decode: Callable[[bytes], object]) -> bool:
    """True if `back`, decoded from `raw`, is `value` in every part, types included, on Postgres too."""
    if not same(value, back, strict=True):
        return False
    if not _EXPONENT.search(raw):
        return True
    jsonb = _as_jsonb(_DECODE(raw))
    return jsonb is None or same(value, decode(encode_json(jsonb)), strict=True)


def same(a: Any, b: Any, *, strict: bool = False) -> bool:
    """Equality part by part. Aware datetimes are equal when their instants are, also in a repeated hour.

    strict: types must agree as well, but for an int where a float came back.
    """
    if type(a) in _ATOMS:
        return bool(a == b) and (not strict or type(a) is type(b) or type(b) is float)
    if strict and type(a) is not type(b):
        return isinstance(a, datetime) and isinstance(b, datetime) and _same_moment(a, b)
    for kind, compare in _BY_PARTS.items():
        if isinstance(a, kind) and isinstance(b, kind):
            return compare(a, b, strict)
    names = _fields(a) if type(a) is type(b) else ()
    if names:
        return all(same(getattr(a, name), getattr(b, name), strict=strict) for name in names)
    return bool(a == b)


def _same_dict(a: dict[object, object], b: dict[object, object], strict: bool) -> bool:
    # Keys keep their order in text, so their types may be compared side by side.
    if strict and [*map(type, a)] != [*map(type, b)]:
        return False
    return a.keys() == b.keys() and all(same(item, b[key], strict=strict) for key, item in a.items())


def _same_list(a: Sequence[object], b: Sequence[object], strict: bool) -> bool:
    pairs = zip(a, b, strict=False)
    return type(a) is type(b) and len(a) == len(b) and all(same(x, y, strict=strict) for x, y in pairs)


def _same_set(a: Iterable[object], b: Iterable[object], strict: bool) -> bool:
    return {_moment(x) for x in a} == {_moment(y) for y in b}


def _same_moment(a: datetime, b: datetime, strict: bool = False) -> bool:
    return (a.utcoffset() is None) == (b.utcoffset() is None) and _moment(a) == _moment(b)


def _moment(value: object) -> object:
    return instant(value) if isinstance(value, datetime) and value.utcoffset() is not None else value


_BY_PARTS: Final[dict[type, Callable[[Any, Any, bool], bool]]] = {
    dict: _same_dict,
    list: _same_list,
    tuple: _same_list,
    set: _same_set,
    frozenset: _same_set,
    datetime: _same_moment,
}


def _fields(value: object) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return type(value).__struct_fields__
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return ()


def _as_jsonb(value: Any) -> Any:
    """What jsonb makes of a JSON value: large floats become ints. None if it changes nothing."""
    changed = False

    def walk(item: Any) -> Any:
        nonlocal changed
        if isinstance(item, float) and abs(item) >= _BIG_FLOAT:
            changed = True
            return _digits(item)
        if isinstance(item, dict):
            return {key: walk(part) for key, part in item.items()}
        return [walk(part) for part in item] if isinstance(item, list) else item

    result = walk(value)
    return result if changed else None


def _digits(value: float) -> int:
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = fraction if fraction != "0" else ""
    zeros = int(exponent or 0) - len(fraction)
    return int(whole + fraction + "0" * zeros)


def _has_nonfinite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_nonfinite, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_nonfinite, value))


def _depth(raw: bytes) -> int:
    deepest = depth = 0
    for char in _STRING.sub(b"", raw):
        if char in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in b"]}":
            depth -= 1
    return deepest
