"""`jobkit jobs tail`, `export` and `wait`: many jobs, one line each."""

from __future__ import annotations

import csv
import io
import json
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from jobkit.admin.reads import Reads
from jobkit.admin.views import ChangePage
from jobkit.cli.exitcodes import ExitCode
from tests.cli import samplejobs
from tests.cli.support import STATES, Cli, Seeded, put, wait_until


def later(act: Callable[[], None], seconds: float = 0.3) -> threading.Timer:
    """Do something in a moment."""
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def test_tail_prints_a_line_for_each_change(
    cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, look, looks = cli.app(), Reads.changes_since, 0

    def look_and_change(reads: Reads, query: str, **given: Any) -> ChangePage:
        nonlocal looks
        found, looks = look(reads, query, **given), looks + 1
        if looks == 1:
            with app.engine.begin() as conn:
                put(app, conn, seeded["executing"], "completed", datetime.now(UTC))
        return found

    monkeypatch.setattr(Reads, "changes_since", look_and_change)
    result = cli.ok("jobs", "tail", "--from", "-1h", "--jsonl", "--interval", "0.1s", "--until-idle", "0.5s")
    app.close()
    events = [(row["id"], row["event"]) for row in map(json.loads, result.stdout.splitlines())]
    assert len(events) == len(set(events))
    assert (seeded["discarded"], "discarded") in events
    assert (seeded["executing"], "started") in events
    assert (seeded["executing"], "completed") in events


def test_tail_misses_no_job_of_a_batch_that_is_larger_than_a_page(cli: Cli, seeded: Seeded) -> None:
    app = cli.app()
    app.enqueue_all([samplejobs.add(a=n) for n in range(450)])
    app.close()
    result = cli.ok(
        "jobs", "tail", "worker:add", "--from", "-1h", "--until-idle", "0.1s", "--interval", "0.1s"
    )
    assert len(result.stdout.splitlines()) == 450


def test_tail_keeps_to_its_query_and_events(cli: Cli, seeded: Seeded) -> None:
    result = cli.ok(
        *("jobs", "tail", "state:discarded,completed", "--from", "-1h", "--event", "discarded"),
        *("--until-idle", "0.2s", "--interval", "0.1s"),
    )
    (row,) = result.stdout.splitlines()
    assert row.split("\t")[1:3] == ["discarded", str(seeded["discarded"])]
    assert cli("jobs", "tail", "--event", "exploded").exit_code == ExitCode.USAGE
    assert cli("jobs", "tail", "colour:red").exit_code == ExitCode.USAGE


def test_tail_ends_with_130_when_interrupted(lite: Cli) -> None:
    lite.ok("migrate")
    process = lite.process("jobs", "tail", "--interval", "0.1s")
    time.sleep(0)
    wait_until(lambda: process.poll() is not None or _sleeps(process.pid), 60)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in stderr


def test_a_terminated_command_ends_with_143(lite: Cli) -> None:
    lite.ok("migrate")
    process = lite.process("jobs", "tail", "--interval", "0.1s")
    wait_until(lambda: process.poll() is not None or _sleeps(process.pid), 60)
    process.terminate()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == ExitCode.TERMINATED
    assert "Traceback" not in stderr


def _sleeps(pid: int) -> bool:
    """Whether the process has come as far as having the database's file open."""
    import psutil

    return any(file.path.endswith("jobkit-test.db") for file in psutil.Process(pid).open_files())


def test_an_export_has_every_job_once(cli: Cli, seeded: Seeded) -> None:
    app = cli.app()
    app.enqueue_all([samplejobs.add(a=n) for n in range(450)])
    app.close()
    result = cli.ok("jobs", "export")
    rows = [json.loads(row) for row in result.stdout.splitlines()]
    assert len(rows) == len({row["id"] for row in rows}) == 450 + len(STATES)


def test_an_export_to_a_file_is_whole_or_absent(cli: Cli, seeded: Seeded) -> None:
    target = cli.folder / "out.csv"
    cli.ok("jobs", "export", "queue:mail", "--format", "csv", "-o", str(target), "--full")
    rows = list(csv.DictReader(io.StringIO(target.read_text())))
    assert len(rows) == len(STATES)
    assert {row["state"] for row in rows} == set(STATES)
    assert not list(cli.folder.glob(".*.part"))
    refused = cli("jobs", "export", "-o", str(cli.folder / "no" / "such" / "folder.jsonl"))
    assert refused.exit_code == ExitCode.FAILED


def test_an_export_is_redacted(cli: Cli, seeded: Seeded) -> None:
    assert "hunter2" not in cli.ok("jobs", "export", "--full").stdout


def test_a_wait_ends_when_the_job_has_ended(cli: Cli, seeded: Seeded) -> None:
    app = cli.app()

    def complete() -> None:
        with app.engine.begin() as conn:
            put(app, conn, seeded["executing"], "completed", datetime.now(UTC))

    timer = later(complete)
    assert cli("jobs", "wait", str(seeded["executing"]), "--timeout", "30s").exit_code == ExitCode.OK
    timer.join()
    app.close()


def test_pages_follow_each_other_by_cursor(cli: Cli, seeded: Seeded) -> None:
    seen: list[int] = []
    cursor: list[str] = []
    while True:
        page = cli.json("jobs", "list", "--limit", "3", *cursor)
        seen += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]
    assert sorted(seen) == sorted(seeded.ids.values())


def test_a_list_of_all_is_streamed_in_a_pipe(cli: Cli, seeded: Seeded) -> None:
    app = cli.app()
    app.enqueue_all([samplejobs.add(a=n) for n in range(300)])
    app.close()
    printed = cli.ok("jobs", "list", "--all", "--header").stdout.splitlines()
    assert printed[0].startswith("id\t")
    assert len(printed) == 1 + 300 + len(STATES)
