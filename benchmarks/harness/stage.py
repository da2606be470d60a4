"""Where measurements happen: the run's servers, and for each measurement a fresh database and directory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness.environments import Environments
from benchmarks.harness.postgres import Postgres
from benchmarks.harness.processes import Agent, Workers
from benchmarks.harness.redis_server import RedisServer
from benchmarks.harness.roster import Contender
from benchmarks.harness.usage import Usage
from benchmarks.peers.base import Load


class Bench:
    """The servers and the scratch directory of one run; use it as a context manager through `bench()`."""

    def __init__(
        self, environments: Environments, scratch: Path, databases: set[str], stack: ExitStack
    ) -> None:
        self.environments = environments
        self.scratch = scratch
        self.postgres = stack.enter_context(Postgres(scratch)) if "postgres" in databases else None
        self.redis = stack.enter_context(RedisServer(scratch)) if "redis" in databases else None

    def server_usage(self, database: str) -> Usage | None:
        """CPU of the database server, None for SQLite, which has none."""
        server = {"postgres": self.postgres, "redis": self.redis}.get(database)
        return server.usage() if server else None

    @contextmanager
    def stage(self, contender: Contender) -> Iterator[Stage]:
        """A fresh database, a directory and the contender's agent, all gone afterwards."""
        directory = Path(tempfile.mkdtemp(prefix=f"{contender.name}-", dir=self.scratch))
        database = self.postgres.create() if self.postgres and contender.database == "postgres" else ""
        python = self.environments.ensure(contender.environment)
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.environments.path),
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "BENCH_URL": self._url(contender, database, directory),
            "BENCH_VARIANT": contender.variant,
            "BENCH_TICKS": str(directory / "ticks"),
        }
        try:
            with Agent(python, contender.module, environment, directory) as agent:
                yield Stage(self, contender, database, directory, environment, agent)
        finally:
            if database and self.postgres:
                self.postgres.drop(database)
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def bare(self) -> Iterator[tuple[str, Path]]:
        """A fresh Postgres database's URL and a directory, for what is measured without a queue."""
        directory = Path(tempfile.mkdtemp(prefix="limit-", dir=self.scratch))
        database = self.postgres.create() if self.postgres else ""
        try:
            yield (self.postgres.url(database) if self.postgres else ""), directory
        finally:
            if self.postgres:
                self.postgres.drop(database)
            shutil.rmtree(directory, ignore_errors=True)

    def _url(self, contender: Contender, database: str, directory: Path) -> str:
        if contender.database == "redis" and self.redis:
            return self.redis.url()
        if contender.database == "postgres" and self.postgres:
            return self.postgres.url(database)
        return str(directory / "queue.db")


@dataclass(frozen=True, slots=True)
class Stage:
    """One contender's place during one measurement."""

    bench: Bench
    contender: Contender
    database: str
    directory: Path
    environment: dict[str, str]
    agent: Agent

    @property
    def ticks(self) -> str:
        return self.environment["BENCH_TICKS"]

    def setup(self, load: Load) -> None:
        self.agent.call("setup", load=asdict(load))

    def settle(self) -> None:
        if self.database and self.bench.postgres:
            self.bench.postgres.settle(self.database)

    def workers(self, load: Load) -> Workers:
        commands = self.agent.call("worker", load=asdict(load))
        assert isinstance(commands, list)
        return Workers(commands, self.environment, self.directory)

    def wal(self) -> int:
        return self.bench.postgres.wal() if self.database and self.bench.postgres else 0

    def server_cpu(self) -> float:
        usage = self.bench.server_usage(self.contender.database)
        return usage.cpu if usage else 0.0


@contextmanager
def bench(environments: Environments, databases: set[str]) -> Iterator[Bench]:
    """Start the servers that the run needs and stop them at its end."""
    scratch = Path(tempfile.mkdtemp(prefix="jobkit-bench-"))
    scratch.chmod(0o755)  # the server's user must reach its data directory
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        yield Bench(environments, scratch, databases, stack)
