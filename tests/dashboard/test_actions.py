"""What operators do: single actions, bulk actions, queues, nodes, cron, jobs made and changed."""

from __future__ import annotations

import html
import re
import time

import pytest
import sqlalchemy as sa

from jobkit import Jobkit
from jobkit_dashboard import Dashboard
from tests.admin.support import add, row
from tests.dashboard.support import MARKUP, Client, by_header

AVAILABLE, SCHEDULED, EXECUTING, RETRYABLE, COMPLETED, DISCARDED, CANCELLED = range(7)


def state_of(app: Jobkit, job_id: int) -> str | None:
    jobs = app.tables.jobs
    with app.engine.connect() as conn:
        return conn.scalar(sa.select(jobs.c.state).where(jobs.c.id == job_id))


def fields_of(page: str, action: str) -> list[tuple[str, str]]:
    """The hidden fields of the form that goes to an address."""
    form = next(f for f in re.findall(r"<form.*?</form>", page, re.S) if f'action="{action}"' in f)
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)
    return [(name, html.unescape(value)) for name, value in found if name != "_token"]


def audits(app: Jobkit) -> list[tuple[str, str, str]]:
    audit = app.tables.audit.c
    with app.engine.connect() as conn:
        return [
            tuple(r)
            for r in conn.execute(sa.select(audit.actor, audit.action, audit.result).order_by(audit.id))
        ]  # type: ignore[misc]


def test_retry_makes_a_job_available_and_shows_the_result(admin: Client, app: Jobkit, ids: list[int]) -> None:
    page = admin.follow(admin.post(f"/jobs/{ids[DISCARDED]}/retry"))
    assert state_of(app, ids[DISCARDED]) == "available"
    assert 'role="status"' in page.text
    assert ("admin@test", "jobs.retry", "ok") in audits(app)


def test_run_now_moves_a_scheduled_job_up(admin: Client, app: Jobkit, ids: list[int]) -> None:
    admin.follow(admin.post(f"/jobs/{ids[SCHEDULED]}/run_now"))
    assert state_of(app, ids[SCHEDULED]) == "available"


def test_DA8_an_action_that_comes_too_late_says_so(admin: Client, app: Jobkit, ids: list[int]) -> None:
    page = admin.follow(admin.post(f"/jobs/{ids[COMPLETED]}/run_now"))
    assert page.status_code == 200
    assert "completed" in page.text
    assert state_of(app, ids[COMPLETED]) == "completed"


def test_DA8_an_action_on_a_missing_job_says_so(admin: Client) -> None:
    answer = admin.post("/jobs/424242/retry")
    page = admin.follow(answer) if answer.status_code == 303 else answer
    assert page.status_code in (200, 404)
    assert "424242" in page.text


def test_cancel_and_delete_ask_first(admin: Client, app: Jobkit, ids: list[int]) -> None:
    assert admin.post(f"/jobs/{ids[AVAILABLE]}/delete").status_code == 404
    page = admin.get(f"/jobs/confirm?only=delete:{ids[AVAILABLE]}")
    assert state_of(app, ids[AVAILABLE]) == "available"
    done = admin.follow(admin.post("/jobs/bulk", fields_of(page.text, "/jobs/bulk")))
    assert done.status_code == 200
    assert state_of(app, ids[AVAILABLE]) is None


def test_ticked_rows_are_done_after_a_confirmation(admin: Client, app: Jobkit, ids: list[int]) -> None:
    chosen = [ids[DISCARDED], ids[CANCELLED], ids[EXECUTING]]
    page = admin.post("/jobs/confirm", [("action", "retry"), *(("id", str(i)) for i in chosen)])
    assert page.status_code == 200
    assert "executing" in page.text
    admin.follow(admin.post("/jobs/bulk", fields_of(page.text, "/jobs/bulk")))
    assert [state_of(app, i) for i in chosen] == ["available", "available", "executing"]


def test_a_bulk_action_touches_nothing_that_came_later(admin: Client, app: Jobkit, ids: list[int]) -> None:
    listed = admin.get("/jobs?q=queue:mail&state=available")
    bound = re.search(r'name="max_id" value="(\d+)"', listed.text)
    assert bound
    page = admin.post(
        "/jobs/confirm",
        {"action": "cancel", "which": "matching", "q": "queue:mail state:available", "max_id": bound[1]},
    )
    (late,) = add(app.core, row(queue="mail"))
    admin.follow(admin.post("/jobs/bulk", fields_of(page.text, "/jobs/bulk")))
    deadline = time.monotonic() + 10
    while state_of(app, ids[AVAILABLE]) == "available" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert state_of(app, ids[AVAILABLE]) == "cancelled"
    assert state_of(app, late) == "available"


