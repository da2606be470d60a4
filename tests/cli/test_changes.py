"""What changes jobs, queues, nodes and schedules: what becomes of them, what is printed, and what is audited."""

from __future__ import annotations

import getpass
import json
import socket

import pytest

from jobkit.cli.exitcodes import ExitCode
from tests.cli.support import STATES, Cli, Seeded, audited

ACTOR = f"{getpass.getuser()}@{socket.gethostname()}"


def states(cli: Cli, *query: str) -> dict[int, str]:
    """The states of all jobs by id."""
    return {job["id"]: job["state"] for job in cli.json("jobs", "list", *query, "--all")["items"]}


# -- by id

ALLOWED = {
    "retry": {"discarded", "cancelled", "completed", "retryable"},
    "run-now": {"scheduled", "retryable"},
    "cancel": {"available", "scheduled", "retryable", "executing"},
    "delete": {"available", "scheduled", "retryable", "completed", "discarded", "cancelled"},
}


@pytest.mark.parametrize("verb", ALLOWED)
def test_each_action_changes_the_states_that_it_may_and_leaves_the_others(
    cli: Cli, seeded: Seeded, verb: str
) -> None:
    result = cli(
        "jobs", verb, *(str(seeded[state]) for state in STATES), "--yes", "--reason", "because", "--json"
    )
    assert result.exit_code == ExitCode.PARTLY
    rows = json.loads(result.stdout)["items"]
    done = {row["id"] for row in rows if row["result"] == "done"}
    assert done == {seeded[state] for state in ALLOWED[verb]}
    after = states(cli)
    for state in ALLOWED[verb]:
        expected = {"retry": "available", "run-now": "available", "cancel": "cancelled"}.get(verb)
        assert after.get(seeded[state]) == expected
    entry = audited(cli)[0]
    assert (entry["actor"], entry["via"], entry["reason"]) == (ACTOR, "cli", "because")
    assert entry["count"] == len(STATES)


def test_a_single_job_is_changed_without_asking(cli: Cli, seeded: Seeded) -> None:
    result = cli.ok("jobs", "retry", str(seeded["discarded"]), "--table")
    assert "available again" in result.stdout
    assert states(cli)[seeded["discarded"]] == "available"


def test_ids_come_from_stdin_and_as_ranges(cli: Cli, seeded: Seeded) -> None:
    cli.ok("jobs", "cancel", "-", "--yes", input=f"{seeded['available']}\n{seeded['scheduled']}\n")
    first = seeded["available"]
    assert cli("jobs", "show", f"{first}..{first + 1}").exit_code == 0
    assert states(cli)[seeded["scheduled"]] == "cancelled"


def test_a_dry_run_writes_nothing(cli: Cli, seeded: Seeded) -> None:
    before = states(cli)
    for verb in ALLOWED:
        cli.ok("jobs", verb, "--query", "queue:mail", "--dry-run")
        cli.ok("jobs", verb, str(seeded["retryable"]), "--dry-run")
    cli.ok("jobs", "edit", str(seeded["scheduled"]), "--priority", "1", "--dry-run")
    cli.ok("queues", "pause", "mail", "--dry-run")
    cli.ok("queues", "scale", "mail", "1", "--dry-run")
    cli.ok("nodes", "drain", "web-1", "--dry-run")
    cli.ok("enqueue", "add", "a=1", "--dry-run")
    assert states(cli) == before
    assert audited(cli) == []


# -- by query


def test_a_query_is_worked_on_as_one_operation_with_a_summary(cli: Cli, seeded: Seeded) -> None:
    result = cli.ok("jobs", "cancel", "--query", "queue:mail is:incomplete", "--yes", "--json")
    operation = json.loads(result.stdout)
    assert (operation["state"], operation["done"], operation["failed"]) == ("done", 4, 0)
    assert "cancelled 4" in result.stderr
    assert set(states(cli, "is:incomplete")) == set()


def test_at_most_so_many_are_changed(cli: Cli, seeded: Seeded) -> None:
    cli.ok("jobs", "cancel", "--query", "is:incomplete", "--max", "2", "--yes")
    assert len(states(cli, "is:incomplete")) == 2


def test_a_spread_retry_starts_jobs_over_that_time(cli: Cli, seeded: Seeded) -> None:
    cli.ok("jobs", "retry", "--query", "is:final", "--spread", "10m", "--yes")
    found = cli.json("jobs", "list", "state:scheduled,available", "--all")["items"]
    assert {job["id"] for job in found} >= {
        seeded[state] for state in ("completed", "discarded", "cancelled")
    }


def test_a_query_that_matches_nothing_is_no_error(cli: Cli, seeded: Seeded) -> None:
    result = cli.ok("jobs", "cancel", "--query", "queue:nowhere", "--yes", "--json")
    assert json.loads(result.stdout)["items"] == []


def test_without_a_terminal_many_jobs_need_yes(cli: Cli, seeded: Seeded) -> None:
    before = states(cli)
    result = cli("jobs", "cancel", "--query", "queue:mail")
    assert result.exit_code == ExitCode.USAGE
    assert "--yes" in result.stderr
    assert states(cli) == before


@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [("y\n", ExitCode.OK, 0), ("n\n", ExitCode.FAILED, 1), ("", ExitCode.INTERRUPTED, 1)],
)
def test_on_a_terminal_it_asks(
    cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch, answer: str, code: ExitCode, left: int
) -> None:
    monkeypatch.setattr("jobkit.cli.confirm.on_terminal", lambda: True)
    result = cli("jobs", "delete", str(seeded["completed"]), input=answer)
    assert result.exit_code == code
    assert len(states(cli, f"id:{seeded['completed']}")) == left


