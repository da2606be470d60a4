"""Audit rows for what is not an action of `jobkit.admin`: logins, refusals at a route, actions of plugins."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from jobkit.admin.audit import write_audit
from jobkit.admin.guard import database_errors
from jobkit.core import Core
from jobkit.errors import JobkitError
from jobkit.hookspecs import Actor, AuditEvent

__all__ = ["note"]

log = logging.getLogger("jobkit.dashboard")


def note(
    app: Core,
    actor: Actor,
    action: str,
    result: Literal["ok", "denied", "conflict", "failed"],
    *,
    kind: str = "dashboard",
    ids: Sequence[str] = (),
    reason: str = "",
    request_id: str | None = None,
) -> None:
    """Write one row and tell `jobkit_audit`; what cannot be written is logged, and no page fails by it."""
    event = AuditEvent(
        at=app.clock.now(),
        actor=actor,
        action=action,
        target_kind=kind,
        ids=tuple(ids),
        count=len(ids),
        result=result,
        reason=app.redactor.text(reason[:500], kind="audit"),
        request_id=request_id,
    )
    try:
        with database_errors(app), app.engine.begin() as conn:
            write_audit(app, conn, event)
    except JobkitError as error:
        log.error("the audit row of %s (%s) was not written: %s", action, result, error)
    app.registry.observe("jobkit_audit", event=event)
