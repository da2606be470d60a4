"""Where actions are written down: permission, transaction, audit, and who is told afterwards.

Invariant: a change and its audit row commit together or not at all; a refusal has a row of its own; plugins
hear of either only after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jobkit.admin._audit_rows import MAX_IDS, write_audit
from jobkit.admin._context import Context
from jobkit.admin.errors import AdminError, Conflict, NotPermitted
from jobkit.admin.guard import database_errors
from jobkit.hookspecs import Actor, AuditEvent, Resource
from jobkit.storage.engine import atomic, retrying
from jobkit.wakeup import waker_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.core import Core

__all__ = ["Desk", "Draft"]

log = logging.getLogger("jobkit.admin")
T = TypeVar("T")
Result = Literal["ok", "denied", "conflict", "failed"]


class Draft:
    """The audit row of one action while it is being carried out."""

    def __init__(self, action: str, kind: str, ids: Iterable[object] = (), reason: str = "") -> None:
        self.action = action
        self.kind = kind
        self.ids: tuple[str, ...] = tuple(map(str, ids))
        self.count: int | None = None
        self.reason = reason
        self.query: str | None = None
        self.before: Mapping[str, object] = {}
        self.after: Mapping[str, object] = {}
        self.result: Result = "ok"
        self.operation_id: int | None = None

    def event(self, desk: Desk) -> AuditEvent:
        """The row, redacted."""
        redactor = desk.app.redactor

        def shown(values: Mapping[str, object]) -> Mapping[str, Any]:
            found = redactor.value(dict(values), path="audit", kind="audit")
            return found if isinstance(found, dict) else {}

        return AuditEvent(
            at=desk.context.now,
            actor=desk.actor,
            action=self.action,
            target_kind=self.kind,
            ids=self.ids[:MAX_IDS],
            count=len(self.ids) if self.count is None else self.count,
            result=self.result,
            query=None if self.query is None else redactor.text(self.query, kind="audit"),
            before=shown(self.before),
            after=shown(self.after),
            reason=redactor.text(self.reason, kind="audit"),
            operation_id=self.operation_id,
            request_id=desk.request_id,
        )


class Desk:
    """One actor's way to write."""

    def __init__(self, app: Core, actor: Actor, request_id: str | None) -> None:
        self.app = app
        self.actor = actor
        self.request_id = request_id
        self.context = Context(app, actor, timedelta(seconds=10))

    # -- permission

    def may(self, permission: str, resource: Resource) -> bool:
        """Whether the actor may."""
        return self.context.may(permission, resource)

    def require(self, permission: str, resource: Resource, draft: Draft) -> None:
        """Raises NotPermitted, with a row that says so."""
        if not self.may(permission, resource):
            self.deny(permission, draft)

    def deny(self, permission: str, draft: Draft) -> None:
        """Writes the refusal down and raises NotPermitted."""
        draft.result = "denied"
        self.note(draft)
        raise NotPermitted(permission)

    # -- writing

    def write(self, draft: Draft, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction with its audit row; again where the database asks for it.

        A Conflict is written down as such and raised.
        """
        events: list[AuditEvent] = []

        def attempt(conn: Connection) -> T:
            done = work(conn)
            events[:] = [draft.event(self)]
            write_audit(self.app, conn, events[0])
            return done

        try:
            done = self.transaction(attempt)
        except Conflict:
            draft.result = "conflict"
            self.note(draft)
            raise
        self._tell(events)
        return done

    def transaction(self, work: Callable[[Connection], T]) -> T:
        """A short write transaction without a row of its own."""
        self.app.ready()

        def attempt() -> T:
            with self.app.engine.connect() as conn, atomic(conn):
                return work(conn)

        with database_errors(self.app):
            return retrying(attempt)

    def note(self, draft: Draft) -> None:
        """A row for something that changed nothing."""
        event = draft.event(self)
        self.transaction(lambda conn: write_audit(self.app, conn, event))
        self._tell([event])

    def _tell(self, events: Iterable[AuditEvent]) -> None:
        if self.app.registry.has("jobkit_audit"):
            for event in events:
                self.app.registry.observe("jobkit_audit", event=event)

    # -- afterwards

    def wake(self, queues: Iterable[str]) -> None:
        """There may be work in these queues; a hint, so nothing that goes wrong with it counts."""
        try:
            waker_of(self.app).wake(queues)
        except (AdminError, RuntimeError, OSError) as error:
            log.debug("no node could be woken: %s", error)
