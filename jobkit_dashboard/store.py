"""Sessions, login links and API tokens, by the hash of their secret.

Invariant: a secret is shown once, when it is made; a link works once; whatever has expired, idled too long or been
revoked is not found.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

import sqlalchemy as sa
from sqlalchemy import Row

from jobkit.admin.guard import database_errors
from jobkit.core import Core
from jobkit.hookspecs import Actor
from jobkit_dashboard.table import sessions_table

__all__ = ["ABSOLUTE", "IDLE", "LINK_LIFE", "Kind", "Store", "Stored"]

Kind: TypeAlias = Literal["session", "link", "token"]
IDLE: Final = timedelta(hours=8)
ABSOLUTE: Final = timedelta(days=7)
LINK_LIFE: Final = timedelta(minutes=10)
_TOUCH: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Stored:
    """One row. `handle` names it to people and says nothing of the secret."""

    handle: str
    kind: Kind
    name: str
    actor: Actor
    created_at: datetime
    seen_at: datetime
    expires_at: datetime


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class Store:
    """The rows of one app's database."""

    def __init__(self, app: Core) -> None:
        self._app = app
        self._table = sessions_table(app.tables)

    def make(self, kind: Kind, actor: Actor, life: timedelta, *, name: str = "") -> str:
        """Write a row and return its secret: 256 bits."""
        secret, now = secrets.token_urlsafe(32), self._app.clock.now()
        row = {
            "hash": _hash(secret),
            "kind": kind,
            "name": name,
            "actor": actor.id,
            "label": actor.label,
            "roles": ",".join(sorted(actor.roles)),
            "created_at": now,
            "seen_at": now,
            "expires_at": now + life,
        }
        with database_errors(self._app), self._app.engine.begin() as conn:
            conn.execute(sa.insert(self._table), [row])
        return secret

    def find(self, kind: Kind, secret: str, *, touch: bool = True) -> Stored | None:
        """The living row of a secret; a session that is used (`touch`) stays alive."""
        c, now = self._table.c, self._app.clock.now()
        query = sa.select(self._table).where(c.hash == _hash(secret), c.kind == kind)
        with database_errors(self._app), self._app.read_engine.connect() as conn:
            row = conn.execute(query).first()
        if row is None or not _alive(row, now):
            return None
        if touch and now - row.seen_at > _TOUCH:
            self._touch(row.hash, now)
        return _stored(row)

    def take(self, secret: str) -> Stored | None:
        """Use a link up: its row, once."""
        c = self._table.c
        where = (c.hash == _hash(secret), c.kind == "link", c.expires_at > self._app.clock.now())
        with database_errors(self._app), self._app.engine.begin() as conn:
            row = conn.execute(sa.select(self._table).where(*where)).first()
            gone = conn.execute(sa.delete(self._table).where(*where)).rowcount
        return _stored(row) if row is not None and gone == 1 else None

    def end(self, kind: Kind, secret: str) -> None:
        """Remove the row of a secret."""
        c = self._table.c
        with database_errors(self._app), self._app.engine.begin() as conn:
            conn.execute(sa.delete(self._table).where(c.hash == _hash(secret), c.kind == kind))

    def revoke(self, kind: Kind, handle: str) -> bool:
        """Remove the row that people know by this handle; False where there is none."""
        if len(handle) != 12 or not set(handle) <= set("0123456789abcdef"):
            return False
        c = self._table.c
        with database_errors(self._app), self._app.engine.begin() as conn:
            where = (c.kind == kind, sa.func.substr(c.hash, 1, 12) == handle)
            return conn.execute(sa.delete(self._table).where(*where)).rowcount > 0

    def living(self, kind: Kind) -> Sequence[Stored]:
        """All living rows of a kind, newest first."""
        now = self._app.clock.now()
        query = sa.select(self._table).where(self._table.c.kind == kind)
        with database_errors(self._app), self._app.read_engine.connect() as conn:
            rows = conn.execute(query.order_by(self._table.c.created_at.desc()).limit(500)).all()
        return [_stored(row) for row in rows if _alive(row, now)]

    def sweep(self) -> int:
        """Remove what has expired; returns how many rows went."""
        now, c = self._app.clock.now(), self._table.c
        idle = sa.and_(c.kind == "session", c.seen_at < now - IDLE)
        with database_errors(self._app), self._app.engine.begin() as conn:
            return conn.execute(sa.delete(self._table).where(sa.or_(c.expires_at <= now, idle))).rowcount

    def _touch(self, key: str, now: datetime) -> None:
        with database_errors(self._app), self._app.engine.begin() as conn:
            conn.execute(sa.update(self._table).where(self._table.c.hash == key).values(seen_at=now))


def _alive(row: Row[tuple[object, ...]], now: datetime) -> bool:
    return bool(row.expires_at > now and (row.kind != "session" or now - row.seen_at <= IDLE))


def _stored(row: Row[tuple[object, ...]]) -> Stored:
    roles = frozenset(role for role in row.roles.split(",") if role)
    actor = Actor(row.actor, row.label, "api" if row.kind == "token" else "web", roles)
    return Stored(row.hash[:12], row.kind, row.name, actor, row.created_at, row.seen_at, row.expires_at)
