"""What commands print, as data: each output has a name, a version, and fields that say how to get and show them.

One table of fields gives the JSON document, its JSON Schema, the columns of tables and of tab-separated output.
Invariant: a field is never renamed nor changes its type within one version of its shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

__all__ = ["Field", "Kind", "Shape", "plain"]

Kind: TypeAlias = Literal[
    "integer", "number", "string", "boolean", "time", "seconds", "count", "list", "object", "any"
]

_TYPES: Final[dict[Kind, dict[str, object]]] = {
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "seconds": {"type": "number", "description": "seconds"},
    "count": {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "precision": {"enum": ["exact", "at_least", "estimate"]},
        },
        "required": ["value", "precision"],
    },
    "list": {"type": "array"},
    "object": {"type": "object"},
    "any": {},
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a shape.

    - `get`: from an item to its value; left out, the attribute (or key) of the field's name.
    - `column`: the title in tables; None keeps it out of tables unless it is asked for by name.
    - `nullable`: whether JSON may have null there.
    """

    name: str
    kind: Kind = "string"
    get: Callable[[Any], object] | None = None
    help: str = ""
    column: str | None = None
    nullable: bool = False
    style: Callable[[Any], str] | None = None
    show: Callable[[Any], str] | None = None
    """The text of a table's cell, where it is not simply the value."""
    whole: bool = False
    """Never cut in a table, because a part would say something else."""

    def value(self, item: object) -> object:
        """The item's value of this field, as Python has it."""
        if self.get is not None:
            return self.get(item)
        return item.get(self.name) if isinstance(item, Mapping) else attrgetter(self.name)(item)

    @property
    def schema(self) -> dict[str, object]:
        """This field in a JSON Schema."""
        found = dict(_TYPES[self.kind])
        if self.nullable and "type" in found:
            found["type"] = [found["type"], "null"]
        if self.help:
            found["description"] = (
                f"{self.help} ({found['description']})" if "description" in found else self.help
            )
        return found


@dataclass(frozen=True, slots=True)
class Shape:
    """One output: `jobkit.<name>/<version>`. Lists hold their items below `items`, others are one object."""

    name: str
    fields: tuple[Field, ...]
    version: int = 1
    listing: bool = True
    title: str = ""
    extra: tuple[Field, ...] = ()
    """Fields beside `items`: `next` and the like."""

    @property
    def id(self) -> str:
        """What stands under `schema` in each document."""
        return f"jobkit.{self.name}/{self.version}"

    def field(self, name: str) -> Field | None:
        """The field of that name."""
        return next((field for field in self.fields if field.name == name), None)

    def pick(self, names: Sequence[str]) -> tuple[Field, ...]:
        """The fields of these names, in that order; raises LookupError with the wrong name."""
        found = []
        for name in names:
            field = self.field(name)
            if field is None:
                raise LookupError(name)
            found.append(field)
        return tuple(found)

    @property
    def columns(self) -> tuple[Field, ...]:
        """The fields that tables have by default."""
        return tuple(field for field in self.fields if field.column is not None)

    def document(self, item: object, fields: Sequence[Field]) -> dict[str, object]:
        """One item as plain JSON values."""
        return {field.name: plain(field.value(item)) for field in fields}

    def json_schema(self) -> dict[str, object]:
        """The JSON Schema of the whole document. Picked fields (`--json=a,b`) leave the others out."""
        item = _object(self.fields)
        head: dict[str, object] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": self.id,
            "title": self.title or self.name,
        }
        marker = {"schema": {"const": self.id}}
        if not self.listing:
            body = _object(self.fields)
            properties = body["properties"]
            return (
                head | body | {"properties": marker | properties if isinstance(properties, dict) else marker}
            )
        items = {"items": {"type": "array", "items": item}}
        extra = {field.name: field.schema for field in self.extra}
        return head | {
            "type": "object",
            "properties": marker | items | extra,
            "required": ["schema", "items"],
        }


def _object(fields: Sequence[Field]) -> dict[str, object]:
    return {"type": "object", "properties": {field.name: field.schema for field in fields}}


def plain(value: object) -> object:
    """A value as JSON has it: times as ISO in UTC, durations as seconds, data classes as objects."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {spec.name: plain(getattr(value, spec.name)) for spec in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return str(value)
