"""What must hold of the command line and of the times that it shows, by number."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobkit.cli.exitcodes import ExitCode
from tests.cli.support import HOSTILE, Cli, Seeded, seed

# -- CL1


def test_CL1_a_failure_exits_non_zero_with_a_short_message_on_stderr(lite: Cli) -> None:
    lite.ok("migrate")
    result = lite("jobs", "show", "7")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert result.stdout == ""
    assert 1 <= len(result.stderr.splitlines()) <= 2


def test_CL1_an_unexpected_error_is_one_line_without_a_traceback(
    lite: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **given: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("jobkit.admin.reads.Reads.queues", broken)
    lite.ok("migrate")
    result = lite("queues")
    assert result.exit_code == ExitCode.FAILED
    assert "ZeroDivisionError: by zero" in result.stderr
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in lite("queues", "--debug").stderr


def test_CL1_a_password_in_an_error_is_not_shown(lite: Cli) -> None:
    url = "postgresql://postgres:hunter2secret@127.0.0.1:1/nowhere?connect_timeout=2"
    result = lite("jobs", "list", "--db", url)
    assert result.exit_code == ExitCode.DATABASE
    assert "hunter2secret" not in result.stderr + result.stdout


def test_CL1_a_process_ends_with_the_same_code(lite: Cli) -> None:
    lite.ok("migrate")
    process = lite.process("jobs", "show", "7")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == ExitCode.NOT_FOUND
    assert "Traceback" not in stderr


# -- CL2


@pytest.mark.parametrize("form", ["--tsv", "--json", "--jsonl", "--table"])
def test_CL2_a_closed_output_pipe_ends_the_command_quietly(lite: Cli, form: str) -> None:
    app = lite.app()
    seed(app)
    from tests.cli import samplejobs

    app.enqueue_all([samplejobs.add(a=n) for n in range(2_000)])
    app.close()
    process = lite.process("jobs", "list", "--limit", "2000", "-q", form)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    stderr = process.stderr.read()
    assert process.wait(60) == 0
    assert stderr == ""


def test_CL2_it_is_quiet_too_where_nobody_reads_from_the_start(lite: Cli) -> None:
    process = lite.process("version")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 0


# -- CL3


def test_CL3_json_is_valid_and_alone_on_stdout(cli: Cli, seeded: Seeded) -> None:
    result = cli.ok("workers", "list", "-v", "--json", env={"JOBKIT_DISABLE": "no_such_plugin"})
    json.loads(result.stdout)
    assert "no_such_plugin" not in result.stdout


def test_CL3_nothing_found_is_valid_json_too(cli: Cli, seeded: Seeded) -> None:
    document = cli.json("jobs", "list", "queue:nowhere")
    assert document["items"] == []
    assert document["next"] is None


def test_CL3_there_are_no_colour_codes_in_a_pipe_nor_with_no_color(lite: Cli) -> None:
    app = lite.app()
    seed(app)
    app.close()
    for args, env in (
        (("jobs",), {}),
        (("jobs", "--table"), {}),
        (("jobs", "--table"), {"NO_COLOR": "1"}),
        (("jobs", "--table", "--color", "never"), {"FORCE_COLOR": "1"}),
    ):
        process = lite.process(*args, env=env)
        stdout, _ = process.communicate(timeout=60)
        assert "\x1b" not in stdout, args


def test_CL3_colours_may_be_asked_for(lite: Cli) -> None:
    app = lite.app()
    seed(app)
    app.close()
    assert "\x1b[" in lite.ok("jobs", "--table", "--color", "always").stdout


def test_CL3_text_of_jobs_cannot_make_the_terminal_do_anything(cli: Cli, seeded: Seeded) -> None:
    for args in (
        ("jobs", "list", "--table"),
        ("jobs", "list"),
        ("jobs", "list", "--csv"),
        ("jobs", "list", "--json"),
        ("jobs", "show", str(seeded["discarded"]), "--table"),
        ("jobs", "show", str(seeded["discarded"])),
        ("jobs", "export"),
    ):
        printed = cli.ok(*args).stdout
        for char in "\x1b\x07\u202e":
            assert char not in printed, args


def test_CL3_json_keeps_the_text_exactly(cli: Cli, seeded: Seeded) -> None:
    found = cli.json("jobs", "show", str(seeded["available"]))["items"][0]
    assert found["args"]["body"] == HOSTILE


def test_CL3_a_spreadsheet_cannot_take_a_cell_for_a_formula(cli: Cli, seeded: Seeded) -> None:
    cli.ok("enqueue", "send", "to==1+1", "--tag", "=cmd|' /C calc'!A0")
    printed = cli.ok("jobs", "list", "--csv", "--columns", "id,tags", "--header").stdout
    rows = list(csv.reader(io.StringIO(printed)))
    assert rows[0] == ["id", "tags"]
    assert any(row[1].startswith("'=cmd") for row in rows[1:])


def test_CL3_logs_of_a_node_go_to_stderr(lite: Cli) -> None:
    lite.ok("migrate")
    process = lite.process("run", "--drain", "--no-cron", "--log", "json")
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 0
    assert stdout == ""
    lines = [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]
    assert {"node.start", "node.stop"} <= {line.get("event") for line in lines}


# -- CL4


@pytest.mark.parametrize(
    "args",
    [
        ["jobs", "list", "--limit", "none"],
        ["jobs", "list", "--nonsense"],
        ["jobs", "list", "--limit"],
        ["enqueue"],
        ["enqueue", "add", "--priority", "77"],
        ["enqueue", "add", "--in", "soon"],
        ["run", "--health", "nowhere"],
        ["run", "--queues", "default:many"],
        ["queues", "scale", "mail"],
        ["stats", "--since", "-5m"],
        ["completion", "tcsh"],
        ["--set", "no_equals_sign", "jobs"],
    ],
    ids=" ".join,
)
def test_CL4_a_bad_option_is_a_usage_error(lite: Cli, args: list[str]) -> None:
    lite.ok("migrate")
    result = lite(*args)
    assert result.exit_code == ExitCode.USAGE, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")


def test_CL4_a_misspelt_command_names_the_one_that_was_meant(lite: Cli) -> None:
    assert "did you mean 'queues'" in lite("queue").stderr
    assert "did you mean 'retry'" in lite("jobs", "retyr").stderr


# -- CL5

APPS = {
    "missing_module:app": "not found: there is no module 'missing_module'",
    "has_app:nothing": "not found: the module has_app has no attribute 'nothing'",
    "has_app:appp": "did you mean 'app'",
    "has_app:number": "is a int, expected a Jobkit",
    "broken_inside:app": "failed while importing: ModuleNotFoundError: No module named 'missing_below'",
    "raises:app": "failed while importing: ZeroDivisionError: division by zero",
    "exits:app": "failed while importing: SystemExit: 3",
    "unreadable:app": "failed while importing: SyntaxError",
}


@pytest.fixture
def apps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules that hold an app, or fail in ways of their own."""
    for name, text in {
        "has_app": "from jobkit import Jobkit\napp = Jobkit()\nnumber = 7\n",
        "broken_inside": "import missing_below\n",
        "raises": "\n\n1 / 0\n",
        "exits": "import sys\nsys.exit(3)\n",
        "unreadable": "def (:\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("has_app", "broken_inside", "raises", "exits", "unreadable"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("spec", APPS)
def test_CL5_not_found_and_failed_while_importing_are_told_apart(lite: Cli, apps: Path, spec: str) -> None:
    result = lite("plugins", "--app", spec, env={"JOBKIT_IMPORTS": ""})
    assert result.exit_code == ExitCode.CONFIG
    assert APPS[spec] in result.stderr


def test_CL5_the_place_of_the_failure_is_named(lite: Cli, apps: Path) -> None:
    assert "raises.py, line 3" in lite("plugins", "--app", "raises:app").stderr
    assert "raises.py, line 3" in lite("run", "--import", "raises").stderr


def test_CL5_a_module_of_imports_is_told_apart_too(lite: Cli, apps: Path) -> None:
    assert "not found" in lite("run", "--import", "missing_module").stderr
    assert "failed while importing" in lite("run", "--import", "broken_inside").stderr


def test_a_command_that_only_reads_the_database_imports_no_app(lite: Cli, apps: Path) -> None:
    lite.ok("migrate")
    for args in (["jobs"], ["queues"], ["nodes"], ["cron"], ["stats"], ["audit"]):
        lite.ok(*args, "--app", "raises:app", env={"JOBKIT_IMPORTS": "raises"})


def test_an_option_that_the_app_overrules_is_not_dropped_silently(lite: Cli, apps: Path) -> None:
    (apps / "own_mind.py").write_text("from jobkit import Jobkit\napp = Jobkit('sqlite:///theirs.db')\n")
    result = lite(
        "run", "--check", "--app", "own_mind:app", "--db", "sqlite:///mine.db", env={"JOBKIT_IMPORTS": ""}
    )
    assert result.exit_code == ExitCode.USAGE
    assert "own_mind:app sets database_url itself" in result.stderr


def test_an_app_that_reads_the_environment_sees_the_options(lite: Cli, apps: Path) -> None:
    result = lite.ok(
        "config",
        "show",
        "dead_after",
        "--effective",
        "--app",
        "has_app:app",
        "--dead-after",
        "21s",
        "--json",
        env={"JOBKIT_IMPORTS": ""},
    )
    assert json.loads(result.stdout)["items"][0]["value"] == "21s"


# -- DA6

LABELLED = re.compile(r"\d\d:\d\d:\d\d (UTC|[+-]\d\d:\d\d)")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "Asia/Kolkata", "America/St_Johns"])
def test_DA6_every_time_shown_is_labelled_with_its_zone(lite: Cli, zone: str) -> None:
    app = lite.app()
    seeded = seed(app)
    app.close()
    for args in (
        ["jobs", "show", str(seeded["discarded"])],
        ["jobs", "list", "--absolute"],
        ["audit", "--absolute"],
        ["nodes", "show", "web-1"],
        ["cron", "simulate", "0 9 * * *"],
        ["cron", "next", "--declared"],
    ):
        printed = lite.ok(*args, "--table", "--tz", zone).stdout
        for clock in re.finditer(r"\d\d:\d\d:\d\d[^\n]{0,7}", printed):
            assert LABELLED.match(clock[0]), f"{args}: {clock[0]!r}"


