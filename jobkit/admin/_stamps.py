"""Whether a page of jobs would show anything new, without making it.

The walk that the page takes is taken once, and the statements that it sends are kept; asking again sends the very same
ones and compares what comes back, raw. Nothing is built, compiled, decoded, redacted or worded, so that asking costs a
fraction of the page. Invariant: the statements hold the actor's scope and limits, as the page's own do; an answer
of "the same" is never wrong about rows, only about what the mere passing of time makes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from jobkit.admin._context import Context
from jobkit.admin._job_reads import MAX_IDS, PageRequest, _Pager
from jobkit.admin.guard import read_only
from jobkit.admin.query import Query
from jobkit.hookspecs import Resource

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core

__all__ = ["Stamp", "page_stamp"]

_Sent = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a page's statements brought."""

    _app: Core
    _timeout: timedelta
    _statements: tuple[_Sent, ...]
    _brought: int

    def still(self) -> bool:
        """Whether they bring the same now; no where that cannot be told. Raises DatabaseUnreachable, NotMigrated."""
        with read_only(self._app, self._timeout) as conn:
            try:
                return _brought(conn, self._statements) == self._brought
            except conn.dialect.loaded_dbapi.Error:
                return False


def page_stamp(context: Context, request: PageRequest, held: Sequence[int] = ()) -> Stamp:
    """The stamp of a page and of the rows `held`. Raises what reading the page raises, QueryRefused among it."""
    context.require("view.jobs", Resource("job"))
    query = context.query(request.query)
    with context.reading() as conn:
        sent: dict[str, _Sent] = {}

        def note(
            conn: Connection, cursor: object, statement: str, parameters: object, about: object, many: bool
        ) -> None:
            sent[repr((statement, parameters))] = (statement, parameters)

        event.listen(conn, "before_cursor_execute", note)
        _Pager(context.searcher(conn, query, request.budget), query, request).page()
        if held:
            context.searcher(conn, Query()).by_ids(list(held)[:MAX_IDS])
        event.remove(conn, "before_cursor_execute", note)
        statements = tuple(sent.values())
        return Stamp(context.app, context.timeout, statements, _brought(conn, statements))


def _brought(conn: Connection, statements: Sequence[_Sent]) -> int:
    raw: Any = conn.connection.driver_connection
    cursor = raw.cursor()
    try:
        found = []
        for statement, parameters in statements:
            cursor.execute(statement, parameters)
            found.append(repr(cursor.fetchall()))
        return hash(tuple(found))
    finally:
        cursor.close()
