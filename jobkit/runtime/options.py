"""How one node differs from what the configuration says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

__all__ = ["NodeOptions"]

ALWAYS = frozenset({"heartbeat"})


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What `jobkit run` may say about a node.

    - `name`: the node is `<name>:<nonce>` instead of `<hostname>:<pid>:<nonce>`.
    - `grace`: how long running jobs have at the end; None = `shutdown_grace`.
    - `drain`: end once no job is due. `max_jobs`: end after this many.
    - `only`: run the services of these plugins alone (heartbeat always runs); `without`: leave these out.
    - `leaving`: the process ends with the node, so jobs whose threads still live are given back.
    """

    name: str | None = None
    grace: timedelta | None = None
    drain: bool = False
    max_jobs: int | None = None
    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    leaving: bool = False

    def keeps(self, plugin: str) -> bool:
        """Whether this plugin's services run on the node."""
        if plugin in ALWAYS:
            return True
        return plugin not in self.without and (self.only is None or plugin in self.only)
