"""Real `jobkit run` processes on a real database, and an account of all that they recorded.

A trigger of the database writes down every change of a job's state, so that what was recorded, and how often,
is known without asking jobkit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil
from sqlalchemy import select, text

from jobkit import Worker
from jobkit.config import Config
from jobkit.core import Core
from jobkit.inserting import enqueue_with
from jobkit.jobs import FINAL, NewJob

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
STATES = frozenset(state.value for state in FINAL)


def wait_for(what: str, fulfilled: Callable[[], T], timeout: float = 30.0, every: float = 0.02) -> T:
    """Wait until `fulfilled()` is true and return it; fails with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        found = fulfilled()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain: {what}")
        time.sleep(every)


class Line(NamedTuple):
    """One line that a chore wrote."""

    what: str
    n: int
    id: int
    attempt: int
    pid: int
    at: float


class Change(NamedTuple):
    """One change of state, as the trigger saw it."""

    id: int
    old: str
    new: str
    attempt: int


class NodeProcess:
    """One `jobkit run`, with its log in a file."""

    def __init__(
        self, command: Sequence[str], log: Path, *, cwd: Path, env: dict[str, str], humble: bool = False
    ) -> None:
        self.log = log
        self.expected = True
        """Whether it should be running."""
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                preexec_fn=_give_up_override if humble and os.getuid() == 0 else None,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def text(self) -> str:
        """The log so far."""
        return self.log.read_text(errors="replace")

    def lines(self, pattern: str) -> list[str]:
        """The log's lines that match."""
        return [line for line in self.text().splitlines() if re.search(pattern, line)]

    def wait_for_log(self, pattern: str, timeout: float = 60.0) -> str:
        """Wait for a line that matches."""

        def found() -> list[str]:
            if lines := self.lines(pattern):
                return lines
            assert self.alive, f"the node ended with {self.process.returncode}:\n{self.text()[-4000:]}"
            return []

        try:
            return wait_for(f"{pattern!r} in {self.log.name}", found, timeout)[0]
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()[-4000:]}") from None

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        self.process.send_signal(number)

    def wait(self, timeout: float = 30.0) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(timeout)

    def stop(self, timeout: float = 40.0) -> int:
        """The first signal, and the exit code."""
        self.expected = False
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        """End it without a word."""
        self.expected = False
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait(10)

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return psutil.Process(self.pid).num_fds()

    def memory(self) -> int:
        """Its resident memory in bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)


def _give_up_override() -> None:
    """Drop CAP_DAC_OVERRIDE, by which root writes to whatever is read-only."""
    drop_from_bounding_set, dac_override = 24, 1
    ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override, 0, 0, 0)


class Rig:
    """One database, the nodes on it, and what became of the jobs."""

    def __init__(self, folder: Path, url: str, *, queues: str = "default:10", **settings: str) -> None:
        self.folder = folder
        self.url = url
        self.queues = queues
        self.chores_log = folder / "chores.log"
        self.chores_log.touch()
        self.settings = settings
        self.nodes: list[NodeProcess] = []
        self.core = Core(Config(database_url=url))
        self.core.migrate()
        _audit(self.core)

    @property
    def env(self) -> dict[str, str]:
        """The environment of a node."""
        given = {f"JOBKIT_{name.upper()}": value for name, value in self.settings.items()}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBKIT_")}
        return {**clean, "PYTHONPATH": str(ROOT), "CHORES_LOG": str(self.chores_log), **given}

    def start(
        self,
        *arguments: str,
        url: str | None = None,
        ready: bool = True,
        humble: bool = False,
        imports: Sequence[str] = ("--import", "tests.support.chores"),
        **env: str,
    ) -> NodeProcess:
        """Start a node; `ready` waits until it claims; `humble`: root or not, file modes count for it."""
        command = [sys.executable, "-m", "jobkit", "run", "--db", url or self.url, "--queues", self.queues]
        log = self.folder / f"node-{len(self.nodes) + 1}.log"
        node = NodeProcess(
            [*command, *imports, *arguments], log, cwd=self.folder, env={**self.env, **env}, humble=humble
        )
        self.nodes.append(node)
        if ready:
            node.wait_for_log(r"node\.start ")
        return node

    def enqueue(self, *jobs: Worker | NewJob) -> list[int]:
        """Insert and return the ids."""
        return [one.id for one in enqueue_with(self.core, None, list(jobs))]

    # -- what happened

    def lines(self, what: str = "") -> list[Line]:
        """What the chores wrote."""
        found = []
        for line in self.chores_log.read_text().splitlines():
            word, n, id, attempt, pid, at = line.split()
            if what in ("", word):
                found.append(Line(word, int(n), int(id), int(attempt), int(pid), float(at)))
        return found

    def changes(self) -> list[Change]:
        """Every change of state that the database has seen, in order."""
        with self.core.engine.connect() as conn:
            rows = conn.execute(text("SELECT id, old, new, attempt FROM job_history ORDER BY n"))
            return [Change(*row) for row in rows]

    def states(self) -> dict[int, str]:
        """The state of every job."""
        jobs = self.core.tables.jobs
        with self.core.engine.connect() as conn:
            return {row[0]: row[1] for row in conn.execute(select(jobs.c.id, jobs.c.state))}

    def row(self, id: int) -> Any:
        """A job's row."""
        jobs = self.core.tables.jobs
        with self.core.engine.connect() as conn:
            return conn.execute(select(jobs).where(jobs.c.id == id)).one()

    def count(self, *states: str) -> int:
        """How many jobs are in one of these states."""
        return sum(state in states for state in self.states().values())

    def beats(self) -> dict[str, int]:
        """How often each live node has beaten; those that have not yet are left out."""
        nodes = self.core.tables.nodes
        query = select(nodes.c.node, nodes.c.beat).where(nodes.c.lost_at.is_(None), nodes.c.beat > 0)
        with self.core.engine.connect() as conn:
            return {row[0]: row[1] for row in conn.execute(query)}

    def wait_for_beats(self, count: int = 1, timeout: float = 60.0) -> None:
        """Wait until so many nodes beat; fails at once where one has ended."""

        def beating() -> bool:
            for node in self.nodes:
                assert node.alive or not node.expected, f"{node.process.returncode}:\n{node.text()[-3000:]}"
            return len(self.beats()) == count

        wait_for(f"{count} beating nodes", beating, timeout)

    def wait_until_final(self, ids: Iterable[int], timeout: float = 60.0) -> dict[int, str]:
        """Wait until all of these are in a final state."""
        wanted = set(ids)

        def done() -> dict[int, str]:
            states = {id: state for id, state in self.states().items() if id in wanted}
            return states if all(state in STATES for state in states.values()) else {}

        try:
            return wait_for("all jobs final", done, timeout, every=0.1)
        except AssertionError as error:
            logs = "\n".join(f"== {node.log.name}\n{node.text()[-3000:]}" for node in self.nodes)
            raise AssertionError(f"{error}; {Counter(self.states().values())}\n{logs}") from None

    def check(self, ids: Sequence[int]) -> None:
        """Nothing lost, nothing recorded twice: each job exists, was completed once, and did perform."""
        states = self.states()
        assert set(ids) <= set(states), "jobs have vanished"
        assert {states[id] for id in ids} == {"completed"}, Counter(states[id] for id in ids)
        ends = Counter(change.id for change in self.changes() if change.new in STATES)
        assert {id: ends[id] for id in ids if ends[id] != 1} == {}, "jobs have ended more than once"
        performed = {line.id for line in self.lines("end")}
        assert set(ids) <= performed, "jobs were completed and never performed"

    def runs(self) -> Counter[int]:
        """How often each job began."""
        return Counter(line.id for line in self.lines("begin"))

    def close(self) -> None:
        """Kill what still runs."""
        for node in self.nodes:
            node.kill()
        self.core.close()


