"""A dashboard that stands alone: what it binds, who may come in, and the server under it.

Invariant: beyond loopback nothing is served without authentication and TLS, whatever the options say together.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobkit.errors import ConfigError
from jobkit_dashboard.guard.hosts import loopback_hosts

if TYPE_CHECKING:
    import uvicorn

    from jobkit.core import Core
    from jobkit_dashboard.app import Dashboard

__all__ = [
    "Standalone",
    "beside",
    "bind",
    "dashboard_for",
    "is_loopback",
    "link_url",
    "refusal",
    "server_for",
    "write_private",
]


@dataclass(frozen=True, slots=True)
class Standalone:
    """What the command line says."""

    host: str = "127.0.0.1"
    port: int = 8778
    root_path: str = ""
    read_only: bool = False
    auth: str | None = None
    password_file: str | None = None
    proxy_header: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    role: str = "viewer"
    allowed_hosts: tuple[str, ...] = ()
    behind_tls_proxy: bool = False
    certificate: str | None = None
    key: str | None = None
    api: bool | None = None

    @property
    def own_tls(self) -> bool:
        """Whether TLS ends here."""
        return self.certificate is not None

    @property
    def has_links(self) -> bool:
        """Whether one-time links open the door."""
        return self.auth is None and self.proxy_header is None


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refusal(options: Standalone) -> str | None:
    """Why these options would leave the dashboard exposed; None where they do not."""
    if options.proxy_header and not options.trusted_proxies:
        return "--trust-proxy-header needs --trusted-proxies: the networks that may set it"
    if bool(options.certificate) != bool(options.key):
        return "--tls-cert and --tls-key belong together"
    if is_loopback(options.host):
        return None
    if not (options.auth or options.password_file or options.proxy_header):
        return (
            f"{options.host} can be reached by others: name who may come in with --password-file, --auth or "
            "--trust-proxy-header"
        )
    if not (options.own_tls or options.behind_tls_proxy):
        return f"{options.host} can be reached by others: give --tls-cert and --tls-key, or say --behind-tls-proxy"
    return None


def dashboard_for(app: Core, options: Standalone) -> Dashboard:
    """The dashboard for these options. Raises ConfigError."""
    from jobkit_dashboard import auth
    from jobkit_dashboard.app import Dashboard
    from jobkit_dashboard.passwords import Users
    from jobkit_dashboard.signin import SignIn

    problem = refusal(options)
    if problem is not None:
        raise ConfigError(problem)
    who: Any
    if options.auth:
        who = _named(options.auth)
    elif options.proxy_header:
        who = auth.proxy_header(
            options.proxy_header, trusted_proxies=options.trusted_proxies, role=options.role
        )
    else:
        who = SignIn(Users(options.password_file) if options.password_file else None)
    return Dashboard(
        app,
        auth=who,
        mount_path=options.root_path or None,
        allowed_hosts=_hosts(options),
        trusted_proxies=options.trusted_proxies,
        behind_tls_proxy=options.behind_tls_proxy,
        own_tls=options.own_tls,
        read_only=options.read_only,
        api=options.api,
    )


def _hosts(options: Standalone) -> frozenset[str]:
    hosts = set(options.allowed_hosts)
    if is_loopback(options.host):
        hosts |= loopback_hosts(options.port)
    elif options.host not in ("0.0.0.0", "::", ""):
        name = f"[{options.host}]" if ":" in options.host else options.host
        hosts.add(f"{name}:{options.port}")
    if not hosts:
        raise ConfigError("name the host that browsers use: --allowed-host jobs.example.org")
    return frozenset(hosts)


def _named(spec: str) -> object:
    """The callable that `module:attribute` names; the working directory is importable."""
    import importlib
    import sys

    module, _, attribute = spec.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ConfigError(f"auth: {spec!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ConfigError(f"auth: {spec!r} is a {type(found).__name__}, expected a callable")
    return found


def bind(options: Standalone) -> list[socket.socket]:
    """Listening sockets; `localhost` is both of its addresses. Raises ConfigError naming the address."""
    hosts = ["127.0.0.1", "::1"] if options.host == "localhost" else [options.host]
    sockets: list[socket.socket] = []
    for host in hosts:
        try:
            sockets.append(_listen(host, options.port))
        except OSError as error:
            if sockets:
                continue  # a machine without IPv6
            other = "; take another one with --port" if error.errno == errno.EADDRINUSE else ""
            raise ConfigError(
                f"{host}:{options.port} cannot be bound: {error.strerror or error}{other}"
            ) from None
    return sockets


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


def server_for(dash: Dashboard, options: Standalone) -> uvicorn.Server:
    """The HTTP server; it says nothing of itself, and reads no proxy header."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            dash.asgi,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ssl_certfile=options.certificate,
            ssl_keyfile=options.key,
            h11_max_incomplete_event_size=64 * 1024,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=5,
        )
    )


def link_url(options: Standalone, token: str) -> str:
    """The address of a one-time link."""
    scheme = "https" if options.own_tls else "http"
    host = f"[{options.host}]" if ":" in options.host else options.host
    if not is_loopback(options.host):
        scheme = "https"
        host = options.allowed_hosts[0] if options.allowed_hosts else host
    port = "" if not is_loopback(options.host) and options.behind_tls_proxy else f":{options.port}"
    return f"{scheme}://{host}{port}{options.root_path.rstrip('/')}/-/login?token={token}"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def served(sockets: Sequence[socket.socket]) -> str:
    """The addresses that are listened on, for people."""
    return ", ".join("{}:{}".format(*sock.getsockname()[:2]) for sock in sockets)


@contextmanager
def beside(app: Core) -> Iterator[str]:
    """Serve the dashboard on its usual place in a thread, as long as the block runs; yields the link that opens it.

    Raises ConfigError where the place is taken.
    """
    from jobkit_dashboard.signin import new_link
    from jobkit_dashboard.store import Store

    options = Standalone()
    server = server_for(dashboard_for(app, options), options)
    sockets = bind(options)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": sockets}, name="jobkit-dashboard", daemon=True
    )
    thread.start()
    try:
        yield link_url(options, new_link(Store(app)))
    finally:
        server.should_exit = True
        thread.join(5)
