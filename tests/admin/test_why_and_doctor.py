"""Why a job waits, and what is wrong with an installation: each cause and each finding, with its remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from jobkit.admin.doctor import CHECKS, Diagnosis, diagnose
from jobkit.admin.errors import DatabaseUnreachable, NotFound, QueryTimeout
from jobkit.admin.guard import read_only
from jobkit.admin.reads import Reads
from jobkit.admin.why import Explanation
from jobkit.config import Config
from jobkit.core import Core
from jobkit.errors import NotMigrated
from jobkit.hookspecs import Check, CheckContext, Finding, hookimpl
from tests.admin.conftest import make_app
from tests.admin.support import ADMIN, NOW, FixedClock, add, ago, put, put_node, row


def why(app: Core, job_id: int) -> Explanation:
    return Reads(app, ADMIN).why(job_id)


def kinds(app: Core, **values: Any) -> list[str]:
    (job_id,) = add(app, row(**values))
    return [cause.kind for cause in why(app, job_id).causes]


def published(app: Core, name: str = "w", **values: Any) -> None:
    put(app, "workers", name=name, **{"last_seen_at": NOW, "config": "{}", **values})


@pytest.fixture
def running(app: Core) -> Core:
    """A node that works on `default` and knows the worker."""
    put_node(app, "n", {"default": 2})
    published(app)
    return app


def test_a_final_job_is_final(running: Core) -> None:
    (job_id,) = add(running, row(state="discarded"))
    found = why(running, job_id)
    assert found.causes[0].kind == "final"
    assert found.causes[0].fix == f"jobkit jobs retry {job_id}"
    with pytest.raises(NotFound):
        why(running, 99)


def test_nothing_in_the_way_means_soon(running: Core) -> None:
    assert kinds(running) == ["soon"]


def test_an_executing_job_runs_hangs_or_was_left(running: Core) -> None:
    assert kinds(running, state="executing", attempted_by="n") == ["executing"]
    assert kinds(running, state="executing", attempted_by="n", attempted_at=ago(hours=1)) == ["stuck"]
    assert kinds(running, state="executing", attempted_by="gone") == ["orphaned"]


def test_a_job_that_is_not_due_waits_for_its_time(running: Core) -> None:
    assert kinds(running, state="scheduled", scheduled_at=NOW + timedelta(hours=1)) == ["not_due"]
    (job_id,) = add(running, row(state="retryable", attempt=2, scheduled_at=NOW + timedelta(minutes=5)))
    assert "attempt 3 is due" in why(running, job_id).summary
    assert kinds(running, state="scheduled", scheduled_at=ago(minutes=5)) == ["not_staged"]


def test_a_paused_queue_is_named_with_who_and_why(running: Core) -> None:
    put(running, "queues", name="default", paused=True, reason="deploy", paused_by="bo", updated_at=NOW)
    (job_id,) = add(running, row())
    cause = why(running, job_id).causes[0]
    assert (cause.kind, "bo" in cause.text, "deploy" in cause.text) == ("paused", True, True)
    assert cause.fix == "jobkit queues resume default"


def test_a_queue_without_nodes(running: Core) -> None:
    (job_id,) = add(running, row(queue="mail"))
    cause = why(running, job_id).causes[0]
    assert (cause.kind, cause.fix) == ("no_nodes", "jobkit run --queues mail:10")


def test_nodes_that_rest_and_limits_of_zero(app: Core) -> None:
    put_node(app, "n", {"default": 2, "zero": 3}, wanted=json.dumps({"drain": True}))
    published(app)
    assert "nodes_paused" in kinds(app)
    put_node(app, "m", {"zero": 3})
    put(app, "queues", name="zero", limit_override=0, updated_at=NOW)
    assert kinds(app, queue="zero") == ["limit_zero"]


def test_a_worker_that_no_live_node_knows(running: Core) -> None:
    published(running, "old", last_seen_at=ago(hours=1))
    assert kinds(running, worker="old") == ["worker_unknown"]
    (job_id,) = add(running, row(worker="never", queue="default"))
    cause = next(cause for cause in why(running, job_id).causes if cause.kind == "worker_unknown")
    assert "no node has ever published it" in cause.text


def test_a_full_queue_says_by_what(running: Core) -> None:
    add(running, *(row(state="executing", attempted_by="n", worker="hog") for _ in range(2)))
    add(running, row(priority=0))
    (job_id,) = add(running, row(priority=5))
    causes = {cause.kind: cause for cause in why(running, job_id).causes}
    assert list(causes) == ["queue_full", "behind"]
    assert "2 of 2" in causes["queue_full"].text
    assert "hog (2)" in causes["queue_full"].text
    assert causes["behind"].text.startswith("1 job of its queue")


def test_a_clock_that_runs_ahead_is_a_remark(running: Core) -> None:
    put_node(running, "ahead", {"default": 1}, heartbeat_at=NOW + timedelta(minutes=1))
    (job_id,) = add(running, row())
    skew = next(cause for cause in why(running, job_id).causes if cause.kind == "clock_skew")
    assert skew.remark


# -- doctor


def found(app: Core, check: str) -> Diagnosis:
    (diagnosis,) = diagnose(app, only=[check])
    return diagnosis


@pytest.fixture
def healthy(database_url: str) -> Iterator[Core]:
    app = Core(Config(database_url=database_url), clock=FixedClock())
    app.migrate()
    put_node(app, "n")
    published(app)
    yield app
    app.close()


def test_a_healthy_installation_has_no_findings(healthy: Core) -> None:
    ignored = {"clocks", "settings"}  # the test's clock stands still, and its server is fast rather than safe
    diagnoses = diagnose(healthy, skip=ignored)
    assert [d.id for d in diagnoses] == [check.id for check in CHECKS if check.id not in ignored]
    assert [(d.id, f.text) for d in diagnoses for f in d.findings if f.level != "ok"] == []


def test_every_finding_has_a_cause_and_a_remedy(healthy: Core) -> None:
    put_node(healthy, "silent", heartbeat_at=ago(hours=1))
    put(healthy, "queues", name="default", paused=True, reason="deploy", paused_by="bo", updated_at=NOW)
    for key, cron in (("bad", "nope"), ("late", "0 1 * * *")):
        entry = {"key": key, "cron": cron, "timezone": "UTC", "worker": "w"}
        put(healthy, "entries", **entry, since=ago(days=9), paused=False, updated_at=NOW)
    add(healthy, row(queue="mail"), row(), row(worker="nobody"), row(state="executing", attempted_by="gone"))
    add(healthy, row(state="executing", attempted_by="n", attempted_at=ago(hours=3)))
    expected = {
        "nodes": ("attention", "silent"),
        "queues": ("broken", "queue mail: 1 job waits"),
        "workers": ("broken", "worker nobody"),
        "paused": ("attention", "queue default is paused by bo"),
        "stuck": ("attention", "orphaned"),
        "cron": ("broken", "nope"),
    }
    for check, (level, text) in expected.items():
        diagnosis = found(healthy, check)
        assert diagnosis.level == level, check
        wrong = [finding for finding in diagnosis.findings if finding.level != "ok"]
        assert any(text in finding.text for finding in wrong), diagnosis
        assert all(finding.fix for finding in wrong), diagnosis
    assert len(found(healthy, "stuck").findings) == 2
    assert any("did not come" in finding.text for finding in found(healthy, "cron").findings)


@pytest.mark.empty_database
def test_a_database_without_tables_names_the_command(database_url: str) -> None:
    app = Core(Config(database_url=database_url), clock=FixedClock())
    app.engine.connect().close()
    diagnoses = {d.id: d for d in diagnose(app)}
    assert diagnoses["database"].level == "ok"
    assert diagnoses["schema"].level == "broken"
    assert all(
        "jobkit migrate" in f.fix for d in diagnoses.values() for f in d.findings if f.level == "broken"
    )
    with pytest.raises(NotMigrated):
        Reads(app, ADMIN).jobs()
    app.close()


def test_an_unreachable_database_is_one_finding_and_shows_no_password() -> None:
    app = Core(Config(database_url="postgresql://bo:hunter2@127.0.0.1:1/none"))
    diagnoses = diagnose(app)
    assert [d.id for d in diagnoses] == ["database"]
    assert diagnoses[0].level == "broken"
    assert "hunter2" not in repr(diagnoses)
    assert diagnose(app, offline=True) == ()
    with pytest.raises(DatabaseUnreachable) as caught:
        Reads(app, ADMIN).jobs()
    assert "hunter2" not in str(caught.value)
    app.close()


def test_checks_of_plugins_run_too_and_one_that_raises_is_a_finding(sqlite_url: str) -> None:
    def broken(ctx: CheckContext) -> Finding:
        raise RuntimeError("token=abcdefgh12345")

    class Checks:
        @hookimpl
        def jobkit_health_checks(self) -> list[object]:
            fine = Check("disk", "Disk", lambda ctx: Finding("ok", "plenty"), needs_database=False)
            return [fine, Check("broken", "Broken", broken), Check("schema", "Taken", broken), "no check"]

    app = make_app(sqlite_url, plugins=[Checks()])
    diagnoses = {d.id: d for d in diagnose(app, only=["disk", "broken", "schema"])}
    assert diagnoses["disk"].level == "ok"
    assert diagnoses["broken"].level == "broken"
    assert "abcdefgh" not in repr(diagnoses["broken"])
    assert diagnoses["schema"].title != "Taken"
    app.close()


# -- the guard


def test_a_read_that_takes_too_long_is_given_up(app: Core) -> None:
    slow = {
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "postgresql": "SELECT pg_sleep(30)",
    }
    with (
        pytest.raises(QueryTimeout, match=r"0\.2 s"),
        read_only(app, timedelta(seconds=0.2)) as conn,
    ):
        conn.exec_driver_sql(slow[app.dialect])
    with read_only(app, timedelta(seconds=5)) as conn:
        assert conn.exec_driver_sql("SELECT 1").scalar() == 1


def test_a_read_cannot_write(app: Core) -> None:
    with pytest.raises(DatabaseUnreachable), read_only(app, timedelta(seconds=1)) as conn:
        conn.execute(app.tables.queues.insert().values(name="x", updated_at=NOW))


def test_a_read_does_not_wait_for_a_writer(lite: Core) -> None:
    add(lite, row())
    with lite.engine.begin() as writing:
        writing.execute(lite.tables.queues.insert().values(name="x", updated_at=NOW))
        assert Reads(lite, ADMIN, timeout=timedelta(seconds=1)).count().count.value == 1
