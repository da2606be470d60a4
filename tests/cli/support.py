"""What the tests of the command line share: running it, seeding a database, checking a document against its schema."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from click.testing import CliRunner, Result

from jobkit import Jobkit
from jobkit.cli.commands.schema import all_shapes
from jobkit.cli.root import cli

IMPORTS = "tests.cli.samplejobs"
ROOT = Path(__file__).parents[2]


class Cli:
    """The command line against one database; in this process, or as one of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.env = {"JOBKIT_DATABASE_URL": url, "JOBKIT_IMPORTS": IMPORTS, "COLUMNS": "160"}
        self.folder = folder
        self.url = url
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *args: str, input: str | None = None, env: Mapping[str, str] | None = None) -> Result:
        """Run a command through click's runner."""
        return CliRunner().invoke(cli, list(args), input=input, env={**self.env, **(env or {})})

    def ok(self, *args: str, **given: Any) -> Result:
        """Run a command that must end with 0."""
        result = self(*args, **given)
        assert result.exit_code == 0, f"{args}: exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return result

    def json(self, *args: str, **given: Any) -> dict[str, Any]:
        """The document of a command that ends with 0, checked against its schema."""
        document = json.loads(self.ok(*args, "--json", **given).stdout)
        check_document(document)
        return document

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a process."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBKIT_")}
        path = os.pathsep.join(filter(None, (str(ROOT), clean.get("PYTHONPATH", ""))))
        return {**clean, **self.env, "PYTHONPATH": path, **more}

    def command(self, *args: str) -> list[str]:
        """The command line of a process."""
        return [sys.executable, "-m", "jobkit", *args]

    def process(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        """Start a process; stdout and stderr are pipes."""
        env = self.environment(**more.pop("env", {}))
        process = subprocess.Popen(
            self.command(*args),
            env=env,
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            preexec_fn=heed_interrupts,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
        )
        self._started.append(process)
        return process

    def end_what_runs(self) -> None:
        """End the processes that a test which failed has left."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def app(self) -> Jobkit:
        """The app of the same database."""
        from jobkit.config import Config

        return Jobkit(config=Config(database_url=self.url, imports=[IMPORTS]))


def heed_interrupts() -> None:
    """Whoever runs the tests in the background ignores SIGINT, and so would each process that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until it is so; fail after that time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.02)


# -- documents


def check_document(document: Mapping[str, Any]) -> None:
    """Fail unless the document is as `jobkit schema` says."""
    name = document["schema"].removeprefix("jobkit.").partition("/")[0]
    _check(document, all_shapes()[name].json_schema(), name)


def _check(value: Any, schema: Mapping[str, Any], where: str) -> None:
    if "const" in schema:
        assert value == schema["const"], where
    kinds = schema.get("type")
    if kinds is not None:
        assert any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)), (
            f"{where}: {value!r}"
        )
    if isinstance(value, dict) and "properties" in schema:
        unknown = value.keys() - schema["properties"].keys()
        assert not unknown, f"{where}: {unknown} are not documented"
        for name in schema.get("required", ()):
            assert name in value, f"{where}: {name} is missing"
        for name, item in value.items():
            _check(item, schema["properties"][name], f"{where}.{name}")
    if isinstance(value, list) and "items" in schema:
        for item in value:
            _check(item, schema["items"], f"{where}[]")


def _is(value: Any, kind: str) -> bool:
    if kind == "null":
        return value is None
    if kind in ("integer", "number"):
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole or (kind == "number" and isinstance(value, float))
    return isinstance(value, {"string": str, "boolean": bool, "array": list, "object": dict}[kind])


# -- a database with something in it


@dataclass(frozen=True, slots=True)
class Seeded:
    """The ids of the jobs by state."""

    ids: Mapping[str, int]

    def __getitem__(self, state: str) -> int:
        return self.ids[state]


STATES = ("available", "scheduled", "executing", "retryable", "completed", "discarded", "cancelled")
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\u202e"


def seed(app: Jobkit) -> Seeded:
    """A job in every state; queues `default` and `mail`; a live node; an error whose text would like to be obeyed."""
    from tests.cli import samplejobs as jobs

    app.migrate()
    now = datetime.now(UTC)
    inserted = app.enqueue_all(
        [
            jobs.send(to="ann", body=HOSTILE).job(tags=["letter", state], priority=n)
            for n, state in enumerate(STATES)
        ]
    )
    ids = dict(zip(STATES, (row.id for row in inserted), strict=True))
    with app.engine.begin() as conn:
        storage = app.core.storage
        storage.ensure_queues(conn, app.config.queues, now=now)
        storage.register_node(
            conn, "web-1:77:abcd", now=now, queues={"default": 10, "mail": 5}, info={"pid": 77}
        )
        for state, job in ids.items():
            put(app, conn, job, state, now)
    return Seeded(ids)


def put(app: Jobkit, conn: sa.Connection, job: int, state: str, now: datetime) -> None:
    """Bring a job's row into a state, as a run would have left it."""
    jobs = app.tables.jobs
    values: dict[str, Any] = {"state": state}
    if state not in ("available", "scheduled"):
        values |= {"attempt": 1, "attempted_by": "web-1:77:abcd", "attempted_at": now - timedelta(seconds=2)}
    if state in ("scheduled", "retryable"):
        values["scheduled_at"] = now + timedelta(hours=1)
    if state in ("completed", "discarded", "cancelled"):
        values[f"{state}_at"] = now - timedelta(seconds=1)
    if state in ("retryable", "discarded"):
        text = f"RuntimeError: {HOSTILE} password=hunter2\nTraceback: {HOSTILE}"
        at = now.isoformat().replace("+00:00", "Z")
        values["errors"] = sa.cast(
            sa.literal(json.dumps([{"attempt": 1, "at": at, "error": text}])), jobs.c.errors.type
        )
    conn.execute(jobs.update().where(jobs.c.id == job).values(**values))


def audited(cli: Cli) -> Sequence[Mapping[str, Any]]:
    """The audit rows, newest first."""
    return list(cli.json("audit", "list")["items"])
