"""Bulk operations: the frozen set, chunk by chunk, with an exact report, whatever happens in between."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from jobkit.admin.actions import Actions
from jobkit.admin.errors import Conflict, Invalid, NotFound, QueryRefused
from jobkit.admin.plugin import Finisher
from jobkit.admin.reads import Reads
from jobkit.admin.results import Ids, JobEdit, Matching
from jobkit.admin.views import OperationView
from jobkit.core import Core
from jobkit.jobs import JobState
from tests.admin.support import ADMIN, NOW, FixedClock, add, put, row


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobkit.admin._bulk_runner.CHUNK", {"sqlite": 10, "postgresql": 10})
    monkeypatch.setattr("jobkit.admin._bulk_runner.PAUSE", {"sqlite": 0.0, "postgresql": 0.0})


def states(app: Core) -> dict[str, int]:
    jobs = app.tables.jobs
    with app.engine.connect() as conn:
        rows = conn.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state)).all()
    return {row[0]: row[1] for row in rows}


def test_a_bulk_retry_reports_exactly_what_it_did(app: Core) -> None:
    add(app, *(row(state="discarded") for _ in range(25)), *(row(state="executing") for _ in range(3)))
    actions = Actions(app, ADMIN)
    started = actions.start("retry", Matching("is:final,incomplete"), reason="after the outage")
    assert (started.state, started.done) == ("pending", 0)
    seen: list[int] = []
    done = actions.run_operation(started.id, progress=lambda view: seen.append(view.handled))
    assert (done.state, done.done, done.skipped, done.failed) == ("done", 25, 3, 0)
    assert done.total is not None
    assert done.total.text == "28"
    assert seen == sorted(seen)
    assert len(seen) >= 3
    assert done.skips == {"is executing; nothing done": 3}
    assert len(done.results) == 3
    assert states(app) == {"available": 25, "executing": 3}
    (entry,) = Reads(app, ADMIN).audit().entries
    assert (entry.action, entry.operation_id, entry.reason) == ("jobs.retry", started.id, "after the outage")
    assert Reads(app, ADMIN).operation(started.id) == done


def test_jobs_that_are_inserted_after_the_preview_are_not_touched(app: Core) -> None:
    add(app, *(row(state="discarded") for _ in range(5)))
    actions = Actions(app, ADMIN)
    preview = actions.preview("retry", Matching("state:discarded"))
    (late,) = add(app, row(state="discarded"))
    started = actions.start("retry", Matching("state:discarded", preview.max_id))
    (later,) = add(app, row(state="discarded"))
    done = actions.run_operation(started.id)
    assert done.done == 5
    left = Reads(app, ADMIN).jobs("state:discarded").jobs
    assert {job.id for job in left} == {late, later}


def test_a_job_that_stops_matching_meanwhile_is_left_alone(app: Core) -> None:
    ids = add(app, *(row(queue="a") for _ in range(15)))
    actions = Actions(app, ADMIN)
    started = actions.start("cancel", Matching("queue:a"))
    moved: list[bool] = []

    def move(_: object) -> None:
        if not moved:
            moved.append(True)
            jobs = app.tables.jobs
            with app.engine.begin() as conn:
                conn.execute(update(jobs).where(jobs.c.id == ids[-1]).values(queue="b"))

    done = actions.run_operation(started.id, progress=move)
    assert done.done == 14
    assert Reads(app, ADMIN).job(ids[-1]).job.state is JobState.AVAILABLE


def test_a_crash_loses_nothing_and_counts_nothing_twice(app: Core) -> None:
    add(app, *(row(state="discarded") for _ in range(35)))
    actions = Actions(app, ADMIN)
    started = actions.start("retry", Matching("state:discarded,available"))

    class Crash(Exception):
        pass

    def crash(view: object) -> None:
        raise Crash

    with pytest.raises(Crash):
        actions.run_operation(started.id, progress=crash)
    halfway = Reads(app, ADMIN).operation(started.id)
    assert (halfway.state, halfway.done) == ("running", 10)
    assert actions.run_operation(started.id).done == 10, "its lease is still held"
    assert actions.run_open_operations() == 0
    assert isinstance(app.clock, FixedClock)
    app.clock.advance(timedelta(minutes=2))
    assert actions.run_open_operations() == 1
    done = Reads(app, ADMIN).operation(started.id)
    assert (done.state, done.done, done.skipped) == ("done", 35, 0)


def test_an_operation_whose_lease_was_taken_over_stops_without_writing(app: Core) -> None:
    add(app, *(row(state="discarded") for _ in range(25)))
    actions = Actions(app, ADMIN)
    started = actions.start("retry", Matching("state:discarded"))

    def steal(_: object) -> None:
        table = app.tables.operations
        with app.engine.begin() as conn:
            conn.execute(update(table).values(lease_by="another"))

    view = actions.run_operation(started.id, progress=steal)
    assert (view.state, view.done) == ("running", 10)
    assert states(app) == {"available": 10, "discarded": 15}


def test_a_cancel_stops_after_the_chunk_that_is_under_way(app: Core) -> None:
    add(app, *(row(state="discarded") for _ in range(35)))
    actions = Actions(app, ADMIN)
    started = actions.start("retry", Matching("state:discarded"))

    def cancel(view: OperationView) -> None:
        actions.cancel_operation(view.id)

    done = actions.run_operation(started.id, progress=cancel)
    assert (done.state, done.done) == ("cancelled", 10)
    assert actions.run_operation(started.id).done == 10
    idle = actions.start("retry", Matching("state:discarded"))
    assert actions.cancel_operation(idle.id).state == "cancelled"
    with pytest.raises(NotFound):
        actions.cancel_operation(99)


def test_the_same_form_sent_twice_is_one_operation(app: Core) -> None:
    add(app, row(state="discarded"))
    actions = Actions(app, ADMIN)
    first = actions.start("retry", Matching("state:discarded"), key="form-1")
    assert actions.start("retry", Matching("state:discarded"), key="form-1").id == first.id
    assert len(Reads(app, ADMIN).operations()) == 1
    with pytest.raises(Conflict):
        actions.start("cancel", Matching("state:discarded"), key="form-1")


def test_a_spread_retry_starts_the_jobs_evenly(app: Core) -> None:
    add(app, *(row(state="discarded") for _ in range(20)))
    actions = Actions(app, ADMIN)
    started = actions.start("retry", Matching("state:discarded"), spread=timedelta(minutes=20))
    assert actions.run_operation(started.id).done == 20
    jobs = Reads(app, ADMIN).jobs("state:available,scheduled", limit=50, sort="id", descending=False).jobs
    assert [job.scheduled_at - NOW for job in jobs] == [timedelta(minutes=n) for n in range(20)]
    assert [job.state for job in jobs[:2]] == [JobState.AVAILABLE, JobState.SCHEDULED]


def test_ids_are_taken_as_they_are(app: Core) -> None:
    ids = add(app, *(row(state="discarded") for _ in range(15)))
    actions = Actions(app, ADMIN)
    started = actions.start("delete", Ids((*ids[:12], 999)))
    assert started.total is not None
    assert started.total.value == 13
    done = actions.run_operation(started.id)
    assert (done.state, done.done, done.skipped) == ("done", 12, 1)
    assert states(app) == {"discarded": 3}


def test_at_most_so_many_jobs_where_that_is_asked_for(app: Core) -> None:
    add(app, *(row(state="discarded") for _ in range(30)))
    actions = Actions(app, ADMIN)
    started = actions.start("retry", Matching("state:discarded"), max_jobs=13)
    done = actions.run_operation(started.id)
    assert (done.state, done.done) == ("done", 13)


def test_a_bulk_edit_and_a_bulk_retry_of_unique_jobs(app: Core) -> None:
    meta = {"unique_states": "incomplete", "unique_key": "k"}
    add(app, *(row(state="discarded", meta=meta, args={"n": n}) for n in range(22)))
    actions = Actions(app, ADMIN)
    retried = actions.run_operation(actions.start("retry", Matching("state:discarded")).id)
    assert (retried.done, retried.skipped) == (1, 21)
    assert retried.skips == {"conflict": 21}
    assert "job 1 holds the key" in retried.results[0].text
    edited = actions.run_operation(
        actions.start("edit", Matching("state:available"), edit=JobEdit(priority=3, add_tags=("x",))).id
    )
    assert edited.done == 1
    assert Reads(app, ADMIN).job(1).job.tags == ("x",)


def test_content_terms_choose_by_what_is_shown(app: Core) -> None:
    add(app, *(row(state="discarded", args={"password": "hunter2", "n": n}) for n in range(12)))
    actions = Actions(app, ADMIN)
    assert actions.run_operation(actions.start("delete", Matching("hunter2")).id).done == 0
    assert actions.preview("delete", Matching("args.n:3")).total.value == 1
    assert actions.run_operation(actions.start("delete", Matching("args.n:3")).id).done == 1


def test_what_is_wrong_is_refused_before_anything_is_written(app: Core) -> None:
    actions = Actions(app, ADMIN)
    for query in ("state:nope", "args.password:x", '"open'):
        with pytest.raises(QueryRefused):
            actions.start("retry", Matching(query))
        with pytest.raises(QueryRefused):
            actions.preview("retry", Matching(query))
    with pytest.raises(Invalid):
        actions.start("cancel", Matching(""), spread=timedelta(minutes=1))
    with pytest.raises(Invalid):
        actions.start("retry", Matching(""), spread=timedelta(days=8))
    with pytest.raises(Invalid):
        actions.start("edit", Matching(""))
    with pytest.raises(Invalid):
        actions.start("retry", Ids(()))
    assert Reads(app, ADMIN).operations() == ()


def test_a_preview_says_what_will_be_done_what_skipped_and_why(app: Core) -> None:
    add(
        app,
        *(row(state="discarded", queue="a", worker="send") for _ in range(4)),
        *(row(state="completed", queue="b") for _ in range(2)),
        row(state="executing"),
    )
    actions = Actions(app, ADMIN)
    preview = actions.preview("cancel", Matching(""))
    assert (preview.total.value, preview.will_change.value, preview.type_count) == (7, 1, True)
    assert {skip.text for skip in preview.skips} == {"4 are already discarded", "2 are already completed"}
    retry = actions.preview("retry", Matching("is:final"))
    assert (retry.by_queue, retry.by_worker["send"], len(retry.samples)) == ({"a": 4, "b": 2}, 4, 5)
    assert not retry.type_count
    assert retry.words.startswith("retry 6 jobs: each becomes available now")
    chosen = actions.preview("delete", Ids((1, 2, 99)))
    assert (chosen.total.value, chosen.skips[0].count, chosen.type_count) == (2, 1, True)
    assert states(app) == {"discarded": 4, "completed": 2, "executing": 1}


def test_a_bulk_retry_works_while_others_write(app: Core) -> None:
    add(app, *(row(state="discarded") for _ in range(40)))
    actions = Actions(app, ADMIN)
    put(app, "nodes", node="n", queues="{}", started_at=NOW, heartbeat_at=NOW)
    started = actions.start("retry", Matching("state:discarded"))
    claimed: list[int] = []

    def claim(_: object) -> None:
        at = NOW + timedelta(microseconds=len(claimed) + 1)
        with app.engine.connect() as conn:
            claimed.extend(job.id for job in app.storage.claim(conn, "default", 5, node="n", at=at))

    done = actions.run_operation(started.id, progress=claim)
    assert (done.done, done.skipped) == (40, 0)
    assert len(claimed) == len(set(claimed)) >= 20


def test_a_node_finishes_what_a_dead_process_left(app: Core) -> None:
    add(app, *(row(state="discarded") for _ in range(15)))
    started = Actions(app, ADMIN).start("retry", Matching("state:discarded"))
    finisher = Finisher(app)
    with app.engine.connect() as conn:
        assert finisher.tick(conn, app.clock.now()) == 0, "its starter has had no time to begin"
        assert isinstance(app.clock, FixedClock)
        app.clock.advance(timedelta(minutes=2))
        assert finisher.tick(conn, app.clock.now()) == 1
    assert finisher.wait(30)
    assert Reads(app, ADMIN).operation(started.id).done == 15
