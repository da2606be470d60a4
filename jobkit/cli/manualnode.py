"""A stand-in for a node, with which a service's round can be run by hand.

Invariant: it runs no jobs and has no row, so nothing that a service asks of it changes anything.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobkit.core import Core
    from jobkit.hookspecs import Service
    from jobkit.jobs import Lease

__all__ = ["ManualNode", "service_of"]


class ManualNode:
    """Implements `jobkit.hookspecs.Node` for a process without a node."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.id = f"{socket.gethostname()}:{os.getpid()}:manual"
        self.queues: Mapping[str, int] = {}

    @property
    def last_beat(self) -> float | None:
        """Just now: this process looks at the database itself."""
        return self._core.clock.monotonic()

    def leases(self) -> frozenset[Lease]:
        """None."""
        return frozenset()

    def in_flight(self) -> frozenset[datetime]:
        """None."""
        return frozenset()

    def abort(self, lease: Lease) -> None:
        """There is nothing to abort."""

    def wake(self, queue: str) -> None:
        """There is no producer."""

    def set_queue(self, name: str, paused: bool, limit: int) -> None:
        """There are no queues."""

    def command(self, paused: bool, drain: bool) -> None:
        """There is nothing to command."""

    def renew(self) -> None:
        """There is no row."""

    def beat(self, ok: bool) -> None:
        """Nobody looks at it."""

    def loop_lag(self) -> float:
        """There is no loop."""
        return 0.0

    def blocked_by(self) -> str:
        """Nothing."""
        return ""

    def info(self) -> Mapping[str, object]:
        """Nothing."""
        return {}


def service_of(core: Core, node: ManualNode, plugin: str) -> Service | None:
    """The service of a plugin, or of the one that replaces it."""
    standing_in = (s.name for s in core.registry.plugins if s.status == "active" and s.replaces == plugin)
    owner = next(standing_in, plugin)
    found = [service for name, service in core.registry.services(core, node) if name == owner]
    named = [service for service in found if service.name == plugin]
    return next(iter(named or found), None)
