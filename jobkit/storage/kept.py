"""A connection that one thread keeps for as long as it is good.

Invariant: after trouble the next use gets another connection, and a broken one is never given back to a pool.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import Connection

__all__ = ["KeptConnection"]


class KeptConnection:
    """Opened at first use; belongs to one thread."""

    __slots__ = ("_connect", "current")

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self.current: Connection | None = None
        """The connection, where there is one."""

    def get(self) -> Connection:
        """The connection; another one where the last is closed or was given up. Raises what connecting raises."""
        conn = self.current
        if conn is None or conn.closed or conn.invalidated:
            self.drop()
            conn = self.current = self._connect()
        return conn

    def drop(self) -> None:
        """Close it, so that the next use connects anew."""
        conn, self.current = self.current, None
        if conn is not None:
            with suppress(Exception):
                conn.invalidate()
            with suppress(Exception):
                conn.close()
