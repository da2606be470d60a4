"""What a storage can do: the protocol `Storage`, and the values that go in and out.

Every other room reaches the database through these methods. They are synchronous and take a SQLAlchemy
`Connection`; async callers come through `AsyncConnection.run_sync`.

Invariants:

- A method runs in the transaction that is open on `conn`; where none is open it opens its own short one, and
  repeats that on deadlocks, serialization failures and SQLite's lock. `insert` is the exception: what it is
  given is mostly a user's transaction, which it joins and never ends, repeats or breaks.
- Every write to a job is conditional: on its lease (`Change.lease`) or on its state (`Change.expect`).
- Observers run inside the transaction; an error there rolls the change back. Without observers a claim and a
  record are one statement each.
- Times are aware UTC. JSON columns come back as text (`str` or `bytes`), undecoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol

from jobkit.jobs import Inserted, JobRow, JobState, Lease, Transition

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.storage.schema import Tables

__all__ = [
    "ERRORS_KEPT",
    "NO_OBSERVERS",
    "Arm",
    "Beat",
    "Change",
    "ClaimWish",
    "ClaimedJob",
    "EntryRow",
    "ErrorEntry",
    "Exchanged",
    "InsertedJob",
    "JsonText",
    "NodeRow",
    "Observers",
    "QueueDefaults",
    "QueueSettings",
    "Rescued",
    "Staged",
    "Storage",
]

ERRORS_KEPT: Final = 20
"""How many entries the `errors` column keeps: the newest."""

Arm = Literal["auto", "portable"]
JsonText = str | bytes


@dataclass(slots=True, eq=False)
class ClaimedJob:
    """A row that this node has just claimed. `args`, `meta`, `tags` are JSON text; `attempt` counts this
    run.
    """

    id: int
    worker: str
    queue: str
    args: JsonText
    meta: JsonText
    tags: JsonText
    attempt: int
    max_attempts: int
    priority: int
    inserted_at: datetime
    scheduled_at: datetime
    node: str
    attempted_at: datetime

    @property
    def lease(self) -> Lease:
        """What every later write on behalf of this run must carry."""
        return Lease(self.id, self.node, self.attempted_at)


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One entry of `errors`: `{"attempt", "at", "error"}`. The text is already redacted and cut."""

    attempt: int
    at: datetime
    error: str


@dataclass(slots=True, unsafe_hash=True)
class Change:
    """One conditional change of one job, by its lease (a run's result) or by its state (everything else).

    A value: nobody changes it once it is made (declaring it frozen would triple the cost of making one, per
    job).

    Exactly one of `lease` and `id` is given. With `lease`, the row must still be executing under that very
    claim; with `id`, its state must be one of `expect`. Fields left at None keep the column's value.
    """

    to: JobState | None
    """The new state; None leaves it (an edit). Never EXECUTING: only a claim does that."""
    at: datetime
    """When it happened: becomes completed_at, cancelled_at or discarded_at of a final state. Leaving a final
    state clears all three.
    """
    lease: Lease | None = None
    id: int | None = None
    expect: frozenset[JobState] = frozenset()
    scheduled_at: datetime | None = None
    attempt_delta: int = 0
    """Added to `attempt`, which never falls below 0."""
    error: ErrorEntry | None = None
    """Appended to `errors`; the newest 20 are kept."""
    snoozed: bool = False
    """meta.snoozed + 1."""
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    tags: str | None = None
    """JSON text of the new list."""
    spare_attempt: bool = False
    """Raise max_attempts to attempt + 1 where all attempts are used up."""

    @property
    def job_id(self) -> int:
        """The id of the job, whichever way the change is fenced."""
        if self.lease is not None:
            return self.lease.id
        assert self.id is not None
        return self.id


