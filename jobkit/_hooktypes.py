"""What the hooks of the kernel pass and return; public under `jobkit.hookspecs`.

Invariant: plain values and protocols only, so that a plugin can build or imitate each of them in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.jobs import JobInfo, Lease
    from jobkit.outcomes import Outcome
    from jobkit.storage.base import Observers, Storage
    from jobkit.storage.schema import Tables
    from jobkit.workers import Worker

__all__ = ["API", "JobContext", "Node", "PluginInfo", "Runner", "Service", "StorageFactory"]

API: Final = 1
"""The number of the hook contract; `PluginInfo.api` must equal it."""


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What a plugin says about itself, as an attribute `jobkit_plugin` of the plugin's module or object.

    - `api`: the hook contract it was written against, `jobkit.hookspecs.API`.
    - `replaces`: the name of one plugin that it stands in for (`"pruner"`). Without it, a shared name is a
      duplicate.
    - `requires`: names of plugins without which it cannot work; it is skipped where one is missing.
    - `settings`: a dataclass or msgspec.Struct into which `[plugins.NAME]` of the configuration is decoded.
    - `hookspecs`: a module with hook specifications that this plugin adds for others to implement.
    """

    api: int
    replaces: str | None = None
    requires: Sequence[str] = ()
    settings: type | None = None
    hookspecs: str | None = None

    def __post_init__(self) -> None:
        """Check the types, so that a slip is reported with the plugin's name; raises TypeError."""
        if isinstance(self.api, bool) or not isinstance(self.api, int):
            raise TypeError(f"PluginInfo.api must be an int, not {self.api!r}")
        if isinstance(self.requires, str) or not all(isinstance(name, str) for name in self.requires):
            raise TypeError(f"PluginInfo.requires must be a list of plugin names, not {self.requires!r}")
        object.__setattr__(self, "requires", tuple(self.requires))
        for field, kind in (("replaces", str), ("settings", type), ("hookspecs", str)):
            value = getattr(self, field)
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"PluginInfo.{field} must be a {kind.__name__} or None, not {value!r}")


Tick: TypeAlias = "Callable[[Connection, datetime], int]"


@dataclass(frozen=True, slots=True)
class Service:
    """Something that a node does at intervals, on every node at once.

    - `name`: shown in logs and by `jobkit plugins`; unique within its plugin.
    - `interval`: a timedelta or seconds, more than 0; each pause is jittered by a tenth. Every service also
      ticks once when the node starts.
    - `tick(conn, now)`: one round; returns how many rows it changed. `conn` is a SQLAlchemy connection
      outside a transaction: the tick opens short ones itself (`with conn.begin():`). Ticks of one service
      never overlap on a node, yet run on every node at once, so they must be idempotent. A tick that raises
      is logged and tried again.
    - `thread`: `"shared"` with the node's other services, or its `"own"` thread and connection.
    - `phase`: `"outer"` services finish one round before producers start and stop after the last record.
    """

    name: str
    interval: timedelta | float
    tick: Tick
    thread: Literal["shared", "own"] = "shared"
    phase: Literal["normal", "outer"] = "normal"

    def __post_init__(self) -> None:
        """Check the values; raises ValueError naming the field."""
        if not self.name or not isinstance(self.name, str):
            raise ValueError(f"a service needs a name, not {self.name!r}")
        if not self.seconds > 0:
            raise ValueError(f"service {self.name!r}: the interval {self.interval!r} must be more than 0")
        if self.thread not in ("shared", "own"):
            raise ValueError(f"service {self.name!r}: thread is 'shared' or 'own', not {self.thread!r}")
        if self.phase not in ("normal", "outer"):
            raise ValueError(f"service {self.name!r}: phase is 'normal' or 'outer', not {self.phase!r}")

    @property
    def seconds(self) -> float:
        """The interval in seconds."""
        if isinstance(self.interval, timedelta):
            return self.interval.total_seconds()
        return float(self.interval)


@runtime_checkable
class Node(Protocol):
    """One running node, as services and lifecycle hooks see it. Every method may be called from any
    thread.
    """

    @property
    def id(self) -> str:
        """`<hostname>:<pid>:<nonce>`; another one after `renew()`."""
        ...

    @property
    def queues(self) -> Mapping[str, int]:
        """The queues it works on, each with how many of its jobs may run here at a time."""
        ...

    def leases(self) -> frozenset[Lease]:
        """The claims that this node holds: running, or finished and not yet recorded."""
        ...

    def in_flight(self) -> frozenset[datetime]:
        """The `attempted_at` of each claim whose reply has not arrived; which rows it wins is not known yet.

        A row of this node that is in neither set was claimed by a statement whose reply got lost. Take these
        two before reading the rows, and act only on what is stray at two beats in a row.
        """
        ...

    def abort(self, lease: Lease) -> None:
        """End the run that holds this lease: cancel its coroutine, turn `should_stop()` true, kill its child.

        Its result will not be written. Unknown leases are ignored.
        """
        ...

    def wake(self, queue: str) -> None:
        """Look for work in this queue now. Queues that the node does not work on are ignored."""
        ...

    def set_queue(self, name: str, paused: bool, limit: int) -> None:
        """Apply a queue's row: whether it is paused, and how many jobs may run here at a time (at least
        0).
        """
        ...

    def command(self, paused: bool, drain: bool) -> None:
        """Apply this node's own row: claim nothing while paused; `drain` ends the node once its jobs are
        done.
        """
        ...

    def renew(self) -> None:
        """This node was declared dead: abort all runs, take a new nonce, register anew and go on."""
        ...

    def beat(self, ok: bool) -> None:
        """Note that a heartbeat was written (`ok`) or failed."""
        ...

    @property
    def last_beat(self) -> float | None:
        """When the last good beat was written, on the clock's `monotonic()`; None before the first."""
        ...

    def loop_lag(self) -> float:
        """For how many seconds the event loop has not turned; `math.inf` once it has ended."""
        ...

    def blocked_by(self) -> str:
        """The job whose code the event loop is in, in words (`job 7 (resize_image)`), or an empty text."""
        ...

    def info(self) -> Mapping[str, object]:
        """Facts for the node's row: pid, host, versions, memory, each service's last tick. JSON values
        only.
        """
        ...


class JobContext:
    """What `jobkit_around_job` shares with the run: its outcome.

    `outcome` is None until the body has run; then it is the Outcome that `perform` gave, or None if it
    failed. A middleware may set it after the body, within its own context, and so decide what is recorded;
    setting it after an exception changes nothing, since a failure stays a failure.
    """

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome: Outcome | None = None


@runtime_checkable
class Runner(Protocol):
    """A way of running jobs of a plugin's own, as `jobkit_runner` may return one."""

    async def run(self, worker: Worker, job: JobInfo) -> object:
        """Run `worker.perform(job)` somewhere and return what it returned, or raise what it raised.

        Awaited on the node's event loop, inside the timeout; cancelled when the run must end. It has ended
        when this coroutine has ended, so do not return while job code still runs.
        """
        ...


class StorageFactory(Protocol):
    """Makes the storage of one database, as `jobkit_storage` may return it."""

    def __call__(self, tables: Tables, observers: Observers) -> Storage:
        """Return a Storage over these tables that calls these observers inside its transactions."""
        ...
