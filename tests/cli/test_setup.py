"""`jobkit init`, `migrate`, `config` and `completion`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobkit.cli.exitcodes import ExitCode
from tests.cli.support import Cli, Seeded

pytestmark = pytest.mark.empty_database

# -- init


def bare(cli: Cli) -> dict[str, str]:
    """No settings from the environment."""
    return {"JOBKIT_DATABASE_URL": "", "JOBKIT_IMPORTS": ""}


def test_init_makes_a_project_that_works_with_the_commands_it_names(
    lite: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lite.folder)
    made = lite.json("init", "--no-input", env=bare(lite))
    assert made["files"] == ["jobkit.toml", "jobs.py"]
    environment = {
        k: v for k, v in lite.environment().items() if k not in ("JOBKIT_DATABASE_URL", "JOBKIT_IMPORTS")
    }
    for line in (*made["next"][:-1], "jobkit run --drain --no-cron"):
        words = line.split()[1:]
        found = subprocess.run(
            lite.command(*words),
            env=environment,
            cwd=lite.folder,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert found.returncode == 0, found.stderr
    assert "hello, you" in found.stderr


def test_init_never_overwrites_silently(lite: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lite.folder)
    Path("jobs.py").write_text("mine")
    refused = lite("init", "--no-input", env=bare(lite))
    assert refused.exit_code == ExitCode.CONFLICT
    assert "--force" in refused.stderr
    assert Path("jobs.py").read_text() == "mine"
    assert not Path("jobkit.toml").exists()
    lite.ok("init", "--no-input", "--force", env=bare(lite))
    assert Path("jobs.py").read_text() != "mine"


def test_init_writes_no_password_and_says_when_the_database_is_away(
    lite: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lite.folder)
    url = "postgresql://me:hunter2secret@127.0.0.1:1/app?connect_timeout=2"
    result = lite("init", "--no-input", "--db", url, env=bare(lite))
    assert result.exit_code == ExitCode.DATABASE
    assert "hunter2secret" not in Path("jobkit.toml").read_text() + result.stdout + result.stderr
    assert "JOBKIT_DATABASE_URL" in Path("jobkit.toml").read_text()


# -- migrate


def test_migrating_twice_does_nothing_the_second_time(cli: Cli) -> None:
    assert cli("migrate", "--check").exit_code == ExitCode.SCHEMA
    assert cli.json("migrate", "--dry-run")["items"]
    assert cli.json("migrate")["items"]
    assert cli.json("migrate")["items"] == []
    cli.ok("migrate", "--check")
    assert all(step["applied_at"] for step in cli.json("migrate", "status")["items"])


def test_migrating_down_asks_and_removes_the_tables(cli: Cli, seeded: Seeded) -> None:
    assert cli("migrate", "down", "--to", "0").exit_code == ExitCode.USAGE
    cli.ok("jobs")
    assert cli.json("migrate", "down", "--to", "0", "--dry-run")["items"]
    cli.ok("migrate", "down", "--to", "0", "--yes")
    assert cli("jobs").exit_code == ExitCode.SCHEMA


def test_the_sql_of_migrations_touches_no_database(lite: Cli) -> None:
    for dialect in ("sqlite", "postgresql"):
        assert "CREATE TABLE jobkit_jobs" in lite.ok("migrate", "sql", "--dialect", dialect).stdout
    assert not (lite.folder / "jobkit-test.db").exists()


def test_the_sql_may_be_shown_while_it_runs(cli: Cli) -> None:
    assert "CREATE TABLE" in cli.ok("migrate", "--show-sql").stderr


def test_an_unknown_plugin_has_no_tables(lite: Cli) -> None:
    assert lite("migrate", "--plugin", "nobody").exit_code == ExitCode.NOT_FOUND


# -- config


def test_each_setting_says_where_it_came_from(lite: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lite.folder)
    Path("jobkit.toml").write_text('dead_after = "20s"\nqueues = "a:1"\n')
    found = lite.json("config", "show", "--queues", "b:2", "--set", "plugins.pruner.batch=7")["items"]
    origins = {row["name"]: (row["value"], row["origin_kind"]) for row in found}
    assert origins["dead_after"] == ("20s", "file")
    assert origins["queues"] == ("b:2", "command line")
    assert origins["database_url"][1] == "environment"
    assert origins["arm"] == ("auto", "default")
    assert origins["plugins.pruner.batch"] == ("7", "command line")


def test_the_settings_of_an_app_made_in_code_are_its_own(lite: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(lite.folder))
    (lite.folder / "madeincode.py").write_text(
        "from jobkit import Jobkit\nfrom jobkit.config import Config\n"
        "app = Jobkit(config=Config(database_url='postgresql://u:hunter2@h/db', dead_after='21s'))\n"
    )
    none = {"JOBKIT_DATABASE_URL": "", "JOBKIT_IMPORTS": ""}
    result = lite.ok("config", "show", "--json", "--app", "madeincode:app", env=none)
    found = {row["name"]: (row["value"], row["origin_kind"]) for row in json.loads(result.stdout)["items"]}
    assert found["database_url"] == ("postgresql://u:***@h/db", "constructor")
    assert found["dead_after"] == ("21s", "constructor")
    assert found["app"] == ("madeincode:app", "command line")
    assert found["arm"] == ("auto", "default")
    without = lite.ok("config", "show", "dead_after", "--no-app", "--app", "madeincode:app", env=none)
    assert without.stdout.split("\t")[1] == "15s"


def test_where_the_app_cannot_be_had_the_settings_it_would_find_are_shown_with_a_warning(lite: Cli) -> None:
    result = lite.ok("config", "show", "dead_after", "--app", "no_such_module:app")
    assert result.stdout.startswith("dead_after\t15s")
    assert "no_such_module" in result.stderr
    strict = lite("config", "show", "--effective", "--app", "no_such_module:app")
    assert strict.exit_code == ExitCode.CONFIG


def test_scripts_come_as_documents_too(lite: Cli) -> None:
    assert "CREATE TABLE" in lite.json("migrate", "sql")["sql"]
    assert "_JOBKIT_COMPLETE" in lite.json("completion", "bash")["script"]


def test_passwords_are_masked(lite: Cli) -> None:
    url = "postgresql://me:hunter2secret@127.0.0.1/app"
    for form in ("--table", "--json", "--tsv"):
        printed = lite.ok("config", "show", "--db", url, form).stdout
        assert "hunter2secret" not in printed
        assert "***" in printed


def test_a_check_names_misspelt_variables(lite: Cli) -> None:
    result = lite("config", "check", env={"JOBKIT_DEAD_AFTR": "20s"})
    assert result.exit_code == ExitCode.PROBLEMS
    assert "JOBKIT_DEAD_AFTER" in result.stdout
    lite.ok("config", "check")


# -- completion


def complete(cli: Cli, line: str, **env: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = line.split(" ")
    found = subprocess.run(
        [sys.executable, "-m", "jobkit"],
        env=cli.environment(
            _JOBKIT_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), **env
        ),
        cwd=cli.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.stderr == ""
    return [row.partition(",")[2] for row in found.stdout.splitlines() if row]


def test_commands_options_and_values_are_completed(cli: Cli, seeded: Seeded) -> None:
    assert complete(cli, "jobkit jo") == ["jobs"]
    assert complete(cli, "jobkit jobs re") == ["retry"]
    assert "--queue" in complete(cli, "jobkit jobs list --q")
    assert complete(cli, "jobkit jobs list --state disc") == ["discarded"]

    for line, values in {
        "jobkit queues pause ma": ["mail", "mailers"],
        "jobkit jobs list queue:mai": ["queue:mail", "queue:mailers"],
        "jobkit jobs list --tag let": ["letter"],
        "jobkit jobs list wor": ["worker:"],
        "jobkit nodes drain we": ["web-1:77:abcd"],
    }.items():
        assert any(sorted(complete(cli, line)) == values for _ in _tries(cli)), line
    assert any(str(seeded["retryable"]) in complete(cli, "jobkit jobs show ") for _ in _tries(cli))


def _tries(cli: Cli) -> Iterator[None]:
    """A busy machine may answer too late; that is believed for a moment only."""
    for _ in range(20):
        yield
        for file in cli.folder.glob("cache/jobkit/*.json"):
            os.utime(file, (time.time() - 30, time.time() - 30))


def test_completion_is_silent_whatever_is_wrong_and_imports_no_app(lite: Cli) -> None:
    (lite.folder / "loud.py").write_text("open('imported', 'w').close()\nraise SystemExit(3)\n")
    away = "postgresql://postgres@127.0.0.1:1/nowhere"
    assert complete(lite, "jobkit queues pause ", JOBKIT_DATABASE_URL=away, JOBKIT_IMPORTS="loud") == []
    assert complete(lite, "jobkit queues pause ", JOBKIT_DEAD_AFTER="soon") == []
    assert not (lite.folder / "imported").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed_or_installed(
    lite: Cli, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(lite.folder))
    script = lite.ok("completion", shell).stdout
    assert "_JOBKIT_COMPLETE" in script
    lite.ok("completion", shell, "--install")
    written = [path for path in lite.folder.rglob("*jobkit*") if path.is_file()]
    assert any(path.read_text().strip() == script.strip() for path in written)
