"""`jobkit cron`: expressions by themselves, and what the rules of schedules look like from the command line."""

from __future__ import annotations

import json
import time

import pytest

from jobkit.cli.exitcodes import ExitCode
from tests.cli.support import Cli


def runs(cli: Cli, expression: str, *args: str) -> list[str]:
    """The instants at which it runs."""
    return [row["at"] for row in cli.json("cron", "simulate", expression, *args)["items"]]


def test_CR1_an_expression_that_can_never_match_is_refused_quickly(lite: Cli) -> None:
    started = time.monotonic()
    result = lite("cron", "validate", "0 0 31 2 *")
    assert result.exit_code == ExitCode.PROBLEMS
    assert "never runs" in result.stderr
    assert time.monotonic() - started < 5


def test_CR2_a_day_that_matches_either_day_field_matches(lite: Cli) -> None:
    found = runs(lite, "0 0 13 * FRI", "--from", "2026-11-01", "--until", "2026-12-01")
    assert [at[8:10] for at in found] == ["06", "13", "20", "27"]


def test_CR6_a_wrong_number_of_fields_is_told_with_what_was_found(lite: Cli) -> None:
    assert "has 4 fields, expected 5" in lite("cron", "simulate", "* * * *").stderr


def test_CR8_a_local_time_that_does_not_exist_still_runs_once(lite: Cli) -> None:
    args = ("--tz", "Europe/Paris", "--from", "2026-03-28", "--count", "3")
    assert runs(lite, "30 2 * * *", *args) == [
        "2026-03-28T01:30:00.000000Z",
        "2026-03-29T01:00:00.000000Z",
        "2026-03-30T00:30:00.000000Z",
    ]
    shown = lite.ok("cron", "simulate", "30 2 * * *", *args, "--table").stdout
    assert "moved from 02:30" in shown


def test_CR9_daily_local_times_stay_at_the_same_hour(lite: Cli) -> None:
    found = runs(lite, "0 9 * * *", "--tz", "Europe/Paris", "--from", "2026-10-24", "--count", "3")
    assert [at[11:16] for at in found] == ["07:00", "08:00", "08:00"]


def test_CR10_an_unknown_zone_is_refused(lite: Cli) -> None:
    result = lite("cron", "simulate", "0 9 * * *", "--tz", "Mars/Olympus")
    assert result.exit_code == ExitCode.USAGE
    assert "Mars/Olympus" in result.stderr


def test_CR11_malformed_text_names_the_field(lite: Cli) -> None:
    assert "hour" in lite("cron", "validate", "0 25 * * *").stderr


def test_CR13_a_schedule_without_a_further_run_says_never(lite: Cli) -> None:
    result = lite.ok("cron", "simulate", "0 0 1 1 *", "--from", "9999-12-31", "--json")
    assert json.loads(result.stdout)["items"] == []


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_CR14_the_hosts_zone_changes_nothing(lite: Cli, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = runs(lite, "0 9 * * *", "--from", "2026-05-01", "--count", "2")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert runs(lite, "0 9 * * *", "--from", "2026-05-01", "--count", "2") == before
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_a_valid_expression_is_told_in_words(lite: Cli) -> None:
    found = lite.json("cron", "validate", "0 9 * * MON-FRI", "--tz", "Europe/Paris")
    assert found["valid"]
    assert found["words"] == "weekdays at 09:00, Europe/Paris"
    assert found["next_run"]


@pytest.mark.empty_database
def test_declared_entries_need_no_database(lite: Cli) -> None:
    found = lite.json("cron", "list", "--declared")["items"]
    assert "jobkit_cleanup" in {entry["key"] for entry in found}
    assert (
        lite.json("cron", "next", "jobkit_cleanup", "--declared", "--count", "3")["items"][2]["key"]
        == "jobkit_cleanup"
    )
    assert lite("cron", "next", "nothing", "--declared").exit_code == ExitCode.NOT_FOUND
    assert not (lite.folder / "jobkit-test.db").exists()
