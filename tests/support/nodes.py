"""A node for tests of services: it is what a service sees of one, and nothing runs on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from jobkit.jobs import Lease


@dataclass(eq=False)
class StillNode:
    """Implements `jobkit.hookspecs.Node`; a test sets what it holds and reads what it was told."""

    id: str = "host:1:aaaaaaaa"
    queues: Mapping[str, int] = field(default_factory=lambda: {"default": 10})
    held: set[Lease] = field(default_factory=set)
    flying: set[datetime] = field(default_factory=set)
    aborted: list[Lease] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    settings: dict[str, tuple[bool, int]] = field(default_factory=dict)
    commands: list[tuple[bool, bool]] = field(default_factory=list)
    renewals: int = 0
    beats: list[bool] = field(default_factory=list)
    last_beat: float | None = None
    lag: float = 0.0
    blocker: str = ""

    def leases(self) -> frozenset[Lease]:
        return frozenset(self.held)

    def in_flight(self) -> frozenset[datetime]:
        return frozenset(self.flying)

    def abort(self, lease: Lease) -> None:
        self.aborted.append(lease)

    def wake(self, queue: str) -> None:
        self.woken.append(queue)

    def set_queue(self, name: str, paused: bool, limit: int) -> None:
        self.settings[name] = (paused, limit)

    def command(self, paused: bool, drain: bool) -> None:
        self.commands.append((paused, drain))

    def renew(self) -> None:
        self.renewals += 1

    def beat(self, ok: bool) -> None:
        self.beats.append(ok)

    def loop_lag(self) -> float:
        return self.lag

    def blocked_by(self) -> str:
        return self.blocker

    def info(self) -> Mapping[str, object]:
        return {"pid": 1}

    def end_loop(self) -> None:
        """As if the node's event loop had ended."""
        self.lag = math.inf
