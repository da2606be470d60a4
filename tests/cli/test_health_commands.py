"""`jobkit stats`, `doctor`, `why`, and the services that are run by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.statistics import METRICS
from tests.cli import samplejobs
from tests.cli.support import Cli, Seeded

# -- stats


def test_the_figures_are_those_of_the_jobs(cli: Cli, seeded: Seeded) -> None:
    found = cli.json("stats", "--by", "worker")
    assert {state: count["value"] for state, count in found["states"].items()} == dict.fromkeys(seeded.ids, 1)
    assert found["nodes"] == 1
    assert found["failures"] == pytest.approx(1 / 3)
    assert found["groups"] == [{"by": "worker", "name": "send", "count": 7}]


@pytest.mark.parametrize("metric", METRICS)
def test_each_metric_may_be_a_condition(lite: Cli, metric: str) -> None:
    from tests.cli.support import seed

    app = lite.app()
    seed(app)
    app.close()
    limit = "30000d" if metric == "oldest" else "1000000"
    lite.ok("stats", "--fail-if", f"{metric}>={limit}")
    met = lite("stats", "--fail-if", f"{metric}<{limit}")
    assert met.exit_code == ExitCode.PROBLEMS
    assert f"{metric}<{limit}: " in met.stderr


def test_a_share_is_given_in_percent(cli: Cli, seeded: Seeded) -> None:
    assert cli("stats", "--fail-if", "failures>33%").exit_code == ExitCode.PROBLEMS
    cli.ok("stats", "--fail-if", "failures>34%")


def test_a_scraper_gets_its_own_format(cli: Cli, seeded: Seeded) -> None:
    printed = cli.ok("stats", "--format", "prometheus").stdout
    assert 'jobkit_jobs{state="discarded"} 1' in printed
    assert 'jobkit_queue_jobs{queue="mail",state="executing"} 1' in printed
    assert "# TYPE jobkit_nodes gauge\njobkit_nodes 1" in printed


# -- doctor


def test_what_is_broken_has_a_cause_and_a_remedy_and_code_10(cli: Cli) -> None:
    cli.ok("migrate")
    cli.ok("enqueue", "add", "a=1")
    result = cli("doctor", "--json")
    assert result.exit_code == ExitCode.PROBLEMS
    found = {row["check"]: row for row in json.loads(result.stdout)["items"]}
    assert found["nodes"]["level"] == "broken"
    assert found["nodes"]["fix"] == "jobkit run"
    assert found["schema"]["level"] == "ok"
    assert found["app"]["level"] == "ok"


def test_checks_are_chosen_by_name(cli: Cli) -> None:
    cli.ok("migrate")
    rows = cli.json("doctor", "--only", "database", "--only", "schema")["items"]
    assert {row["check"] for row in rows} == {"database", "schema"}
    assert cli("doctor", "--only", "nonsense").exit_code == ExitCode.USAGE


def test_an_app_that_cannot_be_imported_is_a_finding(lite: Cli) -> None:
    lite.ok("migrate")
    result = lite("doctor", "--json", env={"JOBKIT_IMPORTS": "no_such_module"})
    assert result.exit_code == ExitCode.PROBLEMS
    found = {row["check"]: row for row in json.loads(result.stdout)["items"]}
    assert found["app"]["level"] == "broken"
    assert "no_such_module" in found["app"]["text"]


def test_a_database_that_is_away_is_a_finding(lite: Cli) -> None:
    url = "postgresql://postgres@127.0.0.1:1/nowhere?connect_timeout=2"
    result = lite("doctor", "--json", env={"JOBKIT_DATABASE_URL": url})
    assert result.exit_code == ExitCode.PROBLEMS
    found = {row["check"]: row["level"] for row in json.loads(result.stdout)["items"]}
    assert found["database"] == "broken"


@pytest.mark.empty_database
@pytest.mark.empty_database
def test_offline_asks_no_database(lite: Cli) -> None:
    result = lite("doctor", "--offline", "--json")
    assert "database" not in {row["check"] for row in json.loads(result.stdout)["items"]}
    assert not (lite.folder / "jobkit-test.db").exists()


# -- why


def test_why_names_the_decisive_cause_and_the_command_that_helps(cli: Cli, seeded: Seeded) -> None:
    found = cli.json("why", str(seeded["scheduled"]))
    assert found["causes"][0]["kind"] == "not_due"
    cli.ok("queues", "pause", "mail")
    printed = cli.ok("why", str(seeded["available"]), "--table").stdout
    assert "paused" in printed
    assert "jobkit queues resume mail" in printed


# -- services by hand


def test_pruning_deletes_what_is_older_than_asked(cli: Cli, seeded: Seeded) -> None:
    assert cli.json("prune", "--dry-run", "--older-than", "0.1s")["changed"] == 3
    assert cli.json("prune")["changed"] == 0
    assert cli.json("prune", "--older-than", "0.1s", "--batch", "1")["changed"] >= 1
    left = {job["state"] for job in cli.json("jobs", "list", "--all")["items"]}
    assert "available" in left


def test_staging_makes_due_jobs_available(cli: Cli) -> None:
    cli.ok("migrate")
    app = cli.app()
    app.enqueue(samplejobs.add(a=1), schedule_in=timedelta(milliseconds=1))
    app.enqueue(samplejobs.add(a=2), schedule_in=timedelta(hours=1))
    app.close()
    cli.ok("stage", "--dry-run")
    assert cli.json("stage")["changed"] == 1


def test_rescuing_gives_back_the_jobs_of_nodes_that_are_gone(cli: Cli, seeded: Seeded) -> None:
    app = cli.app()
    with app.engine.begin() as conn:
        app.core.storage.remove_node(conn, "web-1:77:abcd")
    app.close()
    assert cli.json("rescue", "--dry-run")["changed"] == 1
    assert cli.json("rescue", "--now")["changed"] == 1
    assert cli.json("jobs", "show", str(seeded["executing"]))["items"][0]["state"] == "available"


def test_rescuing_watches_silent_nodes_for_as_long_as_other_nodes_would(cli: Cli, seeded: Seeded) -> None:
    assert cli.json("rescue", "--now")["changed"] == 0
    assert cli.json("rescue", "--dead-after", "3s")["changed"] == 1
    assert cli.json("nodes", "list", "--stale")["items"][0]["lost_at"] is not None


def test_a_replaced_service_is_the_one_that_runs(lite: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (lite.folder / "archive.py").write_text(
        "from jobkit import PluginInfo, Service, hookimpl\njobkit_plugin = PluginInfo(api=1, replaces='pruner')\n"
        "@hookimpl\ndef jobkit_services(app, node):\n    return [Service('archive', 60, lambda conn, now: 77)]\n"
    )
    monkeypatch.syspath_prepend(str(lite.folder))
    lite.ok("migrate")
    assert lite.json("prune", env={"JOBKIT_IMPORTS": "archive"})["changed"] == 77
    assert lite("prune", env={"JOBKIT_DISABLE": "pruner"}).exit_code == ExitCode.CONFIG
    assert lite("prune", "--prune-after", "never").exit_code == ExitCode.USAGE


def test_times_since_are_counted_from_now(cli: Cli, seeded: Seeded) -> None:
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert cli.json("jobs", "list", "--since", soon)["items"] == []
    assert cli.json("jobs", "list", "--since", "1h")["items"]
