"""Who sends a request: ready-made answers for `Dashboard(auth=...)`.

An `auth` is a callable from a Starlette `HTTPConnection` to an `Actor` or None, sync (then it runs in a thread) or
async. Invariant: it is asked at every request, so whoever loses their rights in the host app loses them here at once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import inspect
import ipaddress
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from starlette.requests import HTTPConnection

from jobkit.hookspecs import Actor
from jobkit_dashboard.passwords import ROLES, Users

__all__ = ["Auth", "allow_all", "basic", "flask_login", "proxy_header", "starlette_user"]

Auth: TypeAlias = Callable[[HTTPConnection], "Actor | Awaitable[Actor | None] | None"]
RoleOf: TypeAlias = Callable[[Any], "str | Iterable[str] | None"]

log = logging.getLogger("jobkit.dashboard")
_MOST_KNOWN: Final = 256


def roles(given: str | Iterable[str] | None) -> frozenset[str]:
    """Roles as a set; raises ValueError for one that does not exist."""
    found = frozenset([given] if isinstance(given, str) else given or ())
    unknown = found - set(ROLES)
    if unknown:
        raise ValueError(f"there is no role {sorted(unknown)[0]!r}; roles are {', '.join(ROLES)}")
    return found


def _actor(name: str, given: str | Iterable[str] | None) -> Actor | None:
    found = roles(given)
    return Actor(name, name, "web", found) if found else None


def starlette_user(role: RoleOf) -> Auth:
    """For apps with Starlette's AuthenticationMiddleware: `role(user)` names the user's role, None is no access."""

    def authenticate(connection: HTTPConnection) -> Actor | None:
        user = connection.scope.get("user")
        if user is None or not user.is_authenticated:
            return None
        return _actor(getattr(user, "identity", "") or user.display_name, role(user))

    return authenticate


def flask_login(app: Any, role: RoleOf) -> Auth:
    """For Flask apps with flask-login: `role(user)` names the user's role, None is no access."""

    def authenticate(connection: HTTPConnection) -> Actor | None:
        from flask_login import current_user  # type: ignore[import-not-found,unused-ignore]

        with app.request_context(connection.scope["wsgi_environ"]):
            if not current_user.is_authenticated:
                return None
            return _actor(str(current_user.get_id()), role(current_user))

    return authenticate


def basic(users_file: str | Path) -> Auth:
    """HTTP basic authentication against a password file; only sensible over TLS or on loopback."""
    users = Users(users_file)
    known: dict[str, Actor] = {}
    lock = threading.Lock()

    def authenticate(connection: HTTPConnection) -> Actor | None:
        kind, _, value = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        # scrypt is slow on purpose, and browsers send the same words with every request.
        key = hashlib.sha256(value.encode()).hexdigest()
        with lock:
            if key in known:
                return known[key]
        actor = users.check(name, password)
        if actor is not None:
            with lock:
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                known[key] = actor
        return actor

    authenticate.challenge = 'Basic realm="jobkit", charset="UTF-8"'  # type: ignore[attr-defined]
    return authenticate


def proxy_header(
    name: str, *, trusted_proxies: Iterable[str], role: str | Callable[[str], str | None] = "viewer"
) -> Auth:
    """The user that a proxy names in a header; believed from the given networks only."""
    networks = [ipaddress.ip_network(network) for network in trusted_proxies]
    if not networks:
        raise ValueError("proxy_header needs the networks of the proxies it may believe")

    def authenticate(connection: HTTPConnection) -> Actor | None:
        values = connection.headers.getlist(name)
        if not trusted(connection.client.host if connection.client else None, networks) or len(values) != 1:
            return None
        user = values[0].strip()
        if not user or len(user) > 200 or not user.isprintable():
            return None
        return _actor(user, role(user) if callable(role) else role)

    return authenticate


def trusted(peer: str | None, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    """Whether an address lies in one of the networks."""
    try:
        address = ipaddress.ip_address(peer or "")
    except ValueError:
        return False
    return any(address in network for network in networks if network.version == address.version)


def allow_all(*, i_understand: bool = False, role: str = "admin") -> Auth:
    """Everybody may do everything that `role` may; for demonstrations. Warns at each start, and on every page."""
    if not i_understand:
        raise ValueError(
            "allow_all opens the dashboard to everybody; say allow_all(i_understand=True) if that is meant"
        )
    log.warning("the dashboard is open to everybody who can reach it")
    anyone = Actor("anyone", "anyone", "web", roles(role))

    def authenticate(connection: HTTPConnection) -> Actor | None:
        return anyone

    authenticate.open = True  # type: ignore[attr-defined]
    return authenticate


async def ask(
    auth: Auth, connection: HTTPConnection, in_thread: Callable[..., Awaitable[Any]]
) -> Actor | None:
    """Ask an auth of either kind; raises TypeError where it gives something else."""
    if inspect.iscoroutinefunction(auth) or inspect.iscoroutinefunction(getattr(auth, "__call__", None)):  # noqa: B004
        answer = auth(connection)
    else:
        answer = await in_thread(auth, connection)
    if inspect.isawaitable(answer):
        answer = await answer
    if answer is not None and not isinstance(answer, Actor):
        raise TypeError(f"auth gave a {type(answer).__name__}; expected an Actor or None")
    return answer