# -- edit


def test_an_edit_changes_what_was_named_and_prints_it_before(cli: Cli, seeded: Seeded) -> None:
    job = str(seeded["scheduled"])
    shown = cli.json(
        "jobs", "edit", job, "--queue", "slow", "--priority", "9", "--tag+", "late", "--dry-run"
    )["items"]
    assert {row["field"] for row in shown} == {"queue", "priority", "tags"}
    cli.ok("jobs", "edit", job, "--queue", "slow", "--priority", "9", "--tag+", "late", "--tag-", "letter")
    found = cli.json("jobs", "show", job)["items"][0]
    assert (found["queue"], found["priority"]) == ("slow", 9)
    assert "late" in found["tags"]
    assert "letter" not in found["tags"]
    assert audited(cli)[0]["action"] == "jobs.edit"


def test_an_edit_sets_the_time_as_people_type_it(cli: Cli, seeded: Seeded) -> None:
    cli.ok("jobs", "edit", str(seeded["scheduled"]), "--at", "2031-05-04 09:00", "--tz", "Europe/Paris")
    found = cli.json("jobs", "show", str(seeded["scheduled"]))["items"][0]
    assert found["scheduled_at"] == "2031-05-04T07:00:00.000000Z"


def test_an_edit_of_a_running_job_is_a_conflict(cli: Cli, seeded: Seeded) -> None:
    assert cli("jobs", "edit", str(seeded["executing"]), "--priority", "1").exit_code == ExitCode.CONFLICT


# -- queues, nodes, cron


def test_a_queue_is_paused_until_a_time_and_resumed(cli: Cli, seeded: Seeded) -> None:
    cli.ok("queues", "pause", "mail", "--until", "+1h", "--reason", "provider is down")
    found = cli.json("queues", "show", "mail")
    assert (found["paused"], found["reason"], found["paused_by"]) == (True, "provider is down", ACTOR)
    assert found["paused_until"] is not None
    cli.ok("queues", "resume", "mail")
    assert not cli.json("queues", "show", "mail")["paused"]
    assert [row["action"] for row in audited(cli)] == ["queues.resume", "queues.pause"]


def test_all_queues_are_paused_at_once_with_yes(cli: Cli, seeded: Seeded) -> None:
    assert cli("queues", "pause", "--all").exit_code == ExitCode.USAGE
    cli.ok("queues", "pause", "--all", "--yes")
    assert all(queue["paused"] for queue in cli.json("queues")["items"])


def test_a_queue_is_scaled_on_all_nodes_or_one_and_back(cli: Cli, seeded: Seeded) -> None:
    cli.ok("queues", "scale", "mail", "3")
    assert cli.json("queues", "show", "mail")["limit"] == 3
    cli.ok("queues", "scale", "mail", "1", "--node", "web-1:77:abcd")
    assert cli.json("queues", "show", "mail")["limit"] == 1
    cli.ok("queues", "scale", "mail", "--reset", "--node", "web-1:77:abcd")
    cli.ok("queues", "scale", "mail", "--reset")
    assert cli.json("queues", "show", "mail")["limit"] == 5


def test_a_node_is_told_to_pause_and_to_drain(cli: Cli, seeded: Seeded) -> None:
    cli.ok("nodes", "pause", "web-1")
    assert cli.json("nodes")["items"][0]["paused"]
    cli.ok("nodes", "resume", "web-1")
    cli.ok("nodes", "drain", "web-1", "--reason", "deploy")
    assert cli.json("nodes")["items"][0]["draining"]


def test_a_recurring_job_is_run_paused_and_resumed(cli: Cli, seeded: Seeded) -> None:
    from datetime import UTC, datetime

    app = cli.app()
    with app.engine.begin() as conn:
        for entry in app.registry.schedules():
            recurring = entry.recurring
            app.core.storage.ensure_entry(
                conn,
                recurring.key,
                cron=recurring.cron,
                timezone=recurring.timezone,
                worker="jobkit_cleanup",
                paused=recurring.paused,
                now=datetime.now(UTC),
            )
    app.close()
    cli.ok("cron", "pause", "jobkit_cleanup", "--reason", "migration")
    assert cli.json("cron", "show", "jobkit_cleanup")["status"] == "paused"
    cli.ok("cron", "resume", "jobkit_cleanup")
    assert cli.json("cron", "show", "jobkit_cleanup")["status"] == "active"
    made = cli.json("cron", "run", "jobkit_cleanup")
    assert cli.json("jobs", "show", str(made["job_id"]))["items"][0]["worker"] == "jobkit_cleanup"


def test_what_the_apps_plugins_do_in_the_transaction_is_done_for_operators_too(
    cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cli.folder / "ledger.py").write_text(
        "from jobkit import hookimpl\n\n@hookimpl\ndef jobkit_transitions(conn, transitions):\n"
        "    open('ledger.txt', 'a').write(','.join(str(t.id) for t in transitions))\n"
    )
    monkeypatch.syspath_prepend(str(cli.folder))
    monkeypatch.chdir(cli.folder)
    cli.ok("jobs", "retry", str(seeded["discarded"]), env={"JOBKIT_IMPORTS": "ledger"})
    assert (cli.folder / "ledger.txt").read_text() == str(seeded["discarded"])