def test_DA6_machines_get_times_in_utc_that_say_so(lite: Cli) -> None:
    app = lite.app()
    seed(app)
    app.close()
    for job in lite.json("jobs", "list", "--tz", "Asia/Kolkata")["items"]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", job["inserted_at"])


# -- how long it takes


def test_the_version_and_completion_load_neither_the_database_nor_tables_for_people() -> None:
    for line in ("--version", "completion bash"):
        code = f"import sys; sys.argv = ['jobkit', *{line.split()!r}]\nfrom jobkit.cli import main\nmain()"
        report = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); exec({code!r})"
        found = subprocess.run(
            [sys.executable, "-c", report], capture_output=True, text=True, check=True, timeout=60
        )
        loaded = set(found.stderr.split())
        assert not loaded & {"sqlalchemy", "rich", "alembic", "croniter", "msgspec"} or line != "--version"
        assert not loaded & {"rich", "alembic", "croniter"}


@pytest.mark.empty_database
def test_help_for_a_topic_comes_without_a_database(lite: Cli) -> None:
    started = time.monotonic()
    for topic in ("times", "output", "exit-codes", "query", "settings"):
        assert lite.ok("help", topic).stdout
    assert time.monotonic() - started < 30
    assert not (lite.folder / "jobkit-test.db").exists()
