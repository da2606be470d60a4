"""SQL over the JSON columns, for each backend: finds candidates, never all that display would hide.

Invariant: each condition holds for every row that the plain evaluator matches (and perhaps for more), as
long as the JSON was written by jobkit; none raises on a row whose JSON is broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from sqlalchemy import ColumnElement, Text, and_, case, cast, collate, func, literal, or_, true, type_coerce
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH

from jobkit.admin._ast import Exact, Part, Value, Wild

__all__ = ["JsonSql", "PostgresJson", "SQLiteJson", "dialect_json", "escaped_like"]

Bool = ColumnElement[bool]
Column = ColumnElement[str]

# Python prints some numbers in another way than they are stored: such a needle cannot narrow the search.
_PART_OF_NUMBER: Final = re.compile(r"[0-9.e+-]*[.e+-][0-9.e+-]*")
_SQLITE_KEY: Final = re.compile(r'[^"\\\x00-\x1f]+')
_MAX_INT: Final = 2**63


def escaped_like(needle: str) -> str:
    """A LIKE pattern that finds the needle literally; the escape character is `!`."""
    return "%" + re.sub(r"([!%_])", r"!\1", needle) + "%"


class JsonSql(Protocol):
    """What the compiler needs of a backend."""

    def contains(self, column: Column, needle: str) -> Bool:
        """The column's text holds the (folded) needle, ignoring the case of ASCII letters."""
        ...

    def holds(self, column: Column, needle: str) -> Bool:
        """As `contains`, for a JSON column and a needle that is part of a value."""
        ...

    def at(self, column: Column, path: Sequence[Part], value: Value) -> Bool:
        """There may be a value at the path that a term asks for."""
        ...

    def key(self, column: Column, name: str) -> Column:
        """The text under a top-level key; NULL without it."""
        ...

    def count(self, column: Column, name: str) -> ColumnElement[int]:
        """The whole number under a top-level key."""
        ...

    def other_keys(self, column: Column, names: Sequence[str]) -> Bool:
        """The object has keys besides these."""
        ...


def dialect_json(dialect: str) -> JsonSql:
    """The forms for `sqlite` or `postgresql`."""
    return PostgresJson() if dialect == "postgresql" else SQLiteJson()


def _json_forms(needle: str) -> list[str]:
    """How the needle may stand inside a JSON string."""
    return sorted({json.dumps(needle, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)})


class SQLiteJson:
    """SQLite keeps JSON as text; LIKE folds ASCII letters and no others."""

    def contains(self, column: Column, needle: str) -> Bool:
        return column.like(escaped_like(needle), escape="!")

    def holds(self, column: Column, needle: str) -> Bool:
        if _PART_OF_NUMBER.fullmatch(needle):
            return true()
        return or_(*(self.contains(column, form) for form in _json_forms(needle)))

    def at(self, column: Column, path: Sequence[Part], value: Value) -> Bool:
        known = path[: path.index(None)] if None in path else path
        if not all(isinstance(part, int) or _SQLITE_KEY.fullmatch(str(part)) for part in known):
            return true()
        where = "$" + "".join(f"[{part}]" if isinstance(part, int) else f'."{part}"' for part in known)
        if len(known) < len(path):
            test = func.json_type(column, where) == "array"
        else:
            test = self._leaf(column, where, value)
        return and_(self._text(column, value), case((func.json_valid(column) == 1, test), else_=False))

    def _text(self, column: Column, value: Value) -> Bool:
        """LIKE first: it reads no JSON."""
        text = value.value if isinstance(value, Exact) else getattr(value, "text", "")
        if not isinstance(value, Exact | Wild) or not isinstance(text, str) or not text:
            return true()
        return self.holds(column, text)

    def _leaf(self, column: Column, where: str, value: Value) -> Bool:
        kind = func.json_type(column, where)
        if isinstance(value, Wild):
            return kind == "text" if value.text else func.coalesce(kind, "null") != "null"
        if not isinstance(value, Exact):
            return kind.in_(["integer", "real"])
        if value.value is None or isinstance(value.value, bool):
            return kind == json.dumps(value.value)
        found = func.json_extract(column, where)
        if isinstance(value.value, str):
            return found == value.value
        if isinstance(value.value, int) and not -_MAX_INT <= value.value < _MAX_INT:
            return kind.in_(["integer", "real", "text"])
        return or_(found == literal(value.value), found == value.text)

    def key(self, column: Column, name: str) -> Column:
        found = func.json_extract(column, f"$.{name}")
        return type_coerce(case((func.json_valid(column) == 1, found)), Text())

    def count(self, column: Column, name: str) -> ColumnElement[int]:
        found: ColumnElement[int] = func.json_extract(column, f"$.{name}")
        return case((func.json_valid(column) == 1, found), else_=0)

    def other_keys(self, column: Column, names: Sequence[str]) -> Bool:
        own = func.json_remove(column, *(f"$.{name}" for name in names))
        return case((func.json_valid(column) == 1, own != "{}"), else_=False)


class PostgresJson:
    """Postgres keeps JSONB; `COLLATE "C"` makes lower() fold ASCII letters and no others."""

    def contains(self, column: Column, needle: str) -> Bool:
        text = func.lower(collate(cast(column, Text()), "C"))
        return text.like(escaped_like(needle), escape="!")

    def holds(self, column: Column, needle: str) -> Bool:
        if _PART_OF_NUMBER.fullmatch(needle):
            return true()
        return self.contains(column, json.dumps(needle, ensure_ascii=False)[1:-1])

    def at(self, column: Column, path: Sequence[Part], value: Value) -> Bool:
        where = "$" + "".join(map(self._step, path))
        if not isinstance(value, Exact):
            return self._exists(column, where, {})
        if isinstance(value.value, int | float) and not isinstance(value.value, bool):
            both = {"v": value.value, "t": value.text}
            return self._exists(column, f"{where} ? (@ == $v || @ == $t)", both)
        return self._exists(column, f"{where} ? (@ == $v)", {"v": value.value})

    @staticmethod
    def _step(part: Part) -> str:
        if part is None:
            return "[*]"
        return f"[{part}]" if isinstance(part, int) else "." + json.dumps(part, ensure_ascii=False)

    @staticmethod
    def _exists(column: Column, path: str, variables: Mapping[str, object]) -> Bool:
        found: Bool = func.jsonb_path_exists(
            column,
            cast(literal(path, Text()), JSONPATH()),
            cast(literal(json.dumps(variables), Text()), JSONB()),
        )
        return found

    def key(self, column: Column, name: str) -> Column:
        found: Column = func.jsonb_extract_path_text(column, name)
        return found

    def count(self, column: Column, name: str) -> ColumnElement[int]:
        found = func.jsonb_path_exists(column, cast(literal(f"$.{name} ? (@ > 0)", Text()), JSONPATH()))
        return case((found, 1), else_=0)

    def other_keys(self, column: Column, names: Sequence[str]) -> Bool:
        rest = column
        for name in names:
            rest = rest.op("-")(literal(name, Text()))
        return cast(rest, Text()) != "{}"
