"""Every page in every condition: empty, full, hostile, forbidden, read-only, slow, down, not migrated."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from jobkit import Jobkit
from jobkit.admin.errors import QueryTimeout
from jobkit.admin.reads import Reads
from jobkit_dashboard import Dashboard
from jobkit_dashboard.routing import Route
from jobkit_dashboard.views.export import cell
from tests.dashboard.support import (
    BIDI,
    HOSTILE_KEY,
    HOSTILE_NODE,
    HOSTILE_QUEUE,
    MARKUP,
    SECRET,
    TOKEN,
    Client,
    by_header,
    hostile_fleet,
    make_app,
    seed,
)

PAGES = [
    "/",
    "/jobs",
    "/jobs?counts=1",
    "/jobs?q=queue:mail&state=failing",
    "/jobs?q=state:x",
    "/jobs?sort=priority&dir=asc",
    "/jobs?end=1",
    "/jobs?at=2026-01-01T00:00",
    "/jobs/1",
    "/jobs/1?errors=all&from=%2Fjobs%3Fq%3Dqueue%3Amail",
    "/jobs/new",
    "/jobs/new?clone=1",
    "/jobs/1/edit",
    "/jobs/confirm?only=cancel:1",
    "/jobs/confirm?only=delete:1",
    "/queues",
    "/queues?sort=oldest&status=running",
    "/queues/show?name=mail",
    "/nodes",
    "/nodes/show?id=host-a:17:n1",
    "/cron",
    "/cron/show?key=nightly",
    "/operations",
    "/plugins",
    "/audit",
    "/audit?actor=a*&result=ok&since=2026-01-01T00:00",
    "/settings",
]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_drawn(admin: Client, path: str) -> None:
    answer = admin.get(path)
    assert answer.status_code == 200, answer.text[-3000:]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.count("<h1>") == 1


@pytest.mark.parametrize("path", [p for p in PAGES if not re.search(r"/1|only|clone|show", p)])
def test_every_list_is_drawn_when_there_is_nothing(dash: Dashboard, path: str) -> None:
    assert Client(dash).get(path).status_code == 200


def test_an_empty_list_says_how_to_begin(dash: Dashboard) -> None:
    assert "There are no jobs yet" in Client(dash).get("/jobs").text
    assert "No job matches" in Client(dash).get("/jobs?q=queue:nope").text


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/999999",
        "/jobs/9999999999999999999",
        "/queues/show?name=nope",
        "/nodes/show?id=x",
        "/cron/show?key=x",
        "/operations/5",
        "/nope",
        "/jobs/abc",
    ],
)
def test_what_is_not_there_is_404_with_words(admin: Client, path: str) -> None:
    answer = admin.get(path)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text


def test_DA8_a_pruned_job_is_told_in_words(admin: Client) -> None:
    assert "may have been pruned" in admin.get("/jobs/424242").text


def test_the_database_being_away_is_a_page_with_a_way_back(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path / 'gone.db'}")
    client = Client(Dashboard(app, auth=by_header))
    app.close()
    for file in tmp_path.glob("gone.db*"):
        file.unlink()
    answer = client.get("/jobs")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert "jobkit" in answer.text
    assert client.get("/-/ready").status_code == 503
    assert client.get("/-/health").text == "ok\n"


def test_missing_tables_name_the_command(tmp_path: Path) -> None:
    app = Jobkit(f"sqlite:///{tmp_path / 'bare.db'}")
    with app.engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE other (a int)")
    answer = Client(Dashboard(app, auth=by_header)).get("/jobs")
    assert answer.status_code == 503
    assert "jobkit migrate" in answer.text


def test_a_slow_query_leaves_the_page_standing(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*given: Any, **more: Any) -> None:
        raise QueryTimeout("this took longer than 2 s and was given up; narrow the query")

    monkeypatch.setattr(Reads, "jobs", slow)
    answer = admin.get("/jobs?q=text")
    assert answer.status_code == 200
    assert "longer than 2 s" in answer.text


def test_an_error_of_ours_shows_no_traceback(
    admin: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: Any) -> None:
        raise RuntimeError(f"secret {SECRET}")

    monkeypatch.setattr(Reads, "nodes", broken)
    answer = admin.get("/nodes")
    assert answer.status_code == 500
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text
    request_id = re.search(r"request ([0-9a-f]{16})", answer.text)
    assert request_id and request_id[1] in caplog.text


def test_problems_of_a_query_are_marked_and_nothing_is_searched(admin: Client) -> None:
    answer = admin.get("/jobs?q=quue:mail+hello")
    assert "<mark>quue</mark>" in answer.text
    assert "Nothing was searched" in answer.text
    assert "<table" not in answer.text.partition("<main")[2]


@pytest.mark.parametrize(
    "text",
    [
        "%",
        "_",
        "100%",
        "a'b",
        '"quoted',
        "\\",
        "back\\slash",
        "*",
        "args.x:1;--",
        "(",
        "é\u202e",
        "\x00",
        "x" * 1000,
    ],
)
def test_DA5_any_text_can_be_searched_for(admin: Client, text: str) -> None:
    answer = admin.http.get("/jobs", params={"q": text})
    assert answer.status_code == 200


def test_DA3_a_list_shows_at_most_200_rows_and_a_line_of_each(admin: Client, app: Jobkit) -> None:
    from tests.admin.support import add, row

    add(app.core, *[row(args={"blob": "x" * 100_000}) for _ in range(60)])
    answer = admin.get("/jobs?per=1000000")
    assert answer.text.count('<tr id="job-') == 50
    assert len(answer.text) < 250_000


def test_DA3_a_huge_payload_is_cut_on_its_page(admin: Client, app: Jobkit) -> None:
    from tests.admin.support import add, row

    (job_id,) = add(app.core, row(args={"blob": "y" * 250_000, "password": SECRET}))
    page = admin.get(f"/jobs/{job_id}").text
    assert len(page) < 200_000
    assert SECRET not in page
    whole = admin.get(f"/jobs/{job_id}/data")
    assert whole.headers["content-disposition"].startswith("attachment")
    assert SECRET not in whole.text
    assert "y" * 250_000 in whole.text


def test_DA6_every_time_names_its_zone(admin: Client) -> None:
    admin.post("/settings", {"zone": "Asia/Tokyo"})
    for path in ("/jobs", "/jobs/4", "/nodes", "/cron/show?key=nightly"):
        times = re.findall(r"<time [^>]*>([^<]*)</time>", admin.get(path).text)
        assert times
        assert all(text.endswith(" JST") for text in times), times[:3]


def test_DA9_the_schedule_page_is_drawn_whatever_single_entries_are(admin: Client, app: Jobkit) -> None:
    storage = app.core.storage
    now = app.core.clock.now()
    with app.engine.begin() as conn:
        for key, cron, zone in [
            ("bad", "nonsense", "UTC"),
            ("never", "0 0 30 2 *", "UTC"),
            ("nowhere", "* * * * *", "Mars/Base"),
            ("boot", "@reboot", "UTC"),
            (MARKUP, "* * * * *", "UTC"),
        ]:
            storage.ensure_entry(conn, key, cron=cron, timezone=zone, worker="w", paused=False, now=now)
    page = admin.get("/cron")
    assert page.status_code == 200
    assert "invalid" in page.text
    for key in ("bad", "never", "nowhere", "boot"):
        assert admin.get(f"/cron/show?key={key}").status_code == 200


def test_DA10_large_ids_are_exact(admin: Client, app: Jobkit) -> None:
    from tests.admin.support import add, row

    big = 2**53 + 1
    add(app.core, {**row(args={"n": 12345678901234567891}), "id": big})
    page = admin.get(f"/jobs/{big}").text
    assert f"<code>{big}</code>" in page
    assert "12345678901234567891" in page
    assert f'id="job-{big}"' in admin.get("/jobs").text


def test_counts_are_not_made_by_the_request_that_draws_the_table(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(*given: Any, **more: Any) -> None:
        raise AssertionError("counted")

    for name in ("states", "facets", "count"):
        monkeypatch.setattr(Reads, name, counted)
    assert admin.get("/jobs").status_code == 200


# -- hostile text


class Parsed(HTMLParser):
    """Tags and attributes that a browser would see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def hostile_pages(ids: list[int]) -> list[str]:
    return [
        "/",
        "/jobs?counts=1&cols=id,state,worker,args,queue,tags,node,error,cron",
        *(f"/jobs/{i}?errors=all" for i in ids),
        f"/jobs/new?clone={ids[7]}",
        f"/jobs/confirm?only=delete:{ids[7]}",
        f"/jobs/{ids[0]}/edit",
        "/queues",
        f"/queues/show?name={quote(HOSTILE_QUEUE)}",
        f"/queues?name={quote(MARKUP)}&status={quote(MARKUP)}",
        "/nodes",
        f"/nodes/show?id={quote(HOSTILE_NODE)}",
        "/cron",
        f"/cron/show?key={quote(HOSTILE_KEY)}",
        "/cron/show?key=odd",
        "/audit",
        f"/audit?actor={quote(MARKUP)}&action={quote(MARKUP)}&since={quote(MARKUP)}",
        f"/jobs?q={quote(MARKUP)}&state={quote(MARKUP)}&sort={quote(MARKUP)}&cursor={quote(MARKUP)}&at={quote(MARKUP)}",
        f"/jobs?cols={quote(MARKUP)}&per={quote(MARKUP)}&n={quote(MARKUP)}",
        f"/jobs/{ids[0]}?from={quote('/jobs?q=' + MARKUP)}&op={quote(MARKUP)}&plugin={quote(MARKUP)}",
        "/operations",
        "/operations/1",
        "/plugins",
        "/settings",
    ]


