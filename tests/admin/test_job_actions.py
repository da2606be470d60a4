"""Actions on jobs: from which states, to which, with which words, and what the audit keeps."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from jobkit.admin.actions import Actions
from jobkit.admin.errors import Invalid, NotFound
from jobkit.admin.reads import Reads
from jobkit.admin.results import ActionResult, InsertRequest, JobEdit
from jobkit.core import Core
from jobkit.hookspecs import Transition, hookimpl
from jobkit.jobs import INCOMPLETE, JobInfo, JobState, Unique
from jobkit.workers import Worker
from tests.admin.conftest import make_app
from tests.admin.support import ADMIN, NOW, add, ago, put, row

FROM = {
    "retry": {"discarded", "cancelled", "completed", "retryable"},
    "run_now": {"scheduled", "retryable"},
    "cancel": {"available", "scheduled", "retryable", "executing"},
    "delete": {state.value for state in JobState} - {"executing"},
}
TO = {"retry": "available", "run_now": "available", "cancel": "cancelled"}


def act(app: Core, action: str, *ids: int) -> ActionResult:
    result: ActionResult = getattr(Actions(app, ADMIN), action)(ids)
    return result


def stored(app: Core, job_id: int) -> dict[str, Any]:
    jobs = app.tables.jobs
    with app.engine.connect() as conn:
        found = conn.execute(select(jobs).where(jobs.c.id == job_id)).first()
    return {} if found is None else dict(found._mapping)


@pytest.mark.parametrize("action", list(FROM))
@pytest.mark.parametrize("state", [state.value for state in JobState])
def test_RT4_each_action_works_from_its_states_only_and_twice_is_once(
    app: Core, action: str, state: str
) -> None:
    (job_id,) = add(app, row(state=state))
    first = act(app, action, job_id).results[0]
    allowed = state in FROM[action]
    assert first.result == ("done" if allowed else "skipped")
    assert (first.before, str(job_id) in first.text) == (state, True)
    if not allowed:
        assert "nothing done" in first.text
        assert stored(app, job_id)["state"] == state
    elif action == "delete":
        assert stored(app, job_id) == {}
    else:
        assert stored(app, job_id)["state"] == TO[action] == first.after
    before = stored(app, job_id)
    assert act(app, action, job_id).results[0].result in ("skipped", "missing")
    assert stored(app, job_id) == before


def test_DA8_a_missing_or_changed_job_is_answered_in_words(lite: Core) -> None:
    done, running = add(lite, row(state="completed"), row(state="executing"))
    assert act(lite, "cancel", done).results[0].text == f"job {done} is already completed; nothing done"
    assert (
        act(lite, "run_now", done).results[0].text
        == f"job {done} is completed; retry it to run it again; nothing done"
    )
    assert (
        act(lite, "delete", running).results[0].text
        == f"job {running} is executing; cancel it first; nothing done"
    )
    assert act(lite, "retry", 99).results[0].text == "job 99 is not here (any more)"


def test_a_retry_keeps_attempts_and_errors_and_spares_one_where_all_are_used(app: Core) -> None:
    used, left = add(
        app,
        row(
            state="discarded", attempt=3, max_attempts=3, errors=[{"attempt": 3, "at": "x", "error": "E: no"}]
        ),
        row(state="retryable", attempt=1, max_attempts=3, scheduled_at=NOW + timedelta(hours=1)),
    )
    assert act(app, "retry", used, left).ok
    first, second = stored(app, used), stored(app, left)
    assert (first["attempt"], first["max_attempts"], first["discarded_at"]) == (3, 4, None)
    assert json.loads(first["errors"])[0]["error"] == "E: no"
    assert first["scheduled_at"] == NOW
    assert (second["attempt"], second["max_attempts"]) == (1, 3)


def unique(
    key: str, state: str = "discarded", *, held: bool = False, states: str = "incomplete"
) -> dict[str, Any]:
    meta = {"unique_states": states, "unique_key": key}
    return row(state=state, meta=meta, unique_key=key if held else None)


def test_UQ13_retrying_a_finished_unique_job_takes_its_key_back(app: Core) -> None:
    (job_id,) = add(app, unique("k"))
    assert act(app, "retry", job_id).ok
    assert stored(app, job_id)["unique_key"] == "k"
    assert act(app, "cancel", job_id).ok
    assert stored(app, job_id)["unique_key"] is None


def test_a_held_key_is_a_conflict_that_names_its_holder(app: Core) -> None:
    holder = add(app, unique("k", "available", held=True))[0]
    finished, free = add(app, unique("k"), unique("other"))
    result = act(app, "retry", finished, free)
    assert [r.result for r in result.results] == ["conflict", "done"]
    assert f"conflict: job {holder} holds the key" in result.results[0].text
    assert stored(app, finished)["state"] == "discarded"
    assert stored(app, free)["unique_key"] == "other"


def test_of_several_finished_jobs_with_one_key_the_lowest_id_takes_it(app: Core) -> None:
    first, second, third = add(app, unique("k"), unique("k"), unique("k"))
    result = act(app, "retry", third, first, second)
    assert [r.result for r in result.results] == ["conflict", "done", "conflict"]
    assert all(f"job {first} holds the key" in r.text for r in result.results if r.result == "conflict")


def test_a_key_that_outlives_its_job_is_no_conflict_with_itself(app: Core) -> None:
    (job_id,) = add(app, unique("k", "completed", held=True, states="all"))
    assert act(app, "retry", job_id).ok
    assert stored(app, job_id)["unique_key"] == "k"


@pytest.mark.parametrize("state", sorted(INCOMPLETE))
def test_UQ6_cancelling_releases_the_key_from_every_state(app: Core, state: str) -> None:
    (job_id,) = add(app, unique("k", state, held=True))
    assert act(app, "cancel", job_id).ok
    assert stored(app, job_id)["unique_key"] is None


def test_a_job_that_changes_between_the_look_and_the_write_is_left_alone(
    lite: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_id,) = add(lite, row(state="scheduled"))
    storage = lite.storage
    monkeypatch.setattr(storage, "transition", lambda conn, changes: [])
    result = act(lite, "run_now", job_id).results[0]
    assert (result.result, result.text) == ("conflict", f"job {job_id} changed meanwhile; nothing done")


def test_DB14_actions_take_ids_beyond_32_bits(app: Core) -> None:
    (job_id,) = add(app, row(id=2**62 + 1, state="discarded"))
    assert act(app, "retry", job_id).ok
    assert act(app, "cancel", 2**63 + 5, -1).count("missing") == 2


def test_an_action_takes_a_bounded_number_of_ids(lite: Core) -> None:
    for ids in (range(0), range(1, 502)):
        with pytest.raises(Invalid):
            Actions(lite, ADMIN).retry(list(ids))


def test_a_delete_leaves_in_the_audit_what_the_job_was(app: Core) -> None:
    (job_id,) = add(app, row(state="completed", worker="send", queue="mail", args={"password": "hunter2"}))
    Actions(app, ADMIN, request_id="r-1").delete([job_id], reason="asked by token=abc123def456")
    (entry,) = Reads(app, ADMIN).audit().entries
    assert (entry.action, entry.actor, entry.via, entry.result) == ("jobs.delete", "ana@host", "cli", "ok")
    assert (entry.ids, entry.count, entry.request_id) == ((str(job_id),), 1, "r-1")
    assert entry.before == {"jobs": [{"id": job_id, "worker": "send", "queue": "mail", "state": "completed"}]}
    assert "abc123" not in entry.reason
    assert "hunter2" not in repr(entry)


def test_the_change_and_its_audit_row_commit_together_or_not_at_all(
    app: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job_id,) = add(app, row(state="discarded"))

    def broken(*_: object) -> None:
        raise RuntimeError("the audit table is full")

    monkeypatch.setattr("jobkit.admin._desk.write_audit", broken)
    with pytest.raises(RuntimeError):
        act(app, "retry", job_id)
    assert stored(app, job_id)["state"] == "discarded"


# -- edits


def test_an_edit_changes_what_it_names_and_says_what_was_before(app: Core) -> None:
    (job_id,) = add(app, row(queue="a", priority=5, tags=["x", "y"]))
    edit = JobEdit(queue="b", priority=12, add_tags=("new",), remove_tags=("x",), max_attempts=7)
    result = Actions(app, ADMIN).edit([job_id], edit).results[0]
    assert result.result == "done"
    found = stored(app, job_id)
    assert (found["queue"], found["priority"], found["max_attempts"], found["state"]) == (
        "b",
        9,
        7,
        "available",
    )
    assert json.loads(found["tags"]) == ["y", "new"]
    (entry,) = Reads(app, ADMIN).audit().entries
    assert entry.before == {"queue": "a", "priority": 5, "max_attempts": 20, "tags": ["x", "y"]}
    assert Actions(app, ADMIN).edit([job_id], edit).results[0].result == "skipped"


def test_a_new_time_makes_a_job_scheduled_or_available(app: Core) -> None:
    waiting, planned, failed = add(
        app, row(), row(state="scheduled", scheduled_at=NOW + timedelta(days=1)), row(state="retryable")
    )
    actions = Actions(app, ADMIN)
    later = JobEdit(scheduled_at=NOW + timedelta(hours=1))
    assert actions.edit([waiting, planned, failed], later).ok
    assert [stored(app, n)["state"] for n in (waiting, planned, failed)] == [
        "scheduled",
        "scheduled",
        "retryable",
    ]
    assert actions.edit([waiting, planned, failed], JobEdit(scheduled_at=ago(hours=1))).ok
    assert {stored(app, n)["state"] for n in (waiting, planned, failed)} == {"available"}
    assert stored(app, waiting)["scheduled_at"] == NOW


def test_two_operators_cannot_overwrite_each_other(app: Core) -> None:
    (job_id,) = add(app, row(priority=1))
    actions = Actions(app, ADMIN)
    shown = JobEdit(priority=1, queue="default")
    assert actions.edit([job_id], JobEdit(priority=2), shown=shown).ok
    late = actions.edit([job_id], JobEdit(priority=3), shown=shown).results[0]
    assert late.result == "conflict"
    assert "priority" in late.text
    assert stored(app, job_id)["priority"] == 2


def test_an_edit_writes_the_stored_tags_back_not_the_shown_ones(app: Core) -> None:
    (job_id,) = add(app, row(tags=["token=abcdef123456"]))
    assert Actions(app, ADMIN).edit([job_id], JobEdit(add_tags=("x",))).ok
    assert json.loads(stored(app, job_id)["tags"]) == ["token=abcdef123456", "x"]
    assert "abcdef" not in repr(Reads(app, ADMIN).audit())


@pytest.mark.parametrize(
    "edit",
    [JobEdit(queue="no such/name!"), JobEdit(tags=("a\0b",)), JobEdit(scheduled_at=NOW + timedelta(days=40_000)),
     JobEdit(scheduled_at=NOW.replace(tzinfo=None)), JobEdit(priority=True)],
)  # fmt: skip
def test_an_edit_out_of_range_is_refused_whole(lite: Core, edit: JobEdit) -> None:
    (job_id,) = add(lite, row())
    with pytest.raises(Invalid):
        Actions(lite, ADMIN).edit([job_id], edit)


def test_max_attempts_must_leave_an_attempt(lite: Core) -> None:
    (job_id,) = add(lite, row(state="retryable", attempt=3))
    assert Actions(lite, ADMIN).edit([job_id], JobEdit(max_attempts=3)).results[0].result == "failed"


def test_a_preview_of_an_edit_writes_nothing(lite: Core) -> None:
    (job_id,) = add(lite, row(priority=1))
    actions = Actions(lite, ADMIN)
    assert actions.preview_edit(job_id, JobEdit(priority=2, queue="default")) == {"priority": (1, 2)}
    assert stored(lite, job_id)["priority"] == 1
    with pytest.raises(NotFound):
        actions.preview_edit(99, JobEdit(priority=2))


# -- inserts


class Greet(Worker, name="greet", queue="mail", unique=Unique.args(), secret=("code",)):
    who: str
    code: str = ""

    def perform(self, job: JobInfo) -> None: ...


@pytest.fixture
def knowing(sqlite_url: str) -> Any:
    made = make_app(sqlite_url, workers=[Greet])
    yield made
    made.close()


def test_a_known_worker_is_inserted_through_its_own_checks(knowing: Core) -> None:
    actions = Actions(knowing, ADMIN)
    made = actions.insert(InsertRequest("greet", '{"who": "ana", "code": "x"}', tags=("t",)))
    found = stored(knowing, made.id)
    assert (found["queue"], found["worker"], json.loads(found["tags"])) == ("mail", "greet", ["t"])
    again = actions.insert(InsertRequest("greet", '{"who": "ana", "code": "x"}'))
    assert (again.id, again.duplicate) == (made.id, True)
    preview = actions.preview_insert(InsertRequest("greet", '{"who": "ana", "code": "x"}'))
    assert (preview.duplicate_of, preview.args) == (made.id, {"who": "ana", "code": "[redacted]"})
    assert not actions.insert(InsertRequest("greet", '{"who": "ana", "code": "x"}', unique=False)).duplicate
    for args in ("{}", '{"who": 1}', "[]", "{", '{"who": "a\\u0000b"}'):
        with pytest.raises(Invalid):
            actions.insert(InsertRequest("greet", args))


def test_a_worker_of_another_process_gets_what_it_published(lite: Core) -> None:
    put(
        lite,
        "workers",
        name="far",
        last_seen_at=NOW,
        config=json.dumps({"queue": "q", "priority": 4, "secret": ["a"]}),
    )
    made = Actions(lite, ADMIN).insert(InsertRequest("far", '{"a": "hidden"}'))
    assert made.warnings
    assert (stored(lite, made.id)["queue"], stored(lite, made.id)["priority"]) == ("q", 4)
    assert Reads(lite, ADMIN).job(made.id).args == {"a": "[redacted]"}


def test_observers_of_transitions_see_what_operators_do(sqlite_url: str) -> None:
    seen: list[Transition] = []

    class Watch:
        @hookimpl
        def jobkit_transitions(self, transitions: list[Transition]) -> None:
            seen.extend(transitions)

    app = make_app(sqlite_url, plugins=[Watch()])
    (job_id,) = add(app, row(state="discarded"))
    act(app, "retry", job_id)
    assert [(t.id, t.old, t.new) for t in seen] == [(job_id, JobState.DISCARDED, JobState.AVAILABLE)]
    app.close()
