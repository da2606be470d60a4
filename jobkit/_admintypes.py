"""What the administration hooks pass and return; public under `jobkit.hookspecs`.

Invariant: values only; whoever decides (a policy, a check) gets all it needs as arguments and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause

    from jobkit.core import Core

__all__ = ["Actor", "AuditEvent", "Check", "CheckContext", "Finding", "Qualifier", "Resource", "Via"]

Via: TypeAlias = Literal["web", "cli", "api", "system"]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts. `id` is stable (`user@host` on the command line), `label` is for people; `roles` may be
    empty.
    """

    id: str
    label: str = ""
    via: Via = "system"
    roles: frozenset[str] = frozenset()
    attributes: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """The label, or the id where there is none."""
        return self.label or self.id


@dataclass(frozen=True, slots=True)
class Resource:
    """What is acted on: `kind` is `job`, `queue`, `node`, `cron`, `worker`, `plugin`, `audit` or `operation`.

    `id` is the one thing's id or name; None means the kind as such (a list, a bulk action). For a job
    `queue`, `worker` and `tags` are given where they are known.
    """

    kind: str
    id: str | None = None
    queue: str | None = None
    worker: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One operator action, as its audit row holds it; `before` and `after` have the changed fields,
    redacted.
    """

    at: datetime
    actor: Actor
    action: str
    target_kind: str
    ids: tuple[str, ...]
    count: int
    result: Literal["ok", "denied", "conflict", "failed"]
    query: str | None = None
    before: Mapping[str, object] = field(default_factory=dict)
    after: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""
    operation_id: int | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a health check found: `ok`, `attention` (works, but look) or `broken`; `fix` is a command or a
    sentence.
    """

    level: Literal["ok", "attention", "broken"]
    text: str
    cause: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What a health check gets. `conn` is None where the database cannot be reached or must not be asked."""

    app: Core
    conn: Connection | None
    now: datetime


@dataclass(frozen=True, slots=True)
class Check:
    """One health check. `id` is unique and is what `doctor --only` takes; `needs_database` checks are left
    out where there is no connection. `run` gets a read connection, takes at most a second, and changes
    nothing."""

    id: str
    title: str
    run: Callable[[CheckContext], Finding | Sequence[Finding]]
    needs_database: bool = True


@dataclass(frozen=True, slots=True)
class Qualifier:
    """One word of the query language, `name:value`.

    - `parse(text)` turns one value into what the compilers take; ValueError's text is shown to the user.
    - `compile_pg(jobs, value)` and `compile_sqlite(jobs, value)` return a condition over the jobs table.
    - `suggest(prefix)` returns values for completion, without asking the database for more than an index can
      give.
    - `redacted`: values may be secret, so the qualifier is refused with an explanation.
    """

    name: str
    parse: Callable[[str], object]
    compile_pg: Callable[[FromClause, object], ColumnElement[bool]]
    compile_sqlite: Callable[[FromClause, object], ColumnElement[bool]]
    suggest: Callable[[str], Sequence[str]] | None = None
    redacted: bool = False
    aliases: tuple[str, ...] = ()
    help: str = ""
