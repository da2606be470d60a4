"""Who may do what, and which jobs they may see.

Invariants: what is not allowed is forbidden; a plugin's no beats every yes; a policy that fails counts as a
no, and a row scope that fails shows nothing.
"""

from __future__ import annotations

import getpass
import logging
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from jobkit.admin.errors import AdminError, NotPermitted
from jobkit.admin.query import Parsed, Query, Vocabulary, parse
from jobkit.hookspecs import Actor, Qualifier, Resource

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["PERMISSIONS", "ROLES", "allowed", "cli_actor", "require", "row_scope", "vocabulary"]

log = logging.getLogger("jobkit.admin")

_PAGES: Final = (
    *("overview", "jobs", "errors", "queues", "nodes", "cron", "batches", "workflows", "metrics"),
    *("plugins", "audit"),
)
_VIEWS: Final = frozenset(f"view.{page}" for page in _PAGES)
_OPERATOR: Final = frozenset(
    {
        *("jobs.retry", "jobs.run_now", "jobs.cancel", "jobs.probe", "queues.pause", "queues.resume"),
        *("cron.run", "cron.pause", "errors.mute"),
    }
)
_REST: Final = frozenset(
    {
        *("jobs.delete", "jobs.insert", "jobs.insert_any", "jobs.edit", "jobs.edit_args", "jobs.export"),
        *("queues.scale", "queues.stop", "nodes.pause", "nodes.drain", "nodes.forget"),
        *("cron.create", "cron.edit", "cron.delete", "batches.retry", "batches.cancel"),
        *("workflows.retry", "workflows.cancel", "views.share", "operations.cancel", "sessions.revoke"),
    }
)
PERMISSIONS: Final = _VIEWS | _OPERATOR | _REST
"""Every permission there is; a plugin's own are named `plugin.what` and need its `jobkit_authorize`."""
ROLES: Final[Mapping[str, frozenset[str]]] = {
    "viewer": _VIEWS - {"view.audit"},
    "operator": (_VIEWS - {"view.audit"}) | _OPERATOR,
    "admin": PERMISSIONS,
}


def cli_actor() -> Actor:
    """Who acts on the command line: `user@host`."""
    user = "unknown"
    with suppress(Exception):  # no login name, no password entry, as in some containers
        user = getpass.getuser()
    return Actor(f"{user}@{socket.gethostname()}", user, "cli")


def allowed(app: Core, actor: Actor, action: str, resource: Resource) -> bool:
    """Whether the actor may; asks `jobkit_authorize`, then the roles (the command line is allowed).

    Raises ConfigError where the configuration is wrong: that is no answer of a policy.
    """
    app.registry.load()
    try:
        answers = [
            answer
            for _, answer in app.registry.ask(
                "jobkit_authorize", actor=actor, action=action, resource=resource
            )
        ]
    except Exception:
        log.exception("jobkit_authorize failed for %s; counted as a no", action)
        return False
    if any(answer is False for answer in answers):
        return False
    if any(answer is True for answer in answers):
        return True
    if actor.via in ("cli", "system"):
        return True
    return any(action in ROLES.get(role, frozenset()) for role in actor.roles)


def require(app: Core, actor: Actor, action: str, resource: Resource) -> None:
    """Raises NotPermitted unless the actor may."""
    if not allowed(app, actor, action, resource):
        raise NotPermitted(action)


def vocabulary(app: Core) -> Vocabulary:
    """The query language of this app: plugins' qualifiers included, clashes left out."""
    app.registry.load()
    revision = app.registry.revision
    return app.once(("admin.vocabulary", revision), lambda: Vocabulary(_qualifiers(app)))


def _qualifiers(app: Core) -> list[Qualifier]:
    found: list[Qualifier] = []
    known = Vocabulary()
    for plugin, given in app.registry.gather("jobkit_query_qualifiers"):
        try:
            offered = list(given)  # type: ignore[call-overload]
        except Exception as error:  # noqa: BLE001 - whatever a plugin gives
            app.registry.failed(plugin, "jobkit_query_qualifiers", error)
            continue
        for qualifier in offered:
            if problem := _refused(qualifier, known):
                app.registry.failed(plugin, "jobkit_query_qualifiers", ValueError(problem))
                continue
            found.append(qualifier)
            known = Vocabulary(found)
    return found


def _refused(qualifier: object, known: Vocabulary) -> str:
    if not isinstance(qualifier, Qualifier):
        return f"it gave {qualifier!r:.100}, expected a Qualifier"
    taken = [name for name in (qualifier.name, *qualifier.aliases) if known.field(name)]
    return f"the qualifier {taken[0]!r} has a meaning already" if taken else ""


def row_scope(app: Core, actor: Actor) -> Query:
    """What every read and action of this actor is ANDed with. Raises AdminError where it cannot be told,
    ConfigError where the configuration is wrong.
    """
    app.registry.load()
    try:
        answers = app.registry.ask("jobkit_row_scope", actor=actor)
    except Exception as error:
        log.exception("jobkit_row_scope failed; nothing is shown")
        raise AdminError("the row scope of this actor could not be determined; nothing is shown") from error
    scope = Query()
    for plugin, answer in answers:
        scope &= _scope(app, plugin, answer)
    return scope


def _scope(app: Core, plugin: str, answer: object) -> Query:
    if isinstance(answer, Query):
        return answer
    parsed = parse(answer, vocabulary(app)) if isinstance(answer, str) else answer
    if not isinstance(parsed, Parsed) or parsed.problems:
        raise AdminError(f"plugin {plugin} gave a row scope that is no query; nothing is shown")
    return parsed.query.without("sort")
