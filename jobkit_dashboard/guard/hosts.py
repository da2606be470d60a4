"""The Host allow-list: the answer to DNS rebinding.

Invariant: a request whose Host is missing, doubled, malformed or unknown reaches no handler, static files and
health included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["HostRule", "host_of", "loopback_hosts"]

_HOST: Final = re.compile(r"(?:\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9._-]{0,252}[a-z0-9])?)(?::[0-9]{1,5})?")
Headers = Sequence[tuple[bytes, bytes]]


def host_of(headers: Headers) -> str | None:
    """The one well-formed Host in lower case; None where it is missing, doubled or malformed."""
    values = [value for name, value in headers if name == b"host"]
    if len(values) != 1:
        return None
    host = values[0].decode("latin-1").lower()
    return host if _HOST.fullmatch(host) else None


def loopback_hosts(port: int) -> frozenset[str]:
    """The names under which a browser on this machine reaches a loopback port."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())


class HostRule:
    """Which Hosts are answered. Without a list (mounted), any well-formed one: the host app has its own rule.

    `example.org` also stands for its default ports; a name with a port stands for that port alone.
    """

    def __init__(self, allowed: Iterable[str] | None) -> None:
        self._allowed = None if allowed is None else frozenset(name.lower() for name in allowed)

    def refuses(self, headers: Headers) -> int | None:
        """The status to answer with, or None where the request may pass."""
        host = host_of(headers)
        if host is None:
            return 400
        if self._allowed is None or host in self._allowed:
            return None
        bare = re.sub(r":(80|443)$", "", host)
        return None if bare in self._allowed else 421
