"""A statement written once with :names, sent as each driver's own text.

On a node's autocommit connections statements go to the driver directly: SQLAlchemy's way costs as much as a
small statement itself. Invariant: an identifier reaches the text only through the dialect's quoting, a value
only as a bound parameter. The text for a driver is made once; rows come back as the driver's plain tuples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Table

from jobkit.storage.engine import autocommits, execute_directly

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect

    from jobkit.storage.schema import Tables

__all__ = ["Sql", "all_rows", "quoted"]

_TOKEN: Final = re.compile(r"\{(?P<table>[a-z_]+)\}|(?<![:\w]):(?P<name>[a-z_]+)")

Row = tuple[Any, ...]


def quoted(table: Table, dialect: Dialect) -> str:
    """The table's full name as SQL text."""
    return dialect.identifier_preparer.format_table(table)


class Sql:
    """`:name` is a parameter, `{jobs}` the table `Tables.jobs`. JSON braces and `::` casts do not occur in
    it.
    """

    __slots__ = ("_forms", "_tables", "_template")

    def __init__(self, template: str, tables: Tables) -> None:
        self._template: Final = template
        self._tables: Final = tables
        self._forms: dict[str, tuple[str, tuple[str, ...] | None]] = {}

    def rows(self, conn: Connection, params: Mapping[str, object]) -> list[Row]:
        """Executes, and returns all rows as plain tuples."""
        if autocommits(conn):
            text, order = self._form(conn.dialect)
            values = params if order is None else [params[name] for name in order]
            return execute_directly(conn, text, values)
        return all_rows(self._execute(conn, params))

    def rows_by_place(self, conn: Connection, values: Sequence[object]) -> list[Row]:
        """As `rows`, for a driver whose parameters have no names: one value for each place in the text."""
        text = self._form(conn.dialect)[0]
        if autocommits(conn):
            return execute_directly(conn, text, values)
        return all_rows(conn.exec_driver_sql(text, tuple(values)))

    def count(self, conn: Connection, params: Mapping[str, object]) -> int:
        """Executes a statement that returns no rows; how many rows it changed."""
        return int(self._execute(conn, params).rowcount)

    def text(self, dialect: Dialect) -> str:
        """What is sent to that dialect's driver."""
        return self._form(dialect)[0]

    def _execute(self, conn: Connection, params: Mapping[str, object]) -> Any:
        text, order = self._form(conn.dialect)
        if order is None:
            return conn.exec_driver_sql(text, dict(params))
        return conn.exec_driver_sql(text, tuple([params[name] for name in order]))

    def _form(self, dialect: Dialect) -> tuple[str, tuple[str, ...] | None]:
        form = self._forms.get(dialect.driver)
        if form is None:
            form = self._forms[dialect.driver] = _translate(self._template, self._tables, dialect)
        return form


def all_rows(result: Any) -> list[Row]:
    """As the driver gives them: SQLAlchemy's own rows cost more than reading them."""
    rows: list[Row] = result.cursor.fetchall()
    result.close()
    return rows


def _translate(template: str, tables: Tables, dialect: Dialect) -> tuple[str, tuple[str, ...] | None]:
    style = dialect.paramstyle
    order: list[str] = []

    def place(name: str) -> str:
        if style == "pyformat":
            return f"%({name})s"
        if style == "numeric_dollar":
            if name not in order:
                order.append(name)
            return f"${order.index(name) + 1}"
        order.append(name)
        return "?" if style == "qmark" else "%s"

    def literal(text: str) -> str:
        return text.replace("%", "%%") if style in ("pyformat", "format") else text

    parts: list[str] = []
    position = 0
    for token in _TOKEN.finditer(template):
        parts.append(literal(template[position : token.start()]))
        if name := token["name"]:
            parts.append(place(name))
        else:
            # format_table doubles % by itself where the driver wants that
            parts.append(quoted(getattr(tables, token["table"]), dialect))
        position = token.end()
    parts.append(literal(template[position:]))
    return "".join(parts), None if style == "pyformat" else tuple(order)
