"""`jobkit enqueue`: what is written, what is refused, and how args are read."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.pairs import parse_pairs
from tests.cli.support import Cli, audited


@pytest.fixture
def ready(cli: Cli) -> Cli:
    """A database with its tables."""
    cli.ok("migrate")
    return cli


def only(cli: Cli) -> dict[str, object]:
    """The one job there is, in full."""
    (job,) = cli.json("jobs", "list")["items"]
    found: dict[str, object] = cli.json("jobs", "show", str(job["id"]))["items"][0]
    return found


def test_a_job_is_inserted_with_all_that_was_said_of_it(ready: Cli) -> None:
    result = ready.ok(
        *("enqueue", "add", "a=7", "b:=8", "--queue", "mail", "--priority", "3", "--max-attempts", "5"),
        *("--tag", "one", "--tag", "two", "--meta", "source=shell", "--meta", "n:=1", "--reason", "try"),
    )
    job = only(ready)
    assert result.stdout.strip() == str(job["id"])
    assert job["args"] == {"a": 7, "b": 8}
    assert (job["queue"], job["priority"], job["max_attempts"]) == ("mail", 3, 5)
    assert job["tags"] == ["one", "two"]
    assert job["meta"] == {"source": "shell", "n": 1}
    assert audited(ready)[0]["action"] == "jobs.insert"


def test_the_workers_own_options_hold_where_nothing_was_said(ready: Cli) -> None:
    ready.ok("enqueue", "send", "to=ann")
    job = only(ready)
    assert (job["queue"], job["max_attempts"], job["state"]) == ("mail", 3, "available")


def test_text_stays_text_where_the_arg_is_text(ready: Cli) -> None:
    ready.ok("enqueue", "send", "to=42", "body=true")
    assert only(ready)["args"] == {"to": "42", "body": "true"}


def test_later_may_be_said_as_a_delay_or_as_a_time(ready: Cli) -> None:
    ready.ok("enqueue", "add", "a=1", "--in", "2h")
    ready.ok("enqueue", "add", "a=2", "--at", "2031-05-04T09:00", "--tz", "Europe/Paris")
    soon, later = ready.json("jobs", "list", "state:scheduled", "--sort", "id-asc")["items"]
    due = datetime.fromisoformat(soon["scheduled_at"])
    assert 7_000 < (due - datetime.now(UTC)).total_seconds() < 7_201
    assert later["scheduled_at"] == "2031-05-04T07:00:00.000000Z"
    assert ready("enqueue", "add", "a=1", "--in", "2h", "--at", "now").exit_code == ExitCode.USAGE


def test_a_file_makes_a_job_of_each_line(ready: Cli) -> None:
    lines = "".join(f'{{"a": {n}}}\n' for n in range(20))
    result = ready.ok("enqueue", "add", "--args-file", "-", "--json", input=lines + "\n")
    assert len(json.loads(result.stdout)["items"]) == 20
    assert ready.ok("jobs", "list", "--count").stdout.strip() == "20"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1]", "line 3"),
        ("{a: 1}", "line 3"),
        ('{"a": "one"}', "line 3"),
        ("{}", "line 3"),
        ('{"a": 1, "bb": 2}', "line 3: add has no arg 'bb'; did you mean 'b'"),
    ],
)
def test_a_file_with_a_wrong_line_is_named_and_nothing_is_inserted(ready: Cli, line: str, words: str) -> None:
    text = f'{{"a": 1}}\n\n{line}\n{{"a": 4}}\n[5]\n'
    for more in ((), ("--json",), ("--dry-run",)):
        result = ready("enqueue", "add", "--args-file", "-", *more, input=text)
        assert result.exit_code == ExitCode.USAGE
        assert words in result.stderr
        assert "line 5" in result.stderr
        assert "line 1" not in result.stderr
        assert result.stdout == ""
    assert ready.ok("jobs", "list", "--count").stdout.strip() == "0"


def test_a_file_with_many_wrong_lines_names_the_first_ones(ready: Cli) -> None:
    result = ready("enqueue", "add", "--args-file", "-", input="[]\n" * 40)
    assert "line 10:" in result.stderr
    assert "line 11:" not in result.stderr
    assert "and 30 more lines" in result.stderr


def test_the_ids_of_a_file_s_jobs_are_printed_in_its_order_and_the_audit_has_one_row(ready: Cli) -> None:
    lines = "".join(f'{{"a": {n}}}\n' for n in range(50))
    ids = ready.ok("enqueue", "add", "--args-file", "-", "--jsonl", input=lines).stdout.splitlines()
    shown = ready.json("jobs", "show", str(json.loads(ids[7])["id"]))["items"][0]
    assert shown["args"] == {"a": 7}
    assert [row["count"] for row in audited(ready) if row["action"] == "jobs.insert"] == [50]


def test_a_count_makes_equal_jobs_and_a_unique_one_once(ready: Cli) -> None:
    assert len(ready.json("enqueue", "add", "a=1", "--count", "3")["items"]) == 3
    rows = ready.json("enqueue", "once", "key=x", "--count", "3")["items"]
    assert [row["duplicate"] for row in rows] == [False, True, True]
    assert len({row["id"] for row in rows}) == 1
    assert ready("enqueue", "add", "--count", "2", "--args-file", "-", input="").exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["send", "to=ann", "boddy=hello"], "send has no arg 'boddy'; did you mean 'body'"),
        (["send", '{"to": "ann", "subject": "x"}'], "send has no arg 'subject'; args are: to, body"),
        (["add", "a=1", "b=2", "B=3"], "add has no arg 'B'"),
    ],
)
def test_an_arg_that_the_worker_does_not_have_is_refused_with_the_nearest(
    ready: Cli, words: list[str], hint: str
) -> None:
    for more in ([], ["--dry-run"]):
        result = ready("enqueue", *words, *more)
        assert result.exit_code == ExitCode.USAGE
        assert hint in result.stderr
    assert ready.ok("jobs", "list", "--count").stdout.strip() == "0"


def test_an_unknown_worker_is_refused_unless_that_is_meant(ready: Cli) -> None:
    refused = ready("enqueue", "ad", "a=1")
    assert refused.exit_code == ExitCode.NOT_FOUND
    assert "did you mean 'add'" in refused.stderr
    ready.ok("enqueue", "elsewhere", "a:=1", "--unknown")
    assert only(ready)["args"] == {"a": 1}


def test_secrets_of_the_worker_are_shown_nowhere(ready: Cli) -> None:
    ready.ok("enqueue", "once", "key=a", "pin=4711x4711")
    for args in (["jobs", "list"], ["jobs", "show", "1"], ["jobs", "export", "--full"], ["audit", "--json"]):
        assert "4711x4711" not in ready.ok(*args).stdout
    shown = ready.ok("enqueue", "once", "key=b", "pin=4711x4711", "--dry-run", "--json").stdout
    assert "4711x4711" not in shown


def test_no_unique_inserts_a_second_one(ready: Cli) -> None:
    first = ready.json("enqueue", "once", "key=a")["items"][0]["id"]
    second = ready.json("enqueue", "once", "key=a", "--no-unique")["items"][0]
    assert second["id"] != first
    assert not second["duplicate"]


def test_waiting_for_a_new_job_tells_how_it_ended(lite: Cli) -> None:
    lite.ok("migrate")
    result = lite("enqueue", "add", "a=1", "--wait", "--timeout", "0.2s")
    assert result.exit_code == ExitCode.WAIT_TIMEOUT
    assert result.stdout.strip() == "1"


def test_pairs_are_read_by_the_types_of_their_keys() -> None:
    types = {"n": int, "s": str, "maybe": str | None, "many": list[int]}
    found = parse_pairs(["n=1", "s=1", "maybe=1", "many=[1, 2]", "other=1", "json:=[true]"], "args", types)
    assert found == {"n": 1, "s": "1", "maybe": "1", "many": [1, 2], "other": "1", "json": [True]}
