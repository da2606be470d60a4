"""What every read and action begins with: the app, the actor, their scope, and what surrounds the jobs.

Invariant: the scope is asked once, and no query reaches the database without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from jobkit.admin._match import Surroundings
from jobkit.admin._search import Searcher
from jobkit.admin.access import allowed, require, row_scope, vocabulary
from jobkit.admin.errors import QueryRefused
from jobkit.admin.guard import read_only
from jobkit.admin.query import Parsed, Query, parse, refuse_hidden
from jobkit.hookspecs import Actor, Resource

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["Context"]

DEFAULT_BUDGET = timedelta(seconds=1.5)


class Context:
    """One actor's view of one app."""

    def __init__(self, app: Core, actor: Actor, timeout: timedelta) -> None:
        self.app = app
        self.actor = actor
        self.timeout = timeout

    @property
    def now(self) -> datetime:
        """The clock's time."""
        return self.app.clock.now()

    @cached_property
    def scope(self) -> Query:
        """What the actor's row scope adds to every query."""
        return row_scope(self.app, self.actor)

    def may(self, permission: str, resource: Resource) -> bool:
        """Whether the actor has this permission on that."""
        return allowed(self.app, self.actor, permission, resource)

    def require(self, permission: str, resource: Resource) -> None:
        """Raises NotPermitted."""
        require(self.app, self.actor, permission, resource)

    def parse(self, text: str) -> Parsed:
        """With the app's qualifiers; paths that redaction hides are problems."""
        return refuse_hidden(parse(text, vocabulary(self.app)), self.app.redactor.is_secret_path)

    def query(self, text: str) -> Query:
        """The query; raises QueryRefused."""
        parsed = self.parse(text)
        if parsed.problems:
            raise QueryRefused(parsed.problems)
        return parsed.query

    def reading(self) -> AbstractContextManager[Connection]:
        """A read-only transaction."""
        return read_only(self.app, self.timeout)

    def surroundings(self, conn: Connection, now: datetime | None = None) -> Surroundings:
        """What queries may ask of nodes, queues and workers."""
        tables, at = self.app.tables, now or self.now
        nodes, queues, workers = tables.nodes.c, tables.queues.c, tables.workers.c
        paused = queues.paused & (queues.paused_until.is_(None) | (queues.paused_until > at))
        return Surroundings(
            at,
            live=frozenset(conn.scalars(select(nodes.node).where(nodes.lost_at.is_(None)))),
            paused=frozenset(conn.scalars(select(queues.name).where(paused))),
            timeouts=_timeouts(conn.execute(select(workers.name, workers.config)).all()),
        )

    def searcher(self, conn: Connection, query: Query, budget: timedelta = DEFAULT_BUDGET) -> Searcher:
        """A search within the scope."""
        return Searcher(self.app, conn, query & self.scope, self.surroundings(conn), budget)


def _timeouts(rows: Iterable[Any]) -> dict[str, timedelta | None]:
    """Worker -> timeout, of those whose published settings tell it."""
    found: dict[str, timedelta | None] = {}
    for row in rows:
        name, config = tuple(row)
        try:
            settings = json.loads(config)
        except ValueError:
            continue
        seconds = settings.get("timeout", -1) if isinstance(settings, dict) else -1
        if seconds is None:
            found[name] = None
        elif isinstance(seconds, int | float) and 0 <= seconds < 1e9:
            found[name] = timedelta(seconds=seconds)
    return found
