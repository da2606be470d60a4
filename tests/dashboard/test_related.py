"""What belongs together with a job, as its page shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from jobkit import Jobkit
from tests.admin.support import add, row
from tests.dashboard.support import Client


def related_part(client: Client, job_id: int) -> str:
    page = client.get(f"/jobs/{job_id}").text
    return page.partition('id="related-title"')[2].partition("</section>")[0]


def test_the_job_that_started_it_is_linked(admin: Client, app: Jobkit, ids: list[int]) -> None:
    child, odd = add(
        app.core,
        row(worker="child", meta={"parent_id": ids[0]}),
        row(worker="odd", meta={"parent_id": "<b>"}),
    )
    part = related_part(admin, child)
    assert "Started by" in part
    assert f'href="/jobs/{ids[0]}"' in part
    assert "Started by" not in related_part(admin, odd)
    assert f"q=meta.parent_id%3A{ids[0]}%20id%3A%3E{ids[0]}" in related_part(admin, ids[0])


def test_the_runs_of_a_schedule_around_it_are_linked(admin: Client, app: Jobkit) -> None:
    now = datetime.now(UTC)
    runs = add(app.core, *(row(worker="resize_image", meta={"cron": "nightly"}) for _ in range(7)))
    table = app.tables.executions
    with app.engine.begin() as conn:
        conn.execute(
            sa.insert(table),
            [
                {"key": "nightly", "run_at": now - timedelta(days=9 - at), "job_id": job, "inserted_at": now}
                for at, job in enumerate(runs)
            ],
        )
    part = related_part(admin, runs[3])
    for near in (runs[1], runs[2], runs[4], runs[5]):
        assert f'href="/jobs/{near}"' in part
    for far in (runs[0], runs[3], runs[6]):
        assert f'href="/jobs/{far}"' not in part


def test_the_job_that_holds_the_unique_key_is_linked(admin: Client, app: Jobkit) -> None:
    key = "ab" * 32
    done, holder = add(
        app.core,
        row(state="completed", completed_at=datetime.now(UTC), attempt=1, meta={"unique_key": key}),
        row(unique_key=key, meta={"unique_key": key}),
    )
    part = related_part(admin, done)
    assert "Holds its unique key" in part
    assert f'href="/jobs/{holder}"' in part
    assert "Holds its unique key" not in related_part(admin, holder)


def test_an_entry_that_is_gone_costs_the_page_nothing(admin: Client, app: Jobkit) -> None:
    (lost,) = add(app.core, row(meta={"cron": "gone"}))
    assert "find them" in related_part(admin, lost)
