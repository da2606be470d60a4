"""The live refresh and the completion, as the scripts ask for them."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import sqlalchemy as sa

from jobkit import Jobkit
from jobkit.admin.reads import Reads
from jobkit_dashboard import Dashboard
from tests.admin.support import add, row
from tests.dashboard.support import Client, by_header

PAGES = [
    "/",
    "/jobs",
    "/jobs?q=queue:mail",
    "/jobs/1",
    "/queues",
    "/queues/show?name=mail",
    "/nodes",
    "/nodes/show?id=host-a:17:n1",
    "/cron",
    "/cron/show?key=often",
    "/operations",
]


def poll(client: Client, page: str, since: str = "", **more: str) -> object:
    extra = "".join(f"&{name}={quote(value)}" for name, value in more.items())
    return client.get(f"/-/live?page={quote(client.root + page)}&since={since}{extra}")


@pytest.mark.parametrize("page", PAGES)
def test_a_second_poll_says_that_nothing_has_changed(admin: Client, page: str) -> None:
    first = poll(admin, page)
    assert first.status_code == 200  # type: ignore[attr-defined]
    assert '<section id="r-' in first.text  # type: ignore[attr-defined]
    again = poll(admin, page, first.headers["x-jobkit-token"])  # type: ignore[attr-defined]
    assert again.status_code == 204  # type: ignore[attr-defined]
    assert not again.content  # type: ignore[attr-defined]


def test_a_change_is_told(admin: Client, app: Jobkit, ids: list[int]) -> None:
    token = poll(admin, "/jobs/1").headers["x-jobkit-token"]  # type: ignore[attr-defined]
    jobs = app.tables.jobs
    with app.engine.begin() as conn:
        conn.execute(
            sa.update(jobs)
            .where(jobs.c.id == ids[0])
            .values(state="cancelled", cancelled_at=app.core.clock.now())
        )
    admin_dash(admin).samples.clear()
    answer = poll(admin, "/jobs/1", token)
    assert answer.status_code == 200  # type: ignore[attr-defined]
    assert "cancelled" in answer.text  # type: ignore[attr-defined]


def admin_dash(client: Client) -> Dashboard:
    return client.http.app._dash  # type: ignore[attr-defined, no-any-return]


def test_held_rows_stay_in_their_places(admin: Client, app: Jobkit, ids: list[int]) -> None:
    jobs = app.tables.jobs
    with app.engine.begin() as conn:
        conn.execute(
            sa.update(jobs)
            .where(jobs.c.id == ids[0])
            .values(state="cancelled", cancelled_at=app.core.clock.now())
        )
        conn.execute(sa.delete(jobs).where(jobs.c.id == ids[6]))
    add(app.core, row(), row())
    answer = poll(admin, "/jobs", _rows=f"{ids[6]}.6,{ids[0]}.0", _after=str(ids[6]))
    text = answer.text  # type: ignore[attr-defined]
    assert text.index(f"job-{ids[6]}") < text.index(f"job-{ids[0]}")
    assert "is not here any more" in text
    assert "now cancelled" in text
    assert "2 new" in text
    assert "_rows" not in text


@pytest.mark.parametrize("rows", ["x", "1.9", "1.x,2", ",,,", "9" * 30, "1." + "1" * 40])
def test_odd_rows_are_left_out(admin: Client, rows: str) -> None:
    assert poll(admin, "/jobs", _rows=rows, _after="x").status_code == 200  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "page",
    [
        "",
        "x",
        "//evil.example/jobs",
        "https://evil.example/jobs",
        "/settings",
        "/audit",
        "/-/live",
        "/nope",
        "/jobs/confirm?only=delete:1",
    ],
)
def test_only_pages_that_are_refreshed_are_refreshed(admin: Client, page: str) -> None:
    assert admin.get(f"/-/live?page={quote(page)}").status_code == 404


def test_a_refresh_asks_for_the_page_s_own_permission(app: Jobkit, ids: list[int]) -> None:
    from jobkit import hookimpl

    class NoNodes:
        @hookimpl
        def jobkit_authorize(self, actor: object, action: str) -> bool | None:
            return False if action == "view.nodes" else None

    app.registry.add_plugin(NoNodes())
    client = Client(Dashboard(app, auth=by_header))
    assert client.get("/nodes").status_code == 403
    assert poll(client, "/nodes").status_code == 403  # type: ignore[attr-defined]
    assert poll(client, "/jobs").status_code == 200  # type: ignore[attr-defined]


def test_twenty_viewers_cost_one_query(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = Reads.jobs

    def counted(self: Reads, *given: object, **more: object) -> object:
        calls.append(1)
        return real(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Reads, "jobs", counted)
    token = poll(admin, "/jobs").headers["x-jobkit-token"]  # type: ignore[attr-defined]
    calls.clear()
    for _ in range(5):
        poll(admin, "/jobs", token)
    assert len(calls) <= 3


def test_every_viewer_gets_a_token_of_their_own(dash: Dashboard, ids: list[int]) -> None:
    one, two = Client(dash), Client(dash)
    for client in (one, two):
        client.token()
    texts = [poll(client, "/queues").text for client in (one, two)]  # type: ignore[attr-defined]
    assert one.token() in texts[0]
    assert two.token() in texts[1]
    assert one.token() not in texts[1]


def test_completion_gives_qualifiers_and_values(admin: Client) -> None:
    assert "queue:" in [item["text"] for item in admin.get("/-/suggest?q=que").json()["items"]]
    assert any("mail" in item["text"] for item in admin.get("/-/suggest?q=queue:m").json()["items"])
    for odd in ("%00", "x" * 3000, '"', "args.", "%ff"):
        assert admin.get(f"/-/suggest?q={odd}").status_code == 200