def test_DA1_nothing_of_a_job_becomes_markup_and_no_secret_leaves(app: Jobkit, dash: Dashboard) -> None:
    ids = seed(app, hostile=True)
    hostile_fleet(app)
    client = Client(dash)
    client.post(f"/jobs/{ids[7]}/retry", {"reason": f"{MARKUP} password={SECRET} {BIDI}"})
    client.post("/queues/pause", {"name": "mail", "reason": f"{MARKUP} {BIDI} token={TOKEN}"})
    for path in hostile_pages(ids):
        answer = client.get(path)
        assert answer.status_code == 200, path
        parsed = Parsed(answer.text)
        assert not parsed.tags & {"b onmouseover", "img", "iframe", "object", "embed", "i"}, path
        assert not [name for name, _ in parsed.attributes if name.startswith("on") or name == "style"], path
        assert "alert(1)</script>" not in answer.text
        assert SECRET not in answer.text, path
        assert TOKEN not in answer.text, path
        for odd in ("\u202e", "\u2066", "\u200b", "\x1b", "\x07", "\u2028"):
            # What stands in a field to be edited must come back as it was.
            shown = re.sub(r'<(?:input|option) [^>]*value="[^"]*"', "", answer.text)
            assert odd not in shown, (path, repr(odd))


def test_secrets_leave_by_no_file_and_no_completion(app: Jobkit, dash: Dashboard) -> None:
    seed(app, hostile=True)
    client = Client(dash)
    for path in (
        "/jobs/export?format=jsonl",
        "/jobs/export?format=csv",
        "/-/suggest?q=args.password:h",
        "/-/suggest?q=args.card.number:",
        "/audit/export",
        "/-/live?page=%2Fjobs&since=",
    ):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert SECRET not in answer.text, path
        assert TOKEN not in answer.text, path


