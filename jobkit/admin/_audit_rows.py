"""The audit table: rows in, entries out.

Invariant: rows are only ever added here; what is shown is redacted once more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Text, cast, func, insert, literal, or_, select
from sqlalchemy.dialects.postgresql import JSONB

from jobkit.admin._json_sql import escaped_like
from jobkit.admin.views import AuditEntry, AuditPage
from jobkit.hookspecs import AuditEvent

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core

__all__ = ["MAX_IDS", "AuditFilter", "activity_of", "audit_page", "write_audit"]

MAX_IDS: Final = 100
"""So many ids are kept in a row; `count` says how many there were."""
ACTIVITY: Final = 50


def write_audit(app: Core, conn: Connection, event: AuditEvent) -> None:
    """Adds the row, in the transaction of what it tells of."""
    conn.execute(
        insert(app.tables.audit).values(
            at=event.at,
            actor=event.actor.id,
            via=event.actor.via,
            action=event.action,
            target_kind=event.target_kind,
            ids=json.dumps(list(event.ids[:MAX_IDS])),
            count=event.count,
            query=event.query,
            before=json.dumps(dict(event.before), default=str),
            after=json.dumps(dict(event.after), default=str),
            result=event.result,
            reason=event.reason,
            operation_id=event.operation_id,
            request_id=event.request_id,
        )
    )


class AuditFilter:
    """Collects conditions over the audit table."""

    def __init__(self, app: Core, dialect: str) -> None:
        self.c = app.tables.audit.c
        self._postgres = dialect == "postgresql"
        self.conditions: list[ColumnElement[bool]] = []

    def name(self, column: str, value: str | None) -> None:
        """Equal, or with a star at the end."""
        if value is None:
            return
        if value.endswith("*"):
            self.conditions.append(func.substr(self.c[column], 1, len(value) - 1) == value[:-1])
        else:
            self.conditions.append(self.c[column] == value)

    def between(self, since: datetime | None, until: datetime | None, before_id: int | None) -> None:
        """Times, and the place in the list."""
        if since is not None:
            self.conditions.append(self.c.at >= since)
        if until is not None:
            self.conditions.append(self.c.at < until)
        if before_id is not None:
            self.conditions.append(self.c.id < before_id)

    def target(self, kind: str, target_id: str) -> None:
        """Rows about one thing."""
        self.conditions += [self.c.target_kind == kind, self.about([target_id])]

    def about(self, ids: Sequence[str]) -> ColumnElement[bool]:
        """Rows whose ids hold one of these."""
        if self._postgres:
            return or_(
                *(self.c.ids.op("@>")(cast(literal(json.dumps([name]), Text()), JSONB())) for name in ids)
            )
        return or_(*(self.c.ids.like(escaped_like(json.dumps(name)), escape="!") for name in ids))


def audit_page(app: Core, conn: Connection, chosen: AuditFilter, limit: int) -> AuditPage:
    """The newest of the chosen rows."""
    rows = _rows(app, conn, chosen.conditions, limit + 1)
    entries = tuple(_entry(app, row) for row in rows[:limit])
    return AuditPage(entries, entries[-1].id if len(rows) > limit else None)


def activity_of(app: Core, conn: Connection, job_id: int) -> tuple[AuditEntry, ...]:
    """What operators did to one job, newest first."""
    chosen = AuditFilter(app, conn.dialect.name)
    chosen.target("job", str(job_id))
    return tuple(_entry(app, row) for row in _rows(app, conn, chosen.conditions, ACTIVITY))


def _rows(
    app: Core, conn: Connection, conditions: Sequence[ColumnElement[bool]], limit: int
) -> list[Mapping[str, Any]]:
    audit = app.tables.audit
    statement = select(audit).where(*conditions).order_by(audit.c.id.desc()).limit(limit)
    return [dict(row._mapping) for row in conn.execute(statement)]


def _entry(app: Core, row: Mapping[str, Any]) -> AuditEntry:
    redact = app.redactor.text
    return AuditEntry(
        id=row["id"],
        at=row["at"],
        actor=row["actor"],
        via=row["via"],
        action=row["action"],
        target_kind=row["target_kind"] or "",
        ids=tuple(map(str, _list(row["ids"]))),
        count=row["count"] or 0,
        query=None if row["query"] is None else redact(row["query"], kind="audit"),
        before=_shown(app, row["before"]),
        after=_shown(app, row["after"]),
        result=row["result"] or "",
        reason=redact(row["reason"] or "", kind="audit"),
        operation_id=row["operation_id"],
        request_id=row["request_id"],
    )


def _list(text: object) -> list[object]:
    found = _loaded(text)
    return found if isinstance(found, list) else []


def _loaded(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str | bytes) else text
    except ValueError:
        return None


def _shown(app: Core, text: object) -> Mapping[str, object]:
    found = app.redactor.value(_loaded(text) or {}, path="audit", kind="audit")
    return found if isinstance(found, dict) else {}
