"""Rows of `job_operations` as views.

Invariant: what is shown of an operation is what stands in its row, redacted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from jobkit.admin.views import Count, OperationResult, OperationView

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core

__all__ = ["operation_rows", "operation_view"]


def operation_rows(
    app: Core, conn: Connection, *, operation_id: int | None = None, limit: int = 1
) -> Iterator[OperationView]:
    """One by its id, or the newest."""
    table = app.tables.operations
    statement = select(table).order_by(table.c.id.desc()).limit(limit)
    if operation_id is not None:
        statement = statement.where(table.c.id == operation_id)
    for row in conn.execute(statement):
        yield operation_view(app, dict(row._mapping))


def operation_view(app: Core, row: Mapping[str, Any]) -> OperationView:
    """A row as read."""
    params = _object(row["params"])
    told = _object(row["results"])
    shown = app.redactor.value(_shown(params), path="params", kind="audit")
    total = row["total"]
    return OperationView(
        id=row["id"],
        actor=row["actor"],
        action=row["action"],
        params=shown if isinstance(shown, dict) else {},
        query=None if row["query"] is None else app.redactor.text(row["query"], kind="audit"),
        max_id=row["max_id"],
        state=row["state"],
        total=None if total is None else Count(total, "exact" if params.get("counted") else "at_least"),
        done=row["done"],
        skipped=row["skipped"],
        failed=row["failed"],
        results=tuple(_results(told.get("jobs"))),
        skips={str(text): int(n) for text, n in _object(told.get("skips")).items()},
        error=app.redactor.text(row["error"] or "", kind="error"),
        cancel_requested=bool(row["cancel_requested"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        finished_at=row["finished_at"],
    )


def _shown(params: Mapping[str, Any]) -> dict[str, object]:
    """What was asked for; how the work goes on is no one's business."""
    found: dict[str, object] = {
        name: params[name] for name in ("edit", "spread", "max_jobs", "reason") if params.get(name)
    }
    if isinstance(ids := params.get("ids"), list):
        found["ids"] = len(ids)
    return found


def _object(value: object) -> Mapping[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str | bytes) else value
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _results(items: object) -> Iterator[OperationResult]:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, list) and len(item) == 3:
            yield OperationResult(int(item[0]), str(item[1]), str(item[2]))