def test_searching_by_a_hidden_value_finds_nothing(admin: Client) -> None:
    assert "<table" not in admin.get(f"/jobs?q={SECRET}").text.partition("<main")[2]
    assert "Nothing was searched" in admin.get(f"/jobs?q=args.password:{SECRET}").text


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_no_cell_of_a_csv_is_a_formula(text: str) -> None:
    assert cell(text).startswith("'")


def test_downloads_are_attachments_with_plain_names(admin: Client) -> None:
    answer = admin.get("/jobs/export?format=csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="jobs.csv"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.text.splitlines()) == 8


# -- no script needed


def test_the_form_of_filters_makes_a_query_without_scripts(admin: Client) -> None:
    answer = admin.get(
        "/jobs/filter?q=state:available&queue=mail&worker=send*&text=a+b&since=2026-11-30&until="
    )
    page = admin.follow(answer)
    assert page.status_code == 200
    assert "Nothing was searched" not in page.text
    assert "inserted:2026-11-30.." in page.text


def test_paging_goes_through_all_and_back(admin: Client, app: Jobkit) -> None:
    from tests.admin.support import add, row

    add(app.core, *[row() for _ in range(60)])
    seen: list[str] = []
    path = "/jobs?per=25"
    while path:
        text = admin.http.get(path).text
        seen += re.findall(r'<tr id="job-(\d+)"', text)
        found = re.search(r'rel="next" href="([^"]+)"', text)
        path = found[1].replace("&amp;", "&") if found else ""
    assert len(seen) == len(set(seen)) == 67


def test_prev_and_next_follow_the_list_that_a_job_was_opened_from(admin: Client, ids: list[int]) -> None:
    page = admin.http.get(f"/jobs/{ids[3]}", params={"from": "/jobs?per=50"}).text
    assert f"/jobs/{ids[4]}?from=" in page
    assert f"/jobs/{ids[2]}?from=" in page


def test_a_route_without_a_permission_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="permission"):
        Route("GET", "/x", "", lambda ctx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="POST"):
        Route("GET", "/x", "view.jobs", lambda ctx: None, writes=True)  # type: ignore[arg-type, return-value]


