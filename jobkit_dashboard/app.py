"""Dashboard: the wiring of one dashboard.

Invariant: it is closed by default. Without `auth=` it cannot be made, every address has a permission, and a read-only
dashboard has no address that writes.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from jobkit.core import Core
from jobkit.errors import ConfigError
from jobkit.hookspecs import Actor
from jobkit_dashboard.assets import Assets
from jobkit_dashboard.cache import Samples
from jobkit_dashboard.extensions import Extensions
from jobkit_dashboard.guard.hosts import HostRule
from jobkit_dashboard.guard.limits import Refused
from jobkit_dashboard.guard.throttle import LoginThrottle, Rate, SearchGate
from jobkit_dashboard.render import Renderer
from jobkit_dashboard.request import Incoming
from jobkit_dashboard.routing import Router
from jobkit_dashboard.server import Server
from jobkit_dashboard.settings import DashboardSettings
from jobkit_dashboard.signin import SignIn
from jobkit_dashboard.store import Store
from jobkit_dashboard.urls import routes

if TYPE_CHECKING:
    from jobkit import Jobkit
    from jobkit_dashboard.auth import Auth

__all__ = ["Dashboard"]

PLUGIN = "dashboard"


class _Rates:
    """60 writes a minute for each actor, 6 of them bulk."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._writes = Rate(60, 60.0, monotonic)
        self._bulk = Rate(6, 60.0, monotonic)

    def write(self, actor: str) -> None:
        """Count a write. Raises Refused (429)."""
        self._refuse(self._writes.add(actor))

    def bulk(self, actor: str) -> None:
        """Count a bulk action. Raises Refused (429)."""
        self._refuse(self._bulk.add(actor))

    @staticmethod
    def _refuse(wait: float) -> None:
        if wait:
            raise Refused(429, "too many changes a minute; wait a little", retry_after=int(wait) + 1)


class Dashboard:
    """The web pages of one app, as an ASGI application (`asgi`).

    - `app`: a Jobkit. `auth`: who sends a request, see `jobkit_dashboard.auth`; there is no default.
    - `mount_path`: where it stands (`/admin/jobs`), where the server does not say so itself by `root_path`.
    - `allowed_hosts`: the Hosts that are answered; None leaves that to the app that it is mounted in.
    - `public_origins`: origins (`https://example.org`) that forms may come from besides the request's own.
    - `trusted_proxies`: networks whose `X-Forwarded-*` headers are believed.
    - `frame_ancestors`: origins that may embed the pages.
    - `label`, `colour`: shown in the top bar; they default to `[plugins.dashboard]`.

    Raises ConfigError, and ValueError for values that make no sense.
    """

    def __init__(
        self,
        app: Jobkit | Core,
        *,
        auth: Auth | SignIn | None = None,
        mount_path: str | None = None,
        allowed_hosts: Iterable[str] | None = None,
        public_origins: Iterable[str] = (),
        trusted_proxies: Iterable[str] = (),
        behind_tls_proxy: bool = False,
        own_tls: bool = False,
        frame_ancestors: Iterable[str] = (),
        read_only: bool = False,
        api: bool | None = None,
        label: str | None = None,
        colour: str | None = None,
    ) -> None:
        if auth is None:
            raise ConfigError("the dashboard needs auth=: who may come in (see jobkit_dashboard.auth)")
        self.core: Core = app if isinstance(app, Core) else app.core
        self.core.registry.load()
        self.settings = self.core.config.plugin(PLUGIN, DashboardSettings)
        self.sign_in = auth if isinstance(auth, SignIn) else None
        self.auth: Auth = self._session_actor if isinstance(auth, SignIn) else auth
        self.open = bool(getattr(auth, "open", False))
        self.mount_path = None if mount_path is None else _mount(mount_path)
        self.host_rule = HostRule(allowed_hosts)
        self.public_origins = tuple(public_origins)
        self.trusted_proxies = tuple(ipaddress.ip_network(network) for network in trusted_proxies)
        self.behind_tls_proxy, self.own_tls = behind_tls_proxy, own_tls
        self.frame_ancestors = tuple(frame_ancestors)
        self.read_only = read_only
        self.api = self.settings.api if api is None else api
        self.label = self.settings.label if label is None else label
        self.colour = colour or self.settings.colour
        monotonic = self.core.clock.monotonic
        self.samples, self.rates = Samples(monotonic), _Rates(monotonic)
        self.searches, self.logins = SearchGate(), LoginThrottle(monotonic)
        self.extensions = Extensions(self.core)
        self.assets = Assets(self.core)
        self.renderer = Renderer(self.extensions.package_of)
        self.nav = self.extensions.nav()
        self.plugin_routes = {(b.plugin, b.item.path): b.item for b in self.extensions.routes()}
        self.router = Router(routes(login=self.has_login, with_api=self.api), read_only=read_only)
        self.server = Server(self)

    @property
    def asgi(self) -> Server:
        """The ASGI application, to be mounted or served."""
        return self.server

    @property
    def has_login(self) -> bool:
        """Whether there are sessions and a login page of ours."""
        return self.sign_in is not None

    @cached_property
    def store(self) -> Store:
        """Sessions, links and tokens."""
        return Store(self.core)

    def token_actor(self, token: str) -> Actor | None:
        """Whose API token this is."""
        stored = self.store.find("token", token)
        return None if stored is None else stored.actor

    def cookie_name(self, kind: Literal["session", "form", "prefs"], request: Incoming) -> str:
        """A name of its own for each place: cookies ignore ports, and `__Host-` ones paths."""
        where = hashlib.sha256(f"{request.host}{request.root}".encode()).hexdigest()[:8]
        if request.secure:
            return f"__Host-jobkit-{kind}-{where}"
        port = request.host.rpartition(":")[2]
        return f"jobkit-{kind}-{port if port.isdecimal() else '80'}-{where}"

    def _session_actor(self, connection: object) -> Actor | None:
        assert self.sign_in is not None
        return self.sign_in.actor(self, connection)  # type: ignore[arg-type]


def _mount(path: str) -> str:
    stripped = path.rstrip("/")
    if stripped and (
        not stripped.startswith("/") or "//" in stripped or any(c in stripped for c in "?#\\ \"'<>;,")
    ):
        raise ValueError(f"mount_path {path!r} must be a path such as /admin/jobs")
    return stripped
