"""Load while things break, and what has to be true afterwards."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import psycopg
from sqlalchemy import make_url, select
from sqlalchemy.exc import DBAPIError

from jobkit import Worker
from jobkit.errors import JobkitError
from jobkit.inserting import enqueue_with
from jobkit.jobs import NewJob
from jobkit.storage.engine import node_connection
from tests.support.chores import FailsOnce, nap, nap_in_thread, note
from tests.support.processes import NodeProcess, Rig, wait_for

SERVICES = frozenset({"heartbeat", "stager", "lifeline", "pruner"})
TROUBLE = r" (WARNING|ERROR|CRITICAL) "


def mixed(n: int) -> Worker | NewJob:
    """A job of one of several kinds: at once, on the loop, in a thread, failing once, scheduled."""
    kinds: list[Callable[[], Worker | NewJob]] = [
        lambda: note(n=n),
        lambda: nap(n=n, seconds=0.05),
        lambda: nap_in_thread(n=n, seconds=0.05),
        lambda: FailsOnce(n=n),
    ]
    return kinds[n % len(kinds)]()


class Load:
    """Enqueues without a pause from a thread; `ids` are those whose insert was acknowledged."""

    def __init__(self, rig: Rig, *, every: float = 0.02) -> None:
        self._rig = rig
        self._every = every
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.ids: list[int] = []
        self.refused = 0

    def _run(self) -> None:
        n = 0
        while not self._halt.wait(self._every):
            n += 1
            try:
                self.ids += [one.id for one in enqueue_with(self._rig.core, None, [mixed(n)])]
            except (DBAPIError, JobkitError):
                self.refused += 1

    @contextlib.contextmanager
    def running(self) -> Iterator[Load]:
        """Inside, it enqueues."""
        self._thread.start()
        try:
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        """Enqueue no more."""
        self._halt.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "an insert hangs"

    def more(self, count: int = 20, timeout: float = 60) -> None:
        """Wait until so many more jobs were accepted and performed: the queue works."""
        accepted = len(self.ids) + count
        wait_for("inserts are accepted", lambda: len(self.ids) >= accepted, timeout)
        id = self.ids[-1]
        wait_for("jobs are performed", lambda: id in {line.id for line in self._rig.lines("end")}, timeout)


@dataclass
class Usage:
    """What a node holds."""

    descriptors: int
    connections: int


def usage(rig: Rig, node: NodeProcess) -> Usage:
    """The node's open files, and the server's connections."""
    return Usage(node.descriptors(), len(backends(rig)))


def settle_down(rig: Rig, node: NodeProcess, before: Usage, *, slack: int = 4) -> Usage:
    """Wait until the node holds no more than before (ML3)."""
    last = before

    def back() -> bool:
        nonlocal last
        last = usage(rig, node)
        return (
            last.descriptors <= before.descriptors + slack and last.connections <= before.connections + slack
        )

    try:
        wait_for("connections and files are released", back, 30, every=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}: {before} became {last}") from None
    return last


def facts(rig: Rig) -> dict[str, dict[str, object]]:
    """What each live node says of its services."""
    nodes = rig.core.tables.nodes
    with node_connection(rig.core.engine, autocommit=False) as conn:
        rows = conn.execute(select(nodes.c.node, nodes.c.info).where(nodes.c.lost_at.is_(None))).all()
    return {row[0]: info if isinstance(info := row[1], dict) else json.loads(info) for row in rows}


def assert_all_loops_turn(rig: Rig, count: int, *, timeout: float = 30) -> None:
    """Every node beats and each of its services ticks again (the pruner, once a minute, merely has not failed), a
    scheduled job becomes due, a job begins.
    """
    assert all(node.alive for node in rig.nodes if node.expected), "a node has ended"

    def ticks() -> dict[tuple[str, str], object]:
        return {
            (node, name): service["ticked_at"]
            for node, info in facts(rig).items()
            for name, service in info["services"].items()  # type: ignore[attr-defined]
            if name in SERVICES - {"pruner"} and not service["failures"]
        }

    wait_for(f"{count} live nodes", lambda: len(facts(rig)) == count, timeout)
    before = ticks()

    def turned() -> bool:
        now = ticks()
        return len(now) == count * 3 and all(now[key] != before.get(key) for key in now)

    try:
        wait_for("all services tick", turned, timeout, every=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}: {before} -> {ticks()}") from None
    ids = rig.enqueue(note(n=9_001), note(n=9_002).job(schedule_in=0.5))
    rig.wait_until_final(ids, 15)


def told(node: NodeProcess) -> list[str]:
    """The lines of trouble that the node wrote, but for its jobs' own failures and late results."""
    return [line for line in node.lines(TROUBLE) if " job.exception " not in line]


def own_time(rig: Rig) -> float:
    """The longest pause between two jobs' beginnings, in seconds."""
    begins = sorted(line.at for line in rig.lines("begin"))
    return max((b - a for a, b in pairwise(begins)), default=0.0)


# -- Postgres, from outside


def superuser(rig: Rig) -> psycopg.Connection[tuple[object, ...]]:
    """A connection to another database of the same server, past any proxy."""
    url = make_url(rig.url)
    return psycopg.connect(host=url.host, port=url.port, user="postgres", dbname="postgres", autocommit=True)


def backends(rig: Rig, where: str = "true") -> list[int]:
    """The process ids of the server's ends of all connections to the rig's database."""
    if rig.core.dialect == "sqlite":
        return []
    with superuser(rig) as conn:
        rows = conn.execute(
            f"SELECT pid FROM pg_stat_activity WHERE datname = %s AND {where}",  # type: ignore[arg-type]
            [make_url(rig.url).database],
        ).fetchall()
    return [int(str(row[0])) for row in rows]


def terminate(rig: Rig, where: str = "true") -> int:
    """End them; returns how many."""
    with superuser(rig) as conn:
        return len(
            conn.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND {where}",  # type: ignore[arg-type]
                [make_url(rig.url).database],
            ).fetchall()
        )


def elapsed(since: float) -> float:
    """Seconds since `since`, a reading of the monotonic clock."""
    return time.monotonic() - since
