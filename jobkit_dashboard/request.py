"""A request as handlers see it.

Invariant: what a proxy's headers say counts only where the peer is a proxy that we trust; the root comes from the
server or our configuration, never from a header.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.requests import HTTPConnection

from jobkit_dashboard.auth import trusted
from jobkit_dashboard.guard.hosts import host_of
from jobkit_dashboard.guard.limits import MAX_FIELDS, MAX_URL, Refused

__all__ = ["Fields", "Incoming", "Network", "incoming"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Fields(Mapping[str, str]):
    """Fields of a query string or a form: the last value of each by name, all of them by `all`."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = tuple(pairs)
        self._last = dict(self.pairs)

    def __getitem__(self, name: str) -> str:
        return self._last[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def all(self, name: str) -> tuple[str, ...]:
        """Every value of a field."""
        return tuple(value for key, value in self.pairs if key == name)

    def text(self, name: str, most: int = 1_000) -> str:
        """A field without outer blanks, cut to `most` characters; empty where it is missing."""
        return self._last.get(name, "").strip()[:most]


@dataclass(slots=True)
class Incoming:
    """One request. `root` is where the dashboard stands, `path` what follows it and begins with a slash."""

    method: str
    root: str
    path: str
    query: Fields
    headers: Mapping[str, str]
    scheme: str
    host: str
    address: str
    connection: HTTPConnection
    form: Fields = field(default_factory=Fields)
    body: bytes = b""
    request_id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies by name."""
        return self.connection.cookies

    @property
    def secure(self) -> bool:
        """Whether the browser came over TLS."""
        return self.scheme == "https"

    @property
    def bearer(self) -> str | None:
        """The bearer token, where one is given."""
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else None

    @property
    def origins(self) -> tuple[str, ...]:
        """The origin that this request was sent to."""
        return (f"{self.scheme}://{self.host}",)


def incoming(
    scope: MutableMapping[str, Any], *, mount_path: str | None, proxies: Sequence[Network], tls_proxy: bool
) -> Incoming:
    """Read a scope; raises Refused (400, 414)."""
    raw: bytes = scope.get("raw_path") or b""
    query: bytes = scope.get("query_string", b"")
    if len(raw) + len(query) > MAX_URL or len(scope["path"]) > MAX_URL:
        raise Refused(414, "the address is too long")
    connection = HTTPConnection(scope)
    root, path = _split(scope, mount_path)
    peer = connection.client.host if connection.client else ""
    scheme, address = scope.get("scheme", "http"), peer
    if proxies and trusted(peer, proxies):
        scheme = _one_of(connection.headers.get("x-forwarded-proto", ""), scheme)
        address = _client(connection.headers.get("x-forwarded-for", ""), peer, proxies)
    found = Incoming(
        method=scope["method"],
        root=root,
        path=path,
        query=_query(query),
        headers=connection.headers,
        scheme="https" if tls_proxy else scheme,
        host=host_of(scope["headers"]) or "",
        address=address,
        connection=connection,
    )
    scope["jobkit.request"] = found
    return found


def _query(raw: bytes) -> Fields:
    try:
        text = raw.decode("ascii", "replace")
        return Fields(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="replace"))
    except ValueError:
        raise Refused(400, f"an address has at most {MAX_FIELDS:,} fields") from None


def _split(scope: Mapping[str, Any], mount_path: str | None) -> tuple[str, str]:
    """Where we stand and what is asked for, whether or not a proxy has stripped the prefix."""
    given: str = scope.get("root_path", "").rstrip("/")
    root = given if mount_path is None else mount_path
    path: str = scope["path"]
    for prefix in dict.fromkeys((given, root)):
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            path = path[len(prefix) :]
    path = path or "/"
    if not path.startswith("/") or "\x00" in path or ".." in unquote(path).split("/"):
        raise Refused(400, "the address is malformed")
    return root, path


def _one_of(given: str, otherwise: str) -> str:
    last = given.rpartition(",")[2].strip().lower()
    return last if last in ("http", "https") else otherwise


def _client(given: str, peer: str, proxies: Sequence[Network]) -> str:
    """The nearest address that is no proxy of ours."""
    for address in reversed([part.strip() for part in given.split(",") if part.strip()]):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            break
        if not trusted(address, proxies):
            return address
    return peer