def test_sending_a_confirmation_twice_starts_one_operation(
    admin: Client, app: Jobkit, ids: list[int]
) -> None:
    page = admin.post(
        "/jobs/confirm", [("action", "retry"), ("id", str(ids[DISCARDED])), ("id", str(ids[CANCELLED]))]
    )
    fields = fields_of(page.text, "/jobs/bulk")
    first, second = admin.post("/jobs/bulk", fields), admin.post("/jobs/bulk", fields)
    assert first.headers["location"].partition("?")[0] == second.headers["location"].partition("?")[0]
    with app.engine.connect() as conn:
        assert conn.scalar(sa.select(sa.func.count()).select_from(app.tables.operations)) == 1


def test_deleting_many_asks_for_the_count(admin: Client, app: Jobkit) -> None:
    add(app.core, *[row(state="completed", queue="old") for _ in range(3)])
    page = admin.post("/jobs/confirm", {"action": "delete", "which": "matching", "q": "queue:old"})
    fields = fields_of(page.text, "/jobs/bulk")
    refused = admin.post("/jobs/bulk", fields)
    assert refused.status_code == 422
    assert "type the number" in refused.text
    assert admin.post("/jobs/bulk", [*fields, ("count", "3")]).status_code == 303


def test_nothing_ticked_is_told(admin: Client) -> None:
    assert "no job is selected" in admin.post("/jobs/confirm", {"action": "retry"}).text


def test_a_query_with_problems_is_not_acted_on(admin: Client, app: Jobkit, ids: list[int]) -> None:
    answer = admin.post("/jobs/confirm", {"action": "delete", "which": "matching", "q": "quue:mail"})
    assert answer.status_code == 400
    assert len([i for i in ids if state_of(app, i)]) == 7


@pytest.mark.parametrize("given", ["abc", "-1", "1e3", "1;drop", "9" * 30, "1.5", "\u0661"])
def test_odd_ids_are_refused(admin: Client, given: str) -> None:
    assert admin.post("/jobs/confirm", {"action": "retry", "id": given}).status_code == 422


def test_a_queue_is_paused_resumed_and_scaled(admin: Client, app: Jobkit) -> None:
    page = admin.follow(
        admin.post("/queues/pause", {"name": "mail", "reason": f"deploy {MARKUP}", "for": "30m"})
    )
    assert "The queue is paused" in page.text
    assert "deploy" in page.text
    page = admin.follow(admin.post("/queues/resume", {"name": "mail"}))
    assert "runs again" in page.text
    ask = admin.post("/queues/scale", {"name": "mail", "limit": "2", "node": ""})
    assert ask.status_code == 200
    assert "capacity goes from 5 to 2" in ask.text
    done = admin.follow(admin.post("/queues/scale", fields_of(ask.text, "/queues/scale")))
    assert "capacity is 2" in done.text


@pytest.mark.parametrize("limit", ["-1", "x", "1.5", "99999999", "\u0662"])
def test_an_odd_limit_is_refused(admin: Client, limit: str) -> None:
    assert admin.post("/queues/scale", {"name": "mail", "limit": limit}).status_code == 422


def test_a_claim_about_what_was_done_is_shown_only_if_it_is_so(admin: Client) -> None:
    assert "The queue is paused" not in admin.get("/queues/show?name=mail&did=pause").text


def test_a_node_is_paused_resumed_and_drained(admin: Client) -> None:
    node = "host-a:17:n1"
    assert "told to pause" in admin.follow(admin.post("/nodes/pause", {"id": node})).text
    assert "told to resume" in admin.follow(admin.post("/nodes/resume", {"id": node})).text
    ask = admin.post("/nodes/drain", {"id": node})
    assert "Drain node" in ask.text
    assert (
        "told to drain" in admin.follow(admin.post("/nodes/drain", fields_of(ask.text, "/nodes/drain"))).text
    )


def test_a_live_node_cannot_be_forgotten(admin: Client) -> None:
    assert admin.post("/nodes/forget", {"id": "host-a:17:n1", "sure": "1"}).status_code == 409


def test_cron_entries_are_run_paused_and_resumed(admin: Client, app: Jobkit) -> None:
    ask = admin.post("/cron/run", {"key": "nightly"})
    assert "Enqueue the job" in ask.text
    page = admin.follow(admin.post("/cron/run", fields_of(ask.text, "/cron/run")))
    assert "was enqueued as job" in page.text
    assert (
        "is paused" in admin.follow(admin.post("/cron/pause", {"key": "nightly", "reason": "holiday"})).text
    )
    assert "runs again" in admin.follow(admin.post("/cron/resume", {"key": "nightly"})).text


def test_a_job_is_made_after_a_dry_run(admin: Client, app: Jobkit) -> None:
    fields = {
        "worker": "send_mail",
        "args": '{"user_id": 12345678901234567890}',
        "tags": "a, b",
        "when": "10m",
    }
    dry = admin.post("/jobs/new", {**fields, "step": "dry"})
    assert "The row that would be written" in dry.text
    assert "12345678901234567890" in dry.text
    made = admin.follow(admin.post("/jobs/new", fields))
    assert "The job was inserted" in made.text
    assert "12345678901234567890" in made.text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ('{"a": }', "line 1, column"),
        ("[1]", "expected an object"),
        ('{"password": "[redacted]"}', "redacted places"),
        ("{" * 3000, "no JSON object"),
    ],
)
def test_bad_args_are_told_with_their_place(admin: Client, args: str, words: str) -> None:
    answer = admin.post("/jobs/new", {"worker": "send_mail", "args": args})
    assert answer.status_code == 422
    assert words in answer.text


