"""What a wrong configuration is told as: its own words, exit code 3, whatever the command; and no secret in them."""

from __future__ import annotations

import pytest

from jobkit.cli.exitcodes import ExitCode
from tests.cli.support import Cli

READS = (
    ["jobs", "list"],
    ["jobs", "show", "1"],
    ["why", "1"],
    ["stats"],
    ["queues", "list"],
    ["nodes"],
    ["cron"],
    ["workers"],
    ["plugins"],
    ["audit"],
    ["enqueue", "add", "a=1"],
    ["jobs", "retry", "1"],
    ["dashboard"],
    ["help", "dashboard"],
)


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_a_wrong_setting_of_a_plugin_is_told_by_every_command(
    lite: Cli, command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    lite.ok("migrate", "up")
    (lite.folder / "jobkit.toml").write_text('[plugins.pruner]\nbatch = "many"\n')
    result = lite(*command)
    assert result.exit_code == ExitCode.CONFIG, result.stderr
    assert "[plugins.pruner] batch: found 'many'" in result.stderr
    assert "Traceback" not in result.stderr + caplog.text


def test_a_mistyped_command_is_one_also_where_a_setting_is_wrong(lite: Cli) -> None:
    (lite.folder / "jobkit.toml").write_text('[plugins.pruner]\nbatch = "many"\n')
    result = lite("jbos")
    assert (result.exit_code, "did you mean 'jobs'" in result.stderr) == (ExitCode.USAGE, True)


def test_a_command_of_a_plugin_that_is_switched_off_says_so(lite: Cli) -> None:
    result = lite("dashboard", env={"JOBKIT_DISABLE": "dashboard"})
    assert result.exit_code == ExitCode.CONFIG
    assert "disabled" in result.stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "a database in memory is seen by one connection only"),
        ("sqlite:///:memory:", "a database in memory is seen by one connection only"),
        ("mysql://ann:hunter2@host/x", "'mysql' is not supported; use sqlite or postgresql"),
        (
            "nonsense",
            "'nonsense' is no database URL; expected one such as sqlite:///jobkit.db or postgresql://",
        ),
        ("ann:hunter2@host/jobs", "is no database URL"),
        ("postgresql://ann:hunter2@127.0.0.1:1/x?password=hunter2", "Connection refused"),
    ],
)
def test_what_is_said_about_the_database_survives_and_its_password_does_not(
    lite: Cli, url: str, words: str
) -> None:
    for result in (lite("stats", "--db", url), lite("stats", env={"JOBKIT_DATABASE_URL": url})):
        assert words in result.stderr
        assert "hunter2" not in result.stderr
        assert "[redacted]" not in result.stderr


def test_a_secret_setting_s_value_is_not_shown_and_what_is_wrong_with_it_is(lite: Cli) -> None:
    (lite.folder / "jobkit.toml").write_text('[plugins.pruner]\napi_key = "hunter2"\n')
    result = lite("stats")
    assert "[plugins.pruner] api_key: the plugin 'pruner' has no setting 'api_key'" in result.stderr
    assert "hunter2" not in result.stderr


def test_a_secret_in_somebody_else_s_error_is_still_hidden(lite: Cli) -> None:
    (lite.folder / "shop.py").write_text('raise ValueError("database_password: hunter2, token=hunter2")\n')
    result = lite("run", "--check", "--app", "shop:app")
    assert result.exit_code == ExitCode.CONFIG
    assert "hunter2" not in result.stderr
