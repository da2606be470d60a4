"""Nodes, queues and workers: the rows by which nodes know of each other. The same Core statements on every
arm.

Invariant: a row that several nodes may make at once is made by one of them and found by the others; settings
that an operator wrote are never overwritten by a starting node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from jobkit.jobs import Lease
from jobkit.storage.arm import StorageArm
from jobkit.storage.base import Beat, NodeRow, QueueDefaults, QueueSettings
from jobkit.storage.engine import reading

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

__all__ = ["Fleet", "as_json", "insert_if_missing", "node_row"]


def as_json(value: Mapping[str, object]) -> str:
    """Compact JSON text; what has no JSON form is written as its text."""
    return json.dumps(value, separators=(",", ":"), default=str)


def insert_if_missing(conn: Connection, table: Table, values: Mapping[str, object]) -> bool:
    """Inserts the row; False where another has that key. Needs an open transaction, and leaves it usable."""
    try:
        with conn.begin_nested():
            conn.execute(insert(table).values(**values))
    except IntegrityError:
        return False
    return True


class Fleet(StorageArm):
    """The methods on nodes, queues and workers."""

    # --- nodes

    def register_node(
        self,
        conn: Connection,
        node: str,
        *,
        now: datetime,
        queues: Mapping[str, int],
        info: Mapping[str, object],
    ) -> None:
        """See `Storage.register_node`."""
        table = self.tables.nodes
        values = {
            "node": node,
            "queues": as_json(queues),
            "info": as_json(info),
            "started_at": now,
            "heartbeat_at": now,
            "beat": 0,
            "lost_at": None,
            "wanted": "{}",
        }

        def work() -> None:
            conn.execute(delete(table).where(table.c.node == node))
            conn.execute(insert(table).values(**values))

        self._whole(conn, work)

    def beat(
        self,
        conn: Connection,
        node: str,
        *,
        now: datetime,
        queues: Mapping[str, int],
        info: Mapping[str, object],
    ) -> Beat | None:
        """See `Storage.beat`."""
        table = self.tables.nodes
        values = {"heartbeat_at": now, "queues": as_json(queues), "info": as_json(info)}

        def work() -> Beat | None:
            alive = (table.c.node == node) & table.c.lost_at.is_(None)
            hit = conn.execute(update(table).where(alive).values(beat=table.c.beat + 1, **values)).rowcount
            if not hit:
                return None
            wanted = conn.execute(select(table.c.wanted).where(table.c.node == node)).scalar_one()
            settings = self._read_settings(conn, node, now)
            return Beat(settings, json.loads(wanted), self._executing(conn, node))

        return self._whole(conn, work)

    def _executing(self, conn: Connection, node: str) -> list[Lease]:
        c = self.tables.jobs.c
        query = select(c.id, c.attempted_at).where(c.state == "executing", c.attempted_by == node)
        return [Lease(row[0], node, row[1]) for row in conn.execute(query.order_by(c.id))]

    def remove_node(self, conn: Connection, node: str) -> bool:
        """See `Storage.remove_node`."""
        table = self.tables.nodes
        gone = delete(table).where(table.c.node == node)
        return bool(self._single(conn, lambda: conn.execute(gone).rowcount))

    def nodes(self, conn: Connection) -> list[NodeRow]:
        """See `Storage.nodes`."""
        table = self.tables.nodes
        with reading(conn):
            return [node_row(row) for row in conn.execute(select(table).order_by(table.c.node))]

    def live_nodes(self, conn: Connection) -> list[NodeRow]:
        """See `Storage.live_nodes`."""
        return [node for node in self.nodes(conn) if node.lost_at is None]

    # --- queues

    def ensure_queues(self, conn: Connection, queues: Mapping[str, QueueDefaults], *, now: datetime) -> None:
        """See `Storage.ensure_queues`."""
        table = self.tables.queues

        def work() -> None:
            there = set(conn.execute(select(table.c.name).where(table.c.name.in_(queues))).scalars())
            for name in sorted(set(queues) - there):
                insert_if_missing(
                    conn, table, {"name": name, "paused": queues[name].paused, "updated_at": now}
                )

        if queues:
            self._whole(conn, work)

    def queue_settings(
        self, conn: Connection, *, node: str | None, now: datetime
    ) -> dict[str, QueueSettings]:
        """See `Storage.queue_settings`."""
        with reading(conn):
            return self._read_settings(conn, node, now)

    def _read_settings(self, conn: Connection, node: str | None, now: datetime) -> dict[str, QueueSettings]:
        c = self.tables.queues.c
        query = select(c.name, c.paused, c.paused_until, c.limit_override, c.node_limits)
        return {row.name: _settings(row, node, now) for row in conn.execute(query)}

    # --- workers

    def publish_workers(self, conn: Connection, workers: Mapping[str, str], *, now: datetime) -> None:
        """See `Storage.publish_workers`."""
        if workers:
            self._whole(conn, lambda: self._publish(conn, workers, now))

    def _publish(self, conn: Connection, workers: Mapping[str, str], now: datetime) -> None:
        table = self.tables.workers
        names = sorted(workers)
        there = set(conn.execute(select(table.c.name).where(table.c.name.in_(names))).scalars())
        for name in names:
            if name not in there:
                values = {"name": name, "config": workers[name], "last_seen_at": now}
                if not insert_if_missing(conn, table, values):
                    there.add(name)
        if known := [name for name in names if name in there]:
            newer = (table.c.name == bindparam("known")) & (table.c.last_seen_at <= bindparam("seen"))
            statement = update(table).where(newer)
            statement = statement.values(last_seen_at=bindparam("seen"), config=bindparam("settings"))
            conn.execute(
                statement, [{"known": name, "seen": now, "settings": workers[name]} for name in known]
            )

    def known_workers(self, conn: Connection) -> dict[str, datetime]:
        """See `Storage.known_workers`."""
        c = self.tables.workers.c
        with reading(conn):
            return {row[0]: row[1] for row in conn.execute(select(c.name, c.last_seen_at))}


def _settings(row: Row[*tuple[Any, ...]], node: str | None, now: datetime) -> QueueSettings:
    paused = row.paused and (row.paused_until is None or row.paused_until > now)
    own = json.loads(row.node_limits).get(node) if node is not None else None
    return QueueSettings(bool(paused), row.limit_override if own is None else own)


def node_row(row: Row[*tuple[Any, ...]]) -> NodeRow:
    return NodeRow(
        row.node,
        row.beat,
        row.started_at,
        row.heartbeat_at,
        row.lost_at,
        json.loads(row.queues),
        json.loads(row.wanted),
        json.loads(row.info),
    )