@contextlib.contextmanager
def rig(folder: Path, url: str, **settings: str) -> Iterator[Rig]:
    """A rig that leaves no process behind."""
    made = Rig(folder, url, **settings)
    try:
        yield made
    finally:
        made.close()


_POSTGRES = (
    "CREATE TABLE job_history (n bigserial PRIMARY KEY, id bigint, old text, new text, attempt int)",
    "CREATE FUNCTION job_audit_history() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO job_history (id, old, new, attempt) VALUES (OLD.id, OLD.state, NEW.state, NEW.attempt); "
    "RETURN NULL; END $$",
    "CREATE TRIGGER job_history AFTER UPDATE ON {jobs} FOR EACH ROW "
    "WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION job_audit_history()",
)
_SQLITE = (
    "CREATE TABLE job_history (n integer PRIMARY KEY, id integer, old text, new text, attempt integer)",
    "CREATE TRIGGER job_history AFTER UPDATE ON {jobs} WHEN OLD.state <> NEW.state BEGIN "
    "INSERT INTO job_history (id, old, new, attempt) VALUES (OLD.id, OLD.state, NEW.state, NEW.attempt); END",
)


def _audit(core: Core) -> None:
    """Let the database itself write down each change of state."""
    statements = _SQLITE if core.dialect == "sqlite" else _POSTGRES
    with core.engine.begin() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement.replace("{jobs}", core.tables.jobs.name))
