"""Signing in to a dashboard that stands alone: links, passwords, sessions, tokens, and the command around them."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from jobkit import Jobkit
from jobkit_dashboard import Dashboard
from jobkit_dashboard.passwords import Users, hash_password
from jobkit_dashboard.serve import Standalone, link_url
from jobkit_dashboard.signin import SignIn, new_link
from jobkit_dashboard.store import Store
from jobkit_dashboard.table import sessions_table
from tests.admin.support import FixedClock
from tests.dashboard.support import Client, make_app, seed
from tests.support.postgres import free_port

FORM = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def alone(tmp_path: Path, migrated: Path, clock: FixedClock) -> Iterator[Dashboard]:
    """A dashboard with links and the user ana."""
    import shutil

    shutil.copy(migrated, tmp_path / "jobkit.db")
    app = make_app(f"sqlite:///{tmp_path / 'jobkit.db'}", clock=clock, migrate=False)
    users = tmp_path / "users"
    users.write_text(f"ana:operator:{hash_password('s3cret')}\n")
    yield Dashboard(app, auth=SignIn(Users(users)))
    app.close()


def sign_in(dash: Dashboard, token: str | None = None) -> Client:
    client = Client(dash, None)
    client.get("/-/login")
    answer = client.post("/-/login", {"token": token or new_link(dash.store)})
    assert answer.status_code == 303, answer.text
    return client


def token_of(client: Client) -> str:
    return next(str(c.value) for c in client.http.cookies.jar if "-form-" in c.name)


def session_cookie(client: Client) -> str:
    return next(str(c.value) for c in client.http.cookies.jar if "-session-" in c.name)


def test_a_link_opens_the_door_once(alone: Dashboard) -> None:
    token = new_link(alone.store)
    client = sign_in(alone, token)
    assert client.get("/jobs").status_code == 200
    other = Client(alone, None)
    other.get("/-/login")
    answer = other.post("/-/login", {"token": token})
    assert answer.status_code == 401
    assert "was used or is too old" in answer.text


def test_looking_at_a_link_does_not_use_it_up(alone: Dashboard) -> None:
    token = new_link(alone.store)
    for _ in range(3):
        page = Client(alone, None).get(f"/-/login?token={token}")
        assert page.status_code == 200
        assert "works once" in page.text or "opens the dashboard once" in page.text
    sign_in(alone, token)


def test_a_link_grows_old(alone: Dashboard, clock: FixedClock) -> None:
    token = new_link(alone.store)
    clock.advance(timedelta(minutes=10, seconds=1))
    client = Client(alone, None)
    client.get("/-/login")
    assert client.post("/-/login", {"token": token}).status_code == 401


def test_only_hashes_are_stored(alone: Dashboard) -> None:
    token = new_link(alone.store)
    client = sign_in(alone)
    with alone.core.engine.connect() as conn:
        stored = repr(conn.execute(sa.select(sessions_table(alone.core.tables))).all())
    assert token not in stored
    assert session_cookie(client) not in stored


def test_a_password_opens_the_door_and_a_wrong_one_says_nothing(alone: Dashboard) -> None:
    client = Client(alone, None)
    client.get("/-/login")
    texts = set()
    for name, password in [("ana", "wrong"), ("eve", "s3cret"), ("", "")]:
        answer = client.post("/-/login", {"name": name, "password": password})
        assert answer.status_code == 401
        texts.add(re.search(r'class="flash[^>]*>.*?<span>(.*?)</span>', answer.text, re.S)[1])  # type: ignore[index]
    assert len(texts) == 1
    assert client.post("/-/login", {"name": "ana", "password": "s3cret"}).status_code == 303
    assert "ana" in client.get("/jobs").text


def test_wrong_tries_are_slowed_down_and_audited_but_lock_no_session(alone: Dashboard) -> None:
    inside = sign_in(alone)
    client = Client(alone, None)
    client.get("/-/login")
    codes = [client.post("/-/login", {"name": "ana", "password": "wrong"}).status_code for _ in range(6)]
    assert codes == [401] * 5 + [429]
    assert inside.get("/jobs").status_code == 200
    audit = alone.core.tables.audit.c
    with alone.core.engine.connect() as conn:
        denied = conn.scalar(
            sa.select(sa.func.count()).where(audit.action == "login", audit.result == "denied")
        )
    assert denied == 6


def test_a_session_is_new_at_every_login_and_ends_at_logout(alone: Dashboard) -> None:
    client = sign_in(alone)
    first = session_cookie(client)
    client.post("/-/login", {"token": new_link(alone.store)})
    second = session_cookie(client)
    assert first != second
    stale = Client(alone, None)
    name = next(c.name for c in client.http.cookies.jar if "-session-" in c.name)
    stale.http.cookies.set(name, first)
    assert stale.get("/jobs").status_code == 303
    client.post("/-/logout")
    stale.http.cookies.set(name, second)
    assert stale.get("/jobs").status_code == 303


def test_a_session_ends_when_it_idles_and_at_last_anyway(alone: Dashboard, clock: FixedClock) -> None:
    client = sign_in(alone)
    for _ in range(20):
        clock.advance(timedelta(hours=7))
        assert client.get("/settings").status_code == 200
    clock.advance(timedelta(hours=8, minutes=1))
    assert client.get("/settings").status_code == 303
    client = sign_in(alone)
    for _ in range(24):
        clock.advance(timedelta(hours=7))
        client.get("/settings")
    assert client.get("/settings").status_code == 303


def test_an_open_tab_that_only_polls_does_not_keep_a_session(alone: Dashboard, clock: FixedClock) -> None:
    client = sign_in(alone)
    for _ in range(3):
        clock.advance(timedelta(hours=3))
        answer = client.get("/-/live?page=%2Fjobs&since=x")
    assert answer.status_code == 401


def test_signing_in_leads_to_where_one_wanted_to_go_and_nowhere_else(alone: Dashboard) -> None:
    client = Client(alone, None)
    answer = client.get("/queues/show?name=a%2Fb")
    assert answer.headers["location"] == "/-/login?next=%2Fqueues%2Fshow%3Fname%3Da%252Fb"
    page = client.follow(answer)
    assert "/queues/show?name=a%2Fb" in page.text
    for target, reached in [
        ("/queues", "/queues"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil", "/"),
    ]:
        done = client.post("/-/login", {"token": new_link(alone.store), "next": target})
        assert done.headers["location"] == reached


def test_sessions_are_listed_and_can_be_ended(alone: Dashboard) -> None:
    one, two = sign_in(alone), sign_in(alone)
    page = one.get("/settings")
    handles = re.findall(r'name="session" value="([0-9a-f]{12})"', page.text)
    assert len(handles) == 2
    third = sign_in(alone)
    for handle in handles:
        assert third.post("/settings/revoke", {"session": handle}).status_code == 303
    assert [client.get("/settings").status_code for client in (one, two, third)] == [303, 303, 200]


def test_a_mounted_dashboard_has_no_login_of_its_own(dash: Dashboard) -> None:
    assert Client(dash).get("/-/login").status_code == 404


# -- the API


def test_the_API_is_off_unless_it_is_switched_on(admin: Client) -> None:
    assert admin.http.get("/api/v1/jobs", headers={"authorization": "Bearer x"}).status_code in (401, 404)


@pytest.fixture
def api(app: Jobkit, ids: list[int]) -> httpx.Client:
    dash = Dashboard(app, auth=SignIn(), api=True)
    from jobkit.hookspecs import Actor

    token = Store(app.core).make(
        "token", Actor("token:ci", "ci", "api", frozenset({"operator"})), timedelta(days=1), name="ci"
    )
    client = Client(dash, None).http
    client.headers["authorization"] = f"Bearer {token}"
    return client


def test_the_API_reads_and_acts_as_its_token_may(api: httpx.Client, ids: list[int]) -> None:
    listed = api.get("/api/v1/jobs", params={"q": "queue:mail"}).json()
    assert listed["schema"] == "jobkit.jobs.list/1"
    assert {item["queue"] for item in listed["items"]} == {"mail"}
    assert api.get(f"/api/v1/jobs/{ids[5]}").json()["job"]["job"]["id"] == ids[5]
    assert (
        api.post(f"/api/v1/jobs/{ids[5]}/retry", json={"reason": "fixed"}).json()["result"]["after"]
        == "available"
    )
    late = api.post(f"/api/v1/jobs/{ids[4]}/run_now", json={})
    assert (late.status_code, late.json()["error"]["code"]) == (409, "conflict")
    assert api.post(f"/api/v1/jobs/{ids[0]}/delete", json={}).status_code == 403
    assert api.post("/api/v1/jobs/424242/retry", json={}).status_code == 404
    assert api.get("/api/v1/jobs", params={"q": "quue:x"}).json()["error"]["code"] == "query"
    for kind in ("queues", "nodes", "cron"):
        assert api.get(f"/api/v1/{kind}").status_code == 200


def test_the_API_takes_bearer_tokens_and_no_cookies(api: httpx.Client, ids: list[int]) -> None:
    for headers in (
        {"authorization": "Bearer wrong"},
        {"authorization": ""},
        {"authorization": "Basic eDp5"},
    ):
        answer = api.get("/api/v1/jobs", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "signed_out"
    forged = api.post(
        f"/api/v1/jobs/{ids[5]}/retry", json={}, headers={"cookie": "a=b", "sec-fetch-site": "cross-site"}
    )
    assert forged.status_code == 403
    assert "access-control-allow-origin" not in api.get("/api/v1/jobs").headers


# -- the command


def cli(*words: str) -> object:
    from jobkit.cli.root import cli as root

    return CliRunner().invoke(root, list(words))


def test_the_command_refuses_an_open_bind(app: Jobkit) -> None:
    answer = subprocess.run(
        [
            sys.executable,
            "-m",
            "jobkit",
            "dashboard",
            "--host",
            "0.0.0.0",
            "--db",
            str(app.config.database_url),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 3
    assert "--password-file" in answer.stderr


def test_the_command_serves_and_its_link_opens_it(app: Jobkit, ids: list[int], tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "link"
    command = [
        sys.executable,
        "-m",
        "jobkit",
        "dashboard",
        "--port",
        str(port),
        "--db",
        str(app.config.database_url),
        "--token-file",
        str(file),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        base = f"http://127.0.0.1:{port}"
        while True:
            assert process.poll() is None and time.monotonic() < deadline
            try:
                assert httpx.get(f"{base}/-/health", timeout=5).text == "ok\n"
                break
            except httpx.TransportError:
                time.sleep(0.05)
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        link = file.read_text().strip()
        with httpx.Client() as client:
            page = client.get(link)
            token = re.search(r'name="_token" value="([^"]+)"', page.text)
            assert token
            fields = {"_token": token[1], "token": link.partition("token=")[2]}
            answer = client.post(f"{base}/-/login", data=fields, headers={"origin": base})
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            assert client.get(f"{base}/jobs").status_code == 200
        assert httpx.get(f"{base}/jobs", headers={"host": "evil.example"}).status_code == 421
    finally:
        process.terminate()
        process.wait(20)


def test_links_name_the_place_where_browsers_find_it() -> None:
    assert link_url(Standalone(), "t") == "http://127.0.0.1:8778/-/login?token=t"
    assert link_url(Standalone(host="::1", root_path="/a"), "t") == "http://[::1]:8778/a/-/login?token=t"
    behind = Standalone(host="0.0.0.0", allowed_hosts=("jobs.example.org",), behind_tls_proxy=True)
    assert link_url(behind, "t") == "https://jobs.example.org/-/login?token=t"


def test_tokens_are_made_listed_and_revoked(app: Jobkit) -> None:
    db = ["--db", str(app.config.database_url)]
    made = cli("dashboard", "token", "create", "ci", "--role", "viewer", "--expires", "1d", *db)
    secret = made.stdout.splitlines()[0]  # type: ignore[attr-defined]
    text = cli("dashboard", "token", "list", "--json", *db).stdout  # type: ignore[attr-defined]
    assert secret not in text
    (listed,) = json.loads(text)["items"]
    assert (listed["name"], listed["roles"]) == ("ci", ["viewer"])
    store = Store(app.core)
    assert store.find("token", secret)
    assert cli("dashboard", "token", "revoke", listed["handle"], *db).exit_code == 0  # type: ignore[attr-defined]
    assert store.find("token", secret) is None
    assert cli("dashboard", "token", "revoke", "0" * 12, *db).exit_code != 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["session", "link", "token"])
def test_the_store_works_on_both_databases(database_url: str, kind: str) -> None:
    from jobkit.hookspecs import Actor

    app = make_app(database_url)
    store = Store(app.core)
    secret = store.make(
        kind, Actor("a", "A", "web", frozenset({"viewer", "admin"})), timedelta(hours=1), name="n"
    )  # type: ignore[arg-type]
    found = store.find(kind, secret)  # type: ignore[arg-type]
    assert found is not None
    assert found.actor.roles == {"viewer", "admin"}
    assert [s.handle for s in store.living(kind)] == [found.handle]  # type: ignore[arg-type]
    assert store.take(secret) is (None if kind != "link" else store.take(secret)) or kind == "link"
    store.end(kind, secret)  # type: ignore[arg-type]
    assert store.find(kind, secret) is None  # type: ignore[arg-type]
    seed(app)
    app.close()


def test_a_node_serves_the_dashboard_beside_its_jobs(app: Jobkit, ids: list[int]) -> None:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 8778)) == 0:
            pytest.skip("something listens on the dashboard's port")
    db = str(app.config.database_url)
    command = [sys.executable, "-m", "jobkit", "run", "--with-dashboard", "--queues", "other:1", "--db", db]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("Open "))
        page = httpx.get(line.split()[1], timeout=20)
        assert "opens the dashboard once" in page.text
    finally:
        process.terminate()
        assert process.wait(40) == 0