def test_a_dashboard_without_auth_cannot_be_made(app: Jobkit) -> None:
    from jobkit.errors import ConfigError

    with pytest.raises(ConfigError, match="auth="):
        Dashboard(app)


def test_reads_have_a_limit_of_two_seconds(dash: Dashboard) -> None:
    from jobkit.hookspecs import Actor

    assert Reads(dash.core, Actor("x")).timeout <= timedelta(seconds=2)


def test_getting_pages_changes_no_row(admin: Client, app: Jobkit) -> None:
    def state() -> dict[str, list[object]]:
        with app.engine.connect() as conn:
            tables = app.tables.metadata.sorted_tables
            return {table.name: [tuple(row) for row in conn.execute(sa.select(table))] for table in tables}

    before = state()
    for route in admin_routes(app):
        admin.get(route)
        admin.http.head(route)
    assert state() == before


def admin_routes(app: Jobkit) -> list[str]:
    dash = Dashboard(app, auth=by_header)
    paths = [
        route.pattern.replace("{id:int}", "1")
        .replace("{plugin}", "p")
        .replace("{rest:rest}", "r")
        .replace("{hash}", "h")
        .replace("{name}", "n")
        for route in dash.router.routes
        if route.method == "GET"
    ]
    return [*paths, *PAGES]


def test_every_page_is_drawn_on_postgres_too(postgres_url: str) -> None:
    app = make_app(postgres_url)
    ids = seed(app, hostile=True)
    hostile_fleet(app)
    client = Client(Dashboard(app, auth=by_header))
    for path in [
        *PAGES,
        *hostile_pages(ids),
        "/jobs?q=args.user_id:1",
        '/jobs?q="hello"',
        "/-/live?page=%2Fjobs&since=",
    ]:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text[-2000:])
        assert SECRET not in answer.text, path
    client.follow(client.post(f"/jobs/{ids[5]}/retry"))
    client.follow(client.post("/queues/pause", {"name": "mail"}))
    assert "available" in client.get(f"/jobs/{ids[5]}").text
    app.close()