@dataclass(frozen=True, slots=True)
class ClaimWish:
    """What a producer wants: up to `limit` jobs of `queue`, none of the workers in `skip`."""

    queue: str
    limit: int
    skip: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What `exchange` did: the changes that landed, and the jobs claimed (all queues in one list)."""

    landed: list[Change]
    claimed: list[ClaimedJob]


@dataclass(frozen=True, slots=True)
class InsertedJob:
    """A row that was really inserted (no duplicate), as `jobkit_inserted` sees it."""

    id: int
    row: JobRow


@dataclass(frozen=True, slots=True)
class Observers:
    """What runs inside the transaction of an insert or a change of state; None = nothing does."""

    inserted: Callable[[Connection, list[InsertedJob]], None] | None = None
    transitions: Callable[[Connection, list[Transition]], None] | None = None


NO_OBSERVERS: Final = Observers()


@dataclass(frozen=True, slots=True)
class Staged:
    """How many rows became available, and in which queues."""

    count: int
    queues: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rescued:
    """How many orphans went back to `available`, how many ended as `discarded`, in which queues, whose they
    were.
    """

    available: int
    discarded: int
    queues: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()


class QueueDefaults(Protocol):
    """What `ensure_queues` needs to know of a queue (a `QueueConfig`)."""

    @property
    def paused(self) -> bool:
        """Whether a row that is made now starts paused."""
        ...


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue's row as one node must honour it: paused now, and the limit override that counts for this
    node.
    """

    paused: bool
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat read back: queue settings, commands for this node, and the rows it holds as
    executing.
    """

    queues: Mapping[str, QueueSettings]
    wanted: Mapping[str, object]
    executing: list[Lease]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One row of `job_nodes`. "Has changed" is decided by `beat`, never by a clock."""

    node: str
    beat: int
    started_at: datetime
    heartbeat_at: datetime
    lost_at: datetime | None
    queues: Mapping[str, int] = field(default_factory=dict)
    wanted: Mapping[str, object] = field(default_factory=dict)
    info: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One row of `recurring_entries`. Only instants later than `since` are due."""

    key: str
    cron: str
    timezone: str
    worker: str
    since: datetime
    paused: bool
    last_run_at: datetime | None
    reason: str | None = None
    paused_by: str | None = None


class Storage(Protocol):
    """One database, as the rest of jobkit sees it. See the module's invariants."""

    @property
    def tables(self) -> Tables:
        """The tables that the statements name."""
        ...

    @property
    def observed(self) -> bool:
        """True where a hook looks into transactions; a node then uses connections without autocommit."""
        ...

    # --- enqueueing

    def tells(self, rows: Sequence[JobRow]) -> bool:
        """Whether the statement that inserts these rows can notify a channel as well."""
        ...

    def insert(self, conn: Connection, rows: Sequence[JobRow], *, tell: str | None = None) -> list[Inserted]:
        """Writes the rows, or finds the unique jobs that are there already; one result per row, in order.

        `tell`: the channel that is notified of the rows' queue with the commit, where `tells` says that it can be.

        Works on any driver's connection, in the caller's transaction, which it never commits. On a node's
        autocommit connection a single statement commits by itself, and what takes several (more than the arm
        writes in one, or an observer) is made one transaction. It runs once: `retrying` is the caller's.
        Raises EnqueueConflict where the database aborted (deadlock, serialization failure, a unique job
        committed after the caller's snapshot), EnqueueLocked on SQLite's lock, NotMigrated without tables.
        """
        ...

    def visible(self, conn: Connection, ids: Collection[int]) -> set[int]:
        """Those of the ids whose rows can be read on `conn`: the waker's confirmation of a commit."""
        ...

    # --- a job's run

    def due_queues(
        self, conn: Connection, queues: Sequence[str], *, now: datetime, skip: Collection[str] = ()
    ) -> list[str]:
        """Those of the queues that have a claimable row (scheduled_at <= now + 1 s); one statement, no
        lock.
        """
        ...

    def claim(
        self,
        conn: Connection,
        queue: str,
        limit: int,
        *,
        node: str,
        at: datetime,
        skip: Collection[str] = (),
    ) -> list[ClaimedJob]:
        """Claims up to `limit` available rows by priority, scheduled_at, id; due means scheduled_at <= at +
        1 s.

        `at` must be later than that of every earlier claim of this node: (node, at) names the claim. Claims
        nothing where `node` has no live row.
        """
        ...

    def transition(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        """Applies the changes, one statement per shape; returns those that landed, in order.

        A final state releases unique_key unless meta.unique_states is "all".
        """
        ...

    def made(self, conn: Connection, changes: Sequence[Change]) -> list[Change]:
        """Those of the changes under a lease that the rows show as made: same claim, in the state it led to."""
        ...

    def exchange(
        self,
        conn: Connection,
        changes: Sequence[Change],
        claims: Sequence[ClaimWish],
        *,
        node: str,
        at: datetime,
    ) -> Exchanged:
        """Records, then claims; on SQLite in one transaction (one fsync)."""
        ...

    def give_back(self, conn: Connection, leases: Sequence[Lease], *, now: datetime) -> list[Lease]:
        """executing -> available with attempt - 1, fenced; returns the leases that were still held."""
        ...

    # --- services

    def stage(self, conn: Connection, *, now: datetime, limit: int) -> Staged:
        """scheduled and retryable rows that are due become available, oldest first, at most `limit`.

        Locked rows, and rows that cannot be changed, are left out and block nothing.
        """
        ...

    def survey(self, conn: Connection) -> tuple[list[NodeRow], bool]:
        """The node rows that are not marked lost, and whether there may be orphans; one statement."""
        ...

    def rescue(
        self, conn: Connection, nodes: Mapping[str, int], *, now: datetime, limit: int, error_text: str
    ) -> Rescued:
        """Marks `nodes` lost where their `beat` is still the given one, and rescues orphans, in one
        transaction.

        An orphan is an executing row whose owner has no live row (none, or lost_at set): `available` if
        attempts are left, else `discarded` with `error_text`. Each row is changed under the lease it was
        read with.
        """
        ...

    def discard_unknown(
        self,
        conn: Connection,
        *,
        names_not_seen_since: datetime,
        now: datetime,
        limit: int,
        known: Collection[str] = (),
    ) -> int:
        """Discards available jobs, due before that instant, whose worker no node has published since it.

        `known`: names that count as seen. Reads the whole backlog: not for every tick.
        """
        ...

    def prune(self, conn: Connection, *, before: datetime, limit: int) -> int:
        """Deletes at most `limit` jobs that became final before that instant; returns how many."""
        ...

    # --- nodes, queues, workers

    def register_node(
        self,
        conn: Connection,
        node: str,
        *,
        now: datetime,
        queues: Mapping[str, int],
        info: Mapping[str, object],
    ) -> None:
        """Writes this node's row, live, with beat 0."""
        ...

    def beat(
        self,
        conn: Connection,
        node: str,
        *,
        now: datetime,
        queues: Mapping[str, int],
        info: Mapping[str, object],
    ) -> Beat | None:
        """Counts `beat` up and reads what the node must know; None = the node was declared dead (or
        removed).
        """
        ...

    def remove_node(self, conn: Connection, node: str) -> bool:
        """Deletes the node's row; True if there was one."""
        ...

    def nodes(self, conn: Connection) -> list[NodeRow]:
        """All node rows, lost ones included, by node id."""
        ...

    def live_nodes(self, conn: Connection) -> list[NodeRow]:
        """The node rows that are not marked lost."""
        ...

    def ensure_queues(self, conn: Connection, queues: Mapping[str, QueueDefaults], *, now: datetime) -> None:
        """Makes the rows that are missing; existing ones keep their settings."""
        ...

    def queue_settings(
        self, conn: Connection, *, node: str | None, now: datetime
    ) -> dict[str, QueueSettings]:
        """All queue rows, as `node` must honour them at `now`."""
        ...

    def publish_workers(self, conn: Connection, workers: Mapping[str, str], *, now: datetime) -> None:
        """name -> config (JSON text): this node knows these workers now."""
        ...

    def known_workers(self, conn: Connection) -> dict[str, datetime]:
        """name -> when a node last published it."""
        ...

    # --- recurring

    def ensure_entry(
        self,
        conn: Connection,
        key: str,
        *,
        cron: str,
        timezone: str,
        worker: str,
        paused: bool,
        now: datetime,
    ) -> EntryRow:
        """Writes the entry: a new one, or one whose expression or zone changed, gets since = now.

        `paused` counts only when the row is made.
        """
        ...

    def entries(self, conn: Connection) -> list[EntryRow]:
        """All entries, by key."""
        ...

    def record_run(self, conn: Connection, key: str, run_at: datetime, *, now: datetime) -> bool:
        """Writes (key, run_at) and the entry's last_run_at; False = this instant was handled already.

        Belongs in one transaction with the job's insert, which the caller opens.
        """
        ...

    def link_run(self, conn: Connection, key: str, run_at: datetime, job_id: int) -> None:
        """Notes which job that run enqueued (or found, as a duplicate)."""
        ...
