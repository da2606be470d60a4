"""Which index serves which statement: the cost of a job must not grow with the rows that are there."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, insert

from jobkit.jobs import JobState
from jobkit.storage.base import Change
from jobkit.storage.choice import make_storage
from jobkit.storage.engine import make_engine, node_connection
from jobkit.storage.migrations import up
from jobkit.storage.schema import tables_for
from jobkit.storage.statement import Sql
from tests.storage.support import NOW, SECOND, Settings


@pytest.fixture
def plans(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs each method on a table that is mostly history, and keeps the plan of every statement."""
    engine = make_engine(Settings(database_url))
    tables = tables_for()
    up(engine, tables)
    _fill(engine)
    found: dict[str, str] = {}
    storage = make_storage(engine.dialect.name, tables)
    with node_connection(engine, autocommit=True) as conn:
        current = [""]

        def explained(method: Any) -> Any:
            def run(self: Sql, conn_: Any, params: Any) -> Any:
                found[current[0]] = found.get(current[0], "") + _explain(self, conn_, params)
                return method(self, conn_, params)

            return run

        monkeypatch.setattr(Sql, "rows", explained(Sql.rows))
        monkeypatch.setattr(Sql, "count", explained(Sql.count))
        yield _Run(storage, conn, current, found)
    engine.dispose()


class _Run:
    def __init__(self, storage: Any, conn: Any, current: list[str], found: dict[str, str]) -> None:
        self.storage, self.conn, self._current, self._found = storage, conn, current, found

    def of(self, name: str, **arguments: Any) -> tuple[str, Any]:
        self._current[0] = name
        result = getattr(self.storage, name)(self.conn, *arguments.pop("_", ()), **arguments)
        return self._found[name], result


def _fill(engine: Engine) -> None:
    jobs = tables_for().jobs
    rows = [
        {"state": state, "queue": "default", "worker": "w", "args": "{}", "inserted_at": NOW, "scheduled_at": NOW,
         "completed_at": NOW if state == "completed" else None, "attempted_by": "old", "attempted_at": NOW}
        for state in ["completed"] * 3_000 + ["available"] * 200 + ["scheduled"] * 200 + ["retryable"] * 50
    ]  # fmt: skip
    with engine.begin() as conn:
        conn.execute(insert(jobs), rows)
    with engine.begin() as conn:
        conn.exec_driver_sql("ANALYZE")


def _explain(statement: Sql, conn: Any, params: Any) -> str:
    text, order = statement._form(conn.dialect)
    how = "EXPLAIN QUERY PLAN " if conn.dialect.name == "sqlite" else "EXPLAIN "
    values = params if order is None else tuple(params[name] for name in order)
    return "\n".join(str(row) for row in conn.exec_driver_sql(how + text, values).fetchall()) + "\n"


def test_a_claim_walks_the_claim_index(plans: _Run) -> None:
    plans.storage.register_node(plans.conn, "n", now=NOW, queues={}, info={})
    plan, jobs = plans.of("claim", _=("default", 5), node="n", at=NOW)
    assert len(jobs) == 5
    assert "jobs_claim_idx" in plan
    assert "SORT" not in plan.upper().replace("SORTED", "")
    assert "Seq Scan on jobkit_jobs" not in plan
    assert "SCAN jobkit_jobs" not in plan


def test_a_record_goes_by_the_primary_key(plans: _Run) -> None:
    plans.storage.register_node(plans.conn, "n", now=NOW, queues={}, info={})
    jobs = plans.storage.claim(plans.conn, "default", 50, node="n", at=NOW)
    plan, landed = plans.of("transition", _=([Change(JobState.COMPLETED, NOW, job.lease) for job in jobs],))
    assert len(landed) == 50
    assert "jobkit_jobs_pkey" in plan or "SEARCH j USING INTEGER PRIMARY KEY" in plan
    assert "executing_idx" not in plan


def test_staging_walks_the_staging_index(plans: _Run) -> None:
    plan, staged = plans.of("stage", now=NOW, limit=20)
    assert staged.count == 20
    assert "jobs_staging_idx" in plan
    assert "Seq Scan on jobkit_jobs" not in plan


def test_pruning_walks_the_index_of_the_state(plans: _Run) -> None:
    plan, _ = plans.of("prune", before=NOW - SECOND, limit=20)
    for state in ("completed", "cancelled", "discarded"):
        assert f"jobs_{state}_idx" in plan
    assert "Seq Scan on jobkit_jobs" not in plan


def test_asking_for_due_queues_walks_the_claim_index(plans: _Run) -> None:
    plan, due = plans.of("due_queues", _=(["default", "other"],), now=NOW)
    assert due == ["default"]
    assert "jobs_claim_idx" in plan
    assert "Seq Scan on jobkit_jobs" not in plan
