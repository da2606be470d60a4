"""The exit codes, driven by a table: what is done, and what the shell sees."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from jobkit.cli.exitcodes import MEANINGS, ExitCode
from tests.cli.support import ROOT, Cli, Seeded, audited

Case = Callable[[Seeded], list[str]]

ON_DATA: dict[str, tuple[ExitCode, Case]] = {
    "listing": (ExitCode.OK, lambda s: ["jobs"]),
    "listing nothing": (ExitCode.OK, lambda s: ["jobs", "list", "queue:nowhere"]),
    "retrying a discarded job": (ExitCode.OK, lambda s: ["jobs", "retry", str(s["discarded"])]),
    "a duplicate": (ExitCode.OK, lambda s: ["enqueue", "once", "key=a"]),
    "waiting for a failed job": (ExitCode.FAILED, lambda s: ["jobs", "wait", str(s["discarded"])]),
    "waiting for any end": (ExitCode.OK, lambda s: ["jobs", "wait", str(s["discarded"]), "--for", "final"]),
    "failing on a state": (
        ExitCode.FAILED,
        lambda s: ["jobs", "wait", str(s["retryable"]), "--fail-on", "retryable", "--timeout", "10s"],
    ),
    "a query with a problem": (ExitCode.USAGE, lambda s: ["jobs", "list", "colour:red"]),
    "counting a query with a problem": (ExitCode.USAGE, lambda s: ["jobs", "list", "colour:red", "--count"]),
    "a bulk action on a query with a problem": (
        ExitCode.USAGE,
        lambda s: ["jobs", "cancel", "--query", "colour:red", "--yes"],
    ),
    "an id that is none": (ExitCode.USAGE, lambda s: ["jobs", "show", "seven"]),
    "neither ids nor a query": (ExitCode.USAGE, lambda s: ["jobs", "retry"]),
    "many jobs without --yes": (ExitCode.USAGE, lambda s: ["jobs", "cancel", "--query", "queue:mail"]),
    "deleting without --yes": (ExitCode.USAGE, lambda s: ["jobs", "delete", str(s["completed"])]),
    "args of a wrong type": (ExitCode.USAGE, lambda s: ["enqueue", "add", "a=seven"]),
    "args that are no JSON": (ExitCode.USAGE, lambda s: ["enqueue", "add", "{a: 1}"]),
    "a time that is none": (ExitCode.USAGE, lambda s: ["enqueue", "add", "a=1", "--at", "someday"]),
    "an unknown field": (ExitCode.USAGE, lambda s: ["jobs", "--json=id,colour"]),
    "an unknown worker": (ExitCode.NOT_FOUND, lambda s: ["enqueue", "nobody"]),
    "a missing job": (ExitCode.NOT_FOUND, lambda s: ["jobs", "show", "999999"]),
    "retrying a missing job": (ExitCode.NOT_FOUND, lambda s: ["jobs", "retry", "999999"]),
    "waiting for a missing job": (ExitCode.NOT_FOUND, lambda s: ["jobs", "wait", "999999"]),
    "why of a missing job": (ExitCode.NOT_FOUND, lambda s: ["why", "999999"]),
    "a missing queue": (ExitCode.NOT_FOUND, lambda s: ["queues", "show", "nowhere"]),
    "pausing a missing queue": (ExitCode.NOT_FOUND, lambda s: ["queues", "pause", "nowhere"]),
    "a missing node": (ExitCode.NOT_FOUND, lambda s: ["nodes", "show", "nobody"]),
    "a missing entry": (ExitCode.NOT_FOUND, lambda s: ["cron", "show", "never"]),
    "a missing worker": (ExitCode.NOT_FOUND, lambda s: ["workers", "show", "nobody"]),
    "a missing plugin": (ExitCode.NOT_FOUND, lambda s: ["plugins", "show", "nobody"]),
    "running a completed job now": (ExitCode.CONFLICT, lambda s: ["jobs", "run-now", str(s["completed"])]),
    "cancelling a cancelled job": (ExitCode.CONFLICT, lambda s: ["jobs", "cancel", str(s["cancelled"])]),
    "forgetting a live node": (ExitCode.CONFLICT, lambda s: ["nodes", "forget", "web-1", "--yes"]),
    "some of several": (
        ExitCode.PARTLY,
        lambda s: ["jobs", "run-now", str(s["scheduled"]), str(s["completed"]), "--yes"],
    ),
    "a condition that is met": (ExitCode.PROBLEMS, lambda s: ["stats", "--fail-if", "executing>0"]),
    "a condition that is not met": (ExitCode.OK, lambda s: ["stats", "--fail-if", "executing>100"]),
    "a condition that is none": (ExitCode.USAGE, lambda s: ["stats", "--fail-if", "colour>1"]),
    "a wrong expression": (ExitCode.PROBLEMS, lambda s: ["cron", "validate", "61 * * * *"]),
    "simulating a wrong expression": (ExitCode.USAGE, lambda s: ["cron", "simulate", "61 * * * *"]),
    "the time is up": (
        ExitCode.WAIT_TIMEOUT,
        lambda s: ["jobs", "wait", str(s["scheduled"]), "--timeout", "0s"],
    ),
}


@pytest.mark.parametrize("name", ON_DATA)
def test_what_is_done_decides_the_exit_code(cli: Cli, seeded: Seeded, name: str) -> None:
    code, case = ON_DATA[name]
    result = cli(*case(seeded))
    assert result.exit_code == code, result.stdout + result.stderr


WITHOUT_DATA: dict[str, tuple[ExitCode, list[str], dict[str, str]]] = {
    "no such command": (ExitCode.USAGE, ["nonsense"], {}),
    "no such verb": (ExitCode.USAGE, ["queues", "nonsense"], {}),
    "no such option": (ExitCode.USAGE, ["jobs", "list", "--nonsense"], {}),
    "a value that is none": (ExitCode.USAGE, ["run", "--max-jobs", "many"], {}),
    "a setting that is wrong on the command line": (ExitCode.USAGE, ["jobs", "--dead-after", "soon"], {}),
    "a zone that is none": (ExitCode.USAGE, ["jobs", "--tz", "Mars/Olympus"], {}),
    "a setting that is wrong in the environment": (ExitCode.CONFIG, ["jobs"], {"JOBKIT_DEAD_AFTER": "soon"}),
    "a file that is missing": (ExitCode.CONFIG, ["jobs", "--config", "nowhere.toml"], {}),
    "an app that is missing": (ExitCode.CONFIG, ["plugins", "--app", "no_such_module:app"], {}),
    "imports that are missing": (ExitCode.CONFIG, ["run", "--check"], {"JOBKIT_IMPORTS": "no_such_module"}),
    "a database that is away": (
        ExitCode.DATABASE,
        ["jobs"],
        {"JOBKIT_DATABASE_URL": "postgresql://postgres@127.0.0.1:1/nowhere?connect_timeout=2"},
    ),
    "tables that are missing": (ExitCode.SCHEMA, ["jobs"], {}),
    "tables that are checked": (ExitCode.SCHEMA, ["migrate", "--check"], {}),
}


@pytest.mark.empty_database
@pytest.mark.parametrize("name", WITHOUT_DATA)
@pytest.mark.empty_database
def test_what_is_wrong_around_it_decides_the_exit_code(lite: Cli, name: str) -> None:
    import sqlite3

    sqlite3.connect(lite.url.removeprefix("sqlite:///")).execute(
        "CREATE TABLE theirs (id)"
    ).connection.close()
    code, args, env = WITHOUT_DATA[name]
    result = lite(*args, env=env)
    assert result.exit_code == code, result.stdout + result.stderr


def test_every_code_has_a_meaning_and_is_listed_in_the_help(lite: Cli) -> None:
    assert set(MEANINGS) == set(ExitCode)
    rows = lite.json("help", "exit-codes")["items"]
    assert {row["code"] for row in rows} == {int(code) for code in ExitCode}


def test_the_documented_table_is_that_of_the_code() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text()
    for code, meaning in MEANINGS.items():
        assert f"| {int(code)} | {code.word} | {meaning} |" in text


def test_a_duplicate_fails_only_where_that_was_asked_for(cli: Cli, seeded: Seeded) -> None:
    first = cli.json("enqueue", "once", "key=a")["items"][0]
    second = cli.json("enqueue", "once", "key=a")["items"][0]
    assert (second["id"], second["duplicate"]) == (first["id"], True)
    assert cli("enqueue", "once", "key=a", "--fail-on-duplicate").exit_code == ExitCode.CONFLICT


def test_what_a_policy_of_the_app_forbids_ends_with_4_and_is_audited(
    cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cli.folder / "strict_policy.py").write_text(
        "from jobkit import hookimpl\n\n@hookimpl\ndef jobkit_authorize(actor, action, resource):\n"
        "    return False if action == 'queues.pause' else None\n"
    )
    monkeypatch.syspath_prepend(str(cli.folder))
    result = cli("queues", "pause", "mail", env={"JOBKIT_IMPORTS": "strict_policy"})
    assert result.exit_code == ExitCode.NOT_PERMITTED
    assert not cli.json("queues", "show", "mail")["paused"]
    assert audited(cli)[0]["result"] == "denied"


def test_errors_are_json_on_stderr_where_the_output_is_json(cli: Cli, seeded: Seeded) -> None:
    result = cli("jobs", "show", "999999", "--json")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert json.loads(result.stdout)["items"] == []
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "not_found"
    assert "999999" in error["message"]
