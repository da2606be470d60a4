"""Notifications of Postgres: what nodes listen to.

Invariant: a payload is queue names, or `*` where they would not fit; it says no more than that there may be work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from jobkit.storage.statement import Sql

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.storage.schema import Tables

__all__ = ["Notices", "notify", "payload_of"]

MAX_PAYLOAD: Final = 7_000

_NOTIFY: Final = text("SELECT pg_notify(:channel, :payload)")
_CONFIRM_ONE: Final = """
SELECT j.id, pg_notify(CAST(:channel AS text), CAST(:payload AS text))
FROM {jobs} AS j WHERE j.id = CAST(:id AS bigint)
"""
_CONFIRM: Final = """
SELECT j.id, pg_notify(CAST(:channel AS text), c.payload)
FROM unnest(CAST(:ids AS bigint[]), CAST(:payloads AS text[])) AS c(id, payload) JOIN {jobs} AS j ON j.id = c.id
"""


def payload_of(queues: Iterable[str]) -> str:
    """What is sent for these queues."""
    payload = ",".join(sorted(queues))
    return payload if len(payload) <= MAX_PAYLOAD else "*"


def notify(conn: Connection, channel: str, payload: str) -> None:
    """Send with the transaction that is open on any driver's connection, else at once."""
    conn.execute(_NOTIFY, {"channel": channel, "payload": payload})


class Notices:
    """One channel, on connections of jobkit's own."""

    def __init__(self, tables: Tables, channel: str) -> None:
        self._confirm: Final = Sql(_CONFIRM, tables)
        self._confirm_one: Final = Sql(_CONFIRM_ONE, tables)  # half of the other's time
        self._channel: Final = channel

    def confirm(self, conn: Connection, payloads: Mapping[int, str]) -> set[int]:
        """Those ids whose rows can be read; the payload of each of them is sent. One round trip."""
        ids, texts = list(payloads), list(payloads.values())
        if len(ids) == 1:
            rows = self._confirm_one.rows(conn, {"channel": self._channel, "id": ids[0], "payload": texts[0]})
        else:
            rows = self._confirm.rows(conn, {"channel": self._channel, "ids": ids, "payloads": texts})
        return {row[0] for row in rows}

    def send(self, conn: Connection, queues: Iterable[str]) -> None:
        """Notify of these queues."""
        notify(conn, self._channel, payload_of(queues))