def test_an_edit_is_shown_before_it_is_saved_and_loses_to_a_newer_one(
    admin: Client, app: Jobkit, ids: list[int]
) -> None:
    job_id = ids[AVAILABLE]
    form = admin.get(f"/jobs/{job_id}/edit")
    shown = fields_of(form.text, f"/jobs/{job_id}/edit")
    values = {name.removeprefix("shown_"): value for name, value in shown}
    changed = [*shown, *{**values, "priority": "3", "tags": "x"}.items()]
    diff = admin.post(f"/jobs/{job_id}/edit", changed)
    assert "What would change" in diff.text
    saved = admin.follow(admin.post(f"/jobs/{job_id}/edit", [*changed, ("step", "save")]))
    assert "The changes are saved" in saved.text
    again = admin.post(
        f"/jobs/{job_id}/edit", [*changed[:-2], ("priority", "7"), ("tags", "y"), ("step", "save")]
    )
    assert again.status_code == 422


# -- who may what

WRITES = [
    ("jobs.retry", "/jobs/1/retry", {}),
    ("jobs.run_now", "/jobs/2/run_now", {}),
    ("jobs.cancel", "/jobs/confirm", {"only": "cancel:1"}),
    ("jobs.delete", "/jobs/confirm", {"only": "delete:1"}),
    ("jobs.insert", "/jobs/new", {"worker": "send_mail", "args": '{"user_id": 1}'}),
    ("jobs.edit", "/jobs/1/edit", {"priority": "1", "step": "save"}),
    ("queues.pause", "/queues/pause", {"name": "mail"}),
    ("queues.resume", "/queues/resume", {"name": "mail"}),
    ("queues.scale", "/queues/scale", {"name": "mail", "limit": "1", "sure": "1"}),
    ("nodes.pause", "/nodes/pause", {"id": "host-a:17:n1"}),
    ("nodes.drain", "/nodes/drain", {"id": "host-a:17:n1", "sure": "1"}),
    ("nodes.forget", "/nodes/forget", {"id": "host-a:17:n1", "sure": "1"}),
    ("cron.run", "/cron/run", {"key": "nightly", "sure": "1"}),
    ("cron.pause", "/cron/pause", {"key": "nightly"}),
]


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
@pytest.mark.parametrize(("permission", "path", "fields"), WRITES)
def test_roles_decide_who_may_act(
    dash: Dashboard, ids: list[int], role: str, permission: str, path: str, fields: dict[str, str]
) -> None:
    from jobkit.admin.access import ROLES

    answer = Client(dash, role).post(path, fields)
    if permission in ROLES[role]:
        assert answer.status_code != 403
    else:
        assert answer.status_code == 403, answer.text[-500:]
        assert "not permitted" in answer.text


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_buttons_that_a_role_may_not_use_are_absent(dash: Dashboard, ids: list[int], role: str) -> None:
    client = Client(dash, role)
    page = (
        client.get(f"/jobs/{ids[DISCARDED]}").text
        + client.get("/jobs").text
        + client.get("/queues/show?name=mail").text
    )
    assert "Delete" not in page
    assert "Scale" not in page
    assert (">Retry<" in page) is (role == "operator")
    assert client.get("/audit").status_code == 403
    assert "Audit" not in client.get("/").text


def test_denied_attempts_are_in_the_audit(dash: Dashboard, app: Jobkit, ids: list[int]) -> None:
    Client(dash, "viewer").post(f"/jobs/{ids[DISCARDED]}/retry")
    assert any(actor == "viewer@test" and result == "denied" for actor, _, result in audits(app))


def test_a_read_only_dashboard_has_no_address_that_writes(app: Jobkit, ids: list[int]) -> None:
    dash = Dashboard(app, auth=by_header, read_only=True)
    client = Client(dash)
    assert not [route for route in dash.router.routes if route.writes]
    for _, path, fields in WRITES:
        assert client.post(path, fields).status_code in (403, 404, 405) or path == "/jobs/confirm"
    page = client.get(f"/jobs/{ids[DISCARDED]}").text
    assert "Read-only" in page
    assert ">Retry<" not in page
    assert state_of(app, ids[DISCARDED]) == "discarded"


def test_writes_are_bounded_a_minute(admin: Client) -> None:
    codes = {admin.post("/queues/resume", {"name": "mail"}).status_code for _ in range(62)}
    assert codes == {303, 429}


def test_bulk_actions_are_bounded_a_minute(admin: Client) -> None:
    fields = {"action": "retry", "which": "matching", "q": "queue:none"}
    codes = [admin.post("/jobs/bulk", fields).status_code for _ in range(7)]
    assert codes[-1] == 429
    assert 429 not in codes[:6]
