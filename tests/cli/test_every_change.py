"""Every command that changes something, on each database: for people, and as JSON that its schema describes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from jobkit.cli.exitcodes import ExitCode
from tests.cli.support import Cli, Seeded, check_document
from tests.cli.test_commands import LEAVES, READS

ONCE = {"run", "jobs tail", "jobs export", "init"}
"""Endless, or a stream, or writing files: each has tests of its own."""

CHANGES: dict[str, Callable[[Seeded], list[str]]] = {
    "enqueue": lambda s: ["enqueue", "add", "a=1"],
    "jobs retry": lambda s: ["jobs", "retry", str(s["discarded"]), "--yes"],
    "jobs run-now": lambda s: ["jobs", "run-now", str(s["scheduled"]), "--yes"],
    "jobs cancel": lambda s: ["jobs", "cancel", str(s["available"]), "--yes"],
    "jobs delete": lambda s: ["jobs", "delete", str(s["completed"]), "--yes"],
    "jobs edit": lambda s: ["jobs", "edit", str(s["available"]), "--priority", "7", "--yes"],
    "queues pause": lambda s: ["queues", "pause", "mail", "--yes"],
    "queues resume": lambda s: ["queues", "resume", "mail", "--yes"],
    "queues scale": lambda s: ["queues", "scale", "mail", "3"],
    "nodes pause": lambda s: ["nodes", "pause", "web-1", "--yes"],
    "nodes resume": lambda s: ["nodes", "resume", "web-1", "--yes"],
    "nodes drain": lambda s: ["nodes", "drain", "web-1", "--yes"],
    "cron pause": lambda s: ["cron", "pause", "jobkit_cleanup"],
    "cron resume": lambda s: ["cron", "resume", "jobkit_cleanup"],
    "cron run": lambda s: ["cron", "run", "jobkit_cleanup"],
    "prune": lambda s: ["prune"],
    "rescue": lambda s: ["rescue"],
    "stage": lambda s: ["stage"],
    "migrate up": lambda s: ["migrate", "up"],
    "migrate sql": lambda s: ["migrate", "sql"],
    "migrate down": lambda s: ["migrate", "down", "--to", "0", "--yes"],
    "completion": lambda s: ["completion", "bash"],
    "cron show": lambda s: ["cron", "show", "jobkit_cleanup"],
}


@pytest.fixture
def scheduled(cli: Cli, seeded: Seeded) -> Seeded:
    """The seeded database, with the entries that nodes write of all schedules."""
    app = cli.app()
    with app.engine.begin() as conn:
        for entry in app.registry.schedules():
            app.core.storage.ensure_entry(
                conn,
                entry.recurring.key,
                cron=entry.recurring.cron,
                timezone=entry.recurring.timezone,
                worker="jobkit_cleanup",
                paused=entry.recurring.paused,
                now=datetime.now(UTC),
            )
    app.close()
    return seeded


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_command_that_changes_something_answers_in_both_forms(
    cli: Cli, scheduled: Seeded, name: str, form: str
) -> None:
    result = cli.ok(*CHANGES[name](scheduled), f"--{form}")
    if form == "json":
        check_document(json.loads(result.stdout))
    else:
        assert result.stdout or result.stderr


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_node_that_lives_is_not_forgotten(cli: Cli, seeded: Seeded, form: str) -> None:
    result = cli("nodes", "forget", "web-1", "--yes", f"--{form}")
    assert result.exit_code == ExitCode.CONFLICT
    assert "web-1" in result.stdout + result.stderr


def test_no_command_is_left_out() -> None:
    nobody = dict.fromkeys(("available", "scheduled", "executing", "completed", "discarded"), 1)
    tried = [" ".join(make(Seeded(nobody))) for make in (*READS.values(), *CHANGES.values())]
    paths = {" ".join(path) for path, _ in LEAVES} - ONCE
    left = {
        p for p in paths if not any(f"{line} ".startswith(f"{p.removesuffix(' list')} ") for line in tried)
    }
    assert left == {"nodes forget"}
