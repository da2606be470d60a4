"""SQLite files that are missing, no database, or where nothing may be written: what is said, and what still works."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobkit.cli.exitcodes import ExitCode
from tests.cli.support import Cli, seed

pytestmark = pytest.mark.empty_database
NOBODY = 65534


def file_of(cli: Cli) -> Path:
    return Path(cli.url.removeprefix("sqlite:///"))


@contextmanager
def nothing_may_be_written(folder: Path) -> Iterator[None]:
    """The folder and its files are read-only, also for one who runs the tests as root."""
    parts = [folder, *folder.iterdir()]
    for part in parts:
        part.chmod(0o555 if part.is_dir() else 0o444)
    root = os.geteuid() == 0
    above = [path for path in folder.parents if root and not path.stat().st_mode & 0o001]
    modes = {path: path.stat().st_mode for path in above}
    for path in above:
        path.chmod(0o755)
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)
        for part in reversed(parts):
            part.chmod(0o755 if part.is_dir() else 0o644)


@pytest.fixture
def shelf(tmp_path: Path) -> Cli:
    """A database in a folder of its own, with a job in every state."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    cli = Cli(f"sqlite:///{folder}/jobs.db", tmp_path)
    app = cli.app()
    seed(app)
    app.close()
    return cli


READS = (
    ["jobs", "list", "--count"],
    ["jobs", "list", "state:discarded"],
    ["jobs", "show", "1"],
    ["why", "1"],
    ["stats"],
    ["queues", "list"],
    ["nodes"],
    ["cron"],
    ["workers"],
    ["audit"],
    ["jobs", "export"],
    ["migrate", "status"],
)


def test_a_missing_file_is_said_to_be_missing_and_none_is_made(lite: Cli) -> None:
    for command in (["jobs"], ["stats"], ["why", "1"], ["queues"]):
        result = lite(*command)
        assert result.exit_code == ExitCode.DATABASE
        assert f"the SQLite file {file_of(lite)} is missing" in result.stderr
        assert result.stderr.count("jobkit migrate up") == 1
        assert "lost" not in result.stderr
    assert {row["applied_at"] for row in lite.json("migrate", "status")["items"]} == {None}
    assert lite("migrate", "--check").exit_code == ExitCode.SCHEMA
    assert not file_of(lite).exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    cli = Cli(f"sqlite:///{tmp_path}/nowhere/jobs.db", tmp_path)
    for command in (["jobs"], ["migrate", "up"]):
        result = cli(*command)
        assert result.exit_code == ExitCode.DATABASE
        assert f"the folder {tmp_path / 'nowhere'}" in result.stderr


@pytest.mark.parametrize(
    "command", [["jobs"], ["stats"], ["migrate", "up"], ["enqueue", "add", "a=1"], ["prune"]]
)
def test_a_file_that_is_no_database_is_named(lite: Cli, command: list[str]) -> None:
    file_of(lite).write_text("this is a shopping list, and a long one at that\n" * 200)
    result = lite(*command)
    assert result.exit_code == ExitCode.DATABASE, result.stderr
    assert f"{file_of(lite)} is no SQLite database" in result.stderr


def test_everything_may_be_read_where_nothing_may_be_written(shelf: Cli) -> None:
    for command in READS:
        shelf.ok(*command)  # whatever it imports is imported by one who may
    with nothing_may_be_written(file_of(shelf).parent):
        for command in READS:
            shelf.ok(*command)
        refused = shelf("jobs", "retry", "6")
    assert refused.exit_code == ExitCode.DATABASE
    assert sorted(path.name for path in file_of(shelf).parent.iterdir()) == ["jobs.db"]


def test_changes_that_cannot_be_read_are_not_passed_over(shelf: Cli) -> None:
    shelf.ok("stats")
    raw = sqlite3.connect(file_of(shelf))
    raw.execute("UPDATE jobkit_jobs SET priority = 9")
    raw.commit()
    kept = {path.name: path.read_bytes() for path in file_of(shelf).parent.iterdir()}
    raw.close()
    assert kept["jobs.db-wal"]
    file_of(shelf).write_bytes(kept["jobs.db"])
    file_of(shelf).with_name("jobs.db-wal").write_bytes(kept["jobs.db-wal"])
    with nothing_may_be_written(file_of(shelf).parent):
        result = shelf("stats")
    assert result.exit_code == ExitCode.DATABASE
    assert "jobs.db-wal holds changes" in result.stderr


def test_missing_tables_are_told_in_one_way_and_by_the_doctor_once(lite: Cli) -> None:
    sqlite3.connect(file_of(lite)).execute("CREATE TABLE theirs (id)").connection.close()
    told = set()
    for command in (
        ["jobs"],
        ["stats"],
        ["enqueue", "add", "a=1"],
        ["jobs", "retry", "1"],
        ["run", "--max-jobs", "1"],
    ):
        result = lite(*command)
        assert result.exit_code == ExitCode.SCHEMA, (command, result.stderr)
        told.add(result.stderr.partition(":")[2].partition(";")[0].strip().partition(": the database")[0])
        assert result.stderr.count("jobkit migrate up") == 1
    assert told == {"jobkit's tables are missing or outdated"}
    result = lite("doctor", "--json")
    broken = [row for row in json_items(result.stdout) if row["level"] == "broken"]
    assert [(row["check"], row["fix"]) for row in broken] == [("schema", "jobkit migrate up")]


def json_items(text: str) -> list[dict[str, str]]:
    import json

    found: list[dict[str, str]] = json.loads(text)["items"]
    return found
