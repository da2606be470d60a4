"""The words that people meet: in the right place, once, in the right number, and with a remedy that is one."""

from __future__ import annotations

import signal
import socket

import pytest

from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.words import many
from tests.cli.support import Cli, Seeded, seed, wait_until

ENDLESS = (
    ["jobs", "tail"],
    ["jobs", "tail", "--json"],
    ["jobs", "list", "--watch", "200ms"],
    ["stats", "--watch", "200ms", "--table"],
)


@pytest.mark.parametrize("command", ENDLESS, ids=" ".join)
def test_ctrl_c_is_the_normal_end_of_what_has_no_other(lite: Cli, command: list[str]) -> None:
    seed(lite.app())
    process = lite.process(
        *command, "--tsv" if "--json" not in command and "--table" not in command else "-q"
    )
    if "tail" not in command:
        assert process.stdout is not None
        assert process.stdout.readline()
    else:
        with lite.process("jobs", "tail", "--until-idle", "1s") as other:  # by then the first one looks, too
            other.communicate(timeout=60)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert err.strip() == ""


def test_ctrl_c_is_the_normal_end_of_the_dashboard(lite: Cli) -> None:
    lite.ok("migrate", "up")
    port = free_port()
    process = lite.process("dashboard", "--port", str(port))
    wait_until(lambda: _answers(port), 60)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (ExitCode.OK, ExitCode.INTERRUPTED)
    assert "error" not in err
    assert "interrupted" not in err


def test_a_port_that_is_taken_names_the_option_for_another(lite: Cli) -> None:
    lite.ok("migrate", "up")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = lite("dashboard", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == ExitCode.CONFIG
    assert "--port" in result.stderr


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as found:
        if found.connect_ex(("127.0.0.1", port)):
            return False
        found.settimeout(30)
        found.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return bool(found.recv(1))


def test_why_offers_no_remedy_that_changes_nothing(lite: Cli) -> None:
    lite.ok("migrate", "up")
    lite.ok("enqueue", "add", "a=1")
    first = lite.ok("enqueue", "add", "a=1", "--priority", "0").stdout.split()[0]
    later = lite.ok("enqueue", "add", "a=1", "--priority", "3").stdout.split()[0]
    fixes = {
        job: next(cause["fix"] for cause in lite.json("why", job)["causes"] if cause["kind"] == "behind")
        for job in (first, later)
    }
    assert fixes == {first: "", later: f"jobkit jobs edit {later} --priority 0"}


@pytest.mark.parametrize("word", ["OR", "AND", "NOT", "||", "&&"])
def test_an_operator_of_another_language_is_a_problem_with_a_hint(lite: Cli, word: str) -> None:
    lite.ok("migrate", "up")
    result = lite("jobs", "list", "queue:a", word, "queue:b")
    assert result.exit_code == ExitCode.USAGE
    assert f'did you mean "{word}"' in result.stderr
    lite.ok("jobs", "list", f'queue:a "{word}"')
    lite.ok("jobs", "list", "or")


def test_a_warning_about_a_plugin_is_said_once(lite: Cli) -> None:
    lite.ok("migrate", "up")
    process = lite.process("dashboard", "token", "list", env={"JOBKIT_REPLACE_PRUNNER": "acme"})
    _, err = process.communicate(timeout=60)
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == len(set(lines)), err


def test_an_unknown_worker_is_answered_with_the_option_that_brings_it(lite: Cli) -> None:
    lite.ok("migrate", "up")
    assert "--import" in lite("enqueue", "nobody").stderr


def test_a_setting_given_by_set_is_named_as_it_was_given(lite: Cli) -> None:
    assert "--set foo: there is no setting 'foo'" in lite("stats", "--set", "foo=1").stderr
    assert "--set dead_after: 'soon' is no duration" in lite("stats", "--set", "dead_after=soon").stderr
    assert "--dead-after: 'soon' is no duration" in lite("stats", "--dead-after", "soon").stderr


@pytest.mark.parametrize(
    "pair", [("--tsv", "--csv"), ("--json", "--csv"), ("--jsonl", "--json"), ("--table", "--tsv")]
)
def test_two_formats_at_once_are_a_usage_error(lite: Cli, pair: tuple[str, str]) -> None:
    result = lite("version", *pair)
    assert result.exit_code == ExitCode.USAGE
    assert "give one of them" in result.stderr
    assert result.stdout == ""
    lite.ok("version", "--json", "--json")


def test_nothing_that_waits_has_no_oldest(lite: Cli) -> None:
    lite.ok("migrate", "up")
    assert lite.json("stats")["oldest"] is None
    assert "0 s" not in lite.ok("stats", "--table").stdout
    assert lite("stats", "--fail-if", "oldest>1s").exit_code == ExitCode.OK


def test_a_queue_s_pause_is_told_in_words(cli: Cli, seeded: Seeded) -> None:
    def said(*words: str) -> str:
        return cli.ok("queues", *words, "--table").stdout.strip()

    paused = "queue mail is paused (was not paused); of its jobs 0 may run at once now, 5 before"
    assert said("pause", "mail") == paused
    assert said("pause", "mail") == "queue mail is paused; nothing changed"
    assert said("pause", "mail", "--until", "2031-05-04T09:00") == (
        "queue mail is paused until 2031-05-04 09:00:00 UTC (was paused)"
    )
    resumed = "queue mail is resumed (was paused); of its jobs 5 may run at once now, 0 before"
    assert said("resume", "mail") == resumed
    assert said("resume", "mail") == "queue mail is as it was; nothing changed"
    assert said("scale", "mail", "7") == (
        "queue mail has the limit 7 on each node (was as configured); of its jobs 7 may run at once now, 5 before"
    )


def test_a_job_s_story_says_each_thing_once(cli: Cli, seeded: Seeded) -> None:
    job = cli.ok("enqueue", "add", "a=1").stdout.split()[0]
    cli.ok("jobs", "cancel", job, "--reason", "not needed")
    story = [event["text"] for event in cli.json("jobs", "show", job)["items"][0]["timeline"]]
    who = cli.json("audit", "list")["items"][0]["actor"]
    assert story == [f"inserted into default by {who}", f"cancelled by {who} (not needed)"]


def test_one_is_no_plural() -> None:
    assert (many(1, "job"), many(0, "job"), many(2_000, "job")) == ("1 job", "0 jobs", "2,000 jobs")


def test_one_job_is_one_job(cli: Cli, seeded: Seeded) -> None:
    result = cli("jobs", "wait", str(seeded["scheduled"]), "--timeout", "0s")
    assert "1 of 1 job has not ended" in result.stderr
    shown = cli.ok("jobs", "retry", "--query", f"id:{seeded['discarded']}", "--dry-run", "--table")
    assert "1 job matches" in shown.stderr
