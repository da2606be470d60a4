"""`prune --state`, the figures of `workers`, `--web`, and the manual page."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import click
import pytest

from jobkit.cli.exitcodes import ExitCode
from tests.cli import samplejobs
from tests.cli.support import STATES, Cli, Seeded, audited, put


def test_prune_takes_only_the_states_that_were_named(cli: Cli, seeded: Seeded) -> None:
    words = ("prune", "--older-than", "0.001s", "--state", "completed", "--state", "cancelled")
    assert cli.json(*words, "--dry-run")["changed"] == 2
    assert cli.json(*words)["changed"] == 2
    left = {job["state"] for job in cli.json("jobs", "list")["items"]}
    assert left == set(STATES) - {"completed", "cancelled"}
    assert any(row["reason"] == "prune" for row in audited(cli))
    assert cli.json(*words)["changed"] == 0
    assert cli("prune", "--state", "available").exit_code == ExitCode.USAGE
    assert "--older-than:" in cli("prune", "--older-than", "0s").stderr


def test_prune_by_state_keeps_what_is_younger(cli: Cli, seeded: Seeded) -> None:
    assert cli.json("prune", "--older-than", "1h", "--state", "discarded")["changed"] == 0


def test_workers_say_how_their_jobs_ended_within_a_day(cli: Cli, seeded: Seeded) -> None:
    app = cli.app()
    now = datetime.now(UTC)
    (old,) = (row.id for row in app.enqueue_all([samplejobs.add(a=1)]))
    with app.engine.begin() as conn:
        put(app, conn, old, "completed", now - timedelta(days=2))
    app.close()
    found = {row["name"]: row for row in cli.json("workers", "list")["items"]}
    assert found["send"]["completed_24h"] == {"value": 1, "precision": "exact"}
    assert found["send"]["discarded_24h"] == {"value": 1, "precision": "exact"}
    assert found["add"]["completed_24h"] == {"value": 0, "precision": "exact"}
    assert cli.json("workers", "show", "send")["discarded_24h"]["value"] == 1
    assert "DONE 24H" in cli.ok("workers", "--table", env={"COLUMNS": "250"}).stdout


def test_more_than_is_looked_at_is_said_to_be_at_least_that(
    cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobkit.admin import _system_reads

    monkeypatch.setattr(_system_reads, "FIGURED", 0)
    found = {row["name"]: row for row in cli.json("workers", "list")["items"]}
    assert found["send"]["completed_24h"] == {"value": 1, "precision": "at_least"}


def test_web_opens_the_page_of_the_dashboard(lite: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def launch(url: str) -> int:
        opened.append(url)
        return 0

    monkeypatch.setattr(click, "launch", launch)
    lite.ok("jobs", "show", "42", "--web")
    lite.ok(
        "jobs", "list", "queue:mail", "--error", "a b", "--web", "--web-at", "https://ops.example.org/jobkit"
    )
    assert opened == [
        "http://127.0.0.1:8778/jobs/42",
        "https://ops.example.org/jobkit/jobs?q=queue%3Amail%20error%3A%22a%20b%22",
    ]
    assert lite("jobs", "show", "42", "--web", "--web-at", "javascript:alert(1)").exit_code == ExitCode.USAGE


def test_the_manual_page_has_every_command_and_every_exit_code(lite: Cli) -> None:
    page = lite.ok("help", "man").stdout
    for words in ("jobs retry", "queues pause", "enqueue", "completion", "dashboard serve"):
        assert f".SS jobkit {words}".replace("-", "\\-") in page
    for code in ExitCode:
        assert f".B {int(code)}\n" in page
    if shutil.which("groff"):
        made = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, text=True, capture_output=True)
        assert made.stderr == ""
