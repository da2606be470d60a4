"""How one node differs from what the configuration says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from jobkit._hooktypes import Service

__all__ = ["NodeOptions"]

ALWAYS = frozenset({"heartbeat"})


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What `jobkit run` may say about a node.

    - `name`: the node is `<name>:<nonce>` instead of `<hostname>:<pid>:<nonce>`.
    - `grace`: how long running jobs have at the end; None = `shutdown_grace`.
    - `drain`: end once no job is due. `max_jobs`: end after this many.
    - `only`: run the services of these plugins alone; `without`: leave these out. Neither takes away the heartbeat,
      nor the outer services of a plugin that stands in for it.
    - `leaving`: the process ends with the node, so jobs whose threads still live are given back.
    """

    name: str | None = None
    grace: timedelta | None = None
    drain: bool = False
    max_jobs: int | None = None
    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    leaving: bool = False

    def keeps(self, plugin: str, service: Service) -> bool:
        """Whether this service of this plugin runs on the node."""
        if plugin in ALWAYS or service.phase == "outer":
            return True
        return plugin not in self.without and (self.only is None or plugin in self.only)
