"""The canonical form of args, of which uniqueness keys are made.

Invariant: equal values have one form in every process, host and Python version, and values that differ have
forms that differ. So dict keys and sets are sorted, lists keep their order, datetimes become instants,
decimals lose the zeros that carry no value. Changing anything here changes every stored key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Final

import msgspec

__all__ = ["canonical", "canonical_bytes", "instant"]

_ENCODER: Final = msgspec.json.Encoder(order="sorted", decimal_format="string")
_EXACT: Final = frozenset({str, int, bool, type(None)})
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST: Final = datetime(1, 1, 1)  # noqa: DTZ001 - offsets are taken off by hand, which cannot overflow


def canonical_bytes(value: object) -> bytes:
    """The canonical form of `value` as JSON. Raises what msgspec raises for a value that has none."""
    return _ENCODER.encode(canonical(value))


def canonical(value: object) -> object:
    """`value` in JSON's own types, canonical."""
    kind = type(value)
    if kind in _EXACT:
        return value
    known = _FORMS.get(kind)
    if known is not None:
        return known(value)
    return _by_protocol(value)


def _by_protocol(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: canonical(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return _struct(value)
    for base, form in _FORMS.items():
        if isinstance(value, base):
            return form(value)
    return msgspec.to_builtins(value)


def _struct(value: msgspec.Struct) -> object:
    names = type(value).__struct_fields__
    fields = {name: canonical(getattr(value, name)) for name in names}
    # Two classes of a tagged union may have the same fields: the tag tells them apart.
    tag = type(value).__struct_config__.tag
    return fields if tag is None else [tag, fields]


def _dict(value: Mapping[object, object]) -> object:
    # Keys as msgspec writes them, so that {1: x} and {"1": x}, one JSON object, have one form.
    return {_key(key): canonical(item) for key, item in value.items()}


def _key(key: object) -> str:
    form = canonical(key)
    return form if isinstance(form, str) else _ENCODER.encode(form).decode()


def _list(value: object) -> object:
    return [canonical(item) for item in value]  # type: ignore[attr-defined]


def _set(value: object) -> object:
    return sorted((canonical(item) for item in value), key=_ENCODER.encode)  # type: ignore[attr-defined]


def _float(value: float) -> float:
    return value + 0.0  # -0.0 equals 0.0


def _decimal(value: Decimal) -> str:
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    if not isinstance(exponent, int) or not text:
        return "0" if value == 0 else str(value)
    short = text.rstrip("0")
    return f"{'-' * sign}{short}e{exponent + len(text) - len(short)}"


def _datetime(value: datetime) -> str:
    return value.isoformat() if value.utcoffset() is None else f"@{instant(value)}"


def _time(value: time) -> str:
    offset = value.utcoffset()
    if offset is None:
        return value.isoformat()
    since = datetime.combine(_FIRST, value.replace(tzinfo=None)) - _FIRST
    return f"@{(since - offset) // _MICROSECOND}"


def instant(value: datetime) -> int:
    """The instant of an aware datetime: microseconds since 0001-01-01 UTC; never overflows."""
    offset = value.utcoffset() or timedelta(0)
    return (value.replace(tzinfo=None) - _FIRST - offset) // _MICROSECOND


_FORMS: Final[dict[type, Callable[..., object]]] = {
    dict: _dict,
    list: _list,
    tuple: _list,
    set: _set,
    frozenset: _set,
    float: _float,
    datetime: _datetime,
    time: _time,
    Decimal: _decimal,
}
