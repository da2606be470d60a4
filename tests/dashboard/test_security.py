"""The security table, on the whole application."""

from __future__ import annotations

import hashlib
import logging
import re
import socket
import tomllib
from pathlib import Path

import pytest

import jobkit_dashboard
from jobkit import Jobkit
from jobkit.errors import ConfigError
from jobkit_dashboard import Dashboard
from jobkit_dashboard.auth import allow_all, basic, proxy_header
from jobkit_dashboard.passwords import Users, hash_password, verify
from jobkit_dashboard.serve import Standalone, dashboard_for, is_loopback, refusal
from tests.admin.support import add, row
from tests.dashboard.support import SECRET, Client, by_header, serving

HERE = Path(jobkit_dashboard.__file__).parent
ALWAYS = {
    "content-security-policy",
    "x-content-type-options",
    "referrer-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "permissions-policy",
    "x-robots-tag",
    "x-frame-options",
    "cache-control",
}


def static_path(client: Client, name: str = "dashboard.css") -> str:
    found = re.search(rf'"([^"]*/-/static/[0-9a-f]+/{re.escape(name)})"', client.get("/settings").text)
    assert found
    return found[1]


# -- headers


def test_every_answer_carries_the_security_headers(admin: Client) -> None:
    paths = [
        "/",
        "/jobs",
        "/jobs/1",
        "/jobs/999",
        "/nope",
        "/-/health",
        "/-/ready",
        "/-/suggest?q=a",
        "/jobs/export",
        static_path(admin),
        "/x/none",
        "/-/live?page=%2Fjobs&since=x",
    ]
    answers = [admin.get(path) for path in paths]
    answers += [
        admin.http.post("/jobs/1/retry"),
        admin.http.put("/jobs"),
        Client_without(admin).get("/jobs"),
        admin.post("/queues/pause", {"name": "mail"}),
    ]
    answers.append(admin.http.get("/jobs", headers={"host": "a b"}))
    for answer in answers:
        assert set(answer.headers) >= ALWAYS, answer.request.url
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["cache-control"] == (
            "public, max-age=31536000, immutable" if "/static/" in str(answer.request.url) else "no-store"
        )


def Client_without(client: Client) -> Client:
    """The same dashboard without an actor."""
    other = Client.__new__(Client)
    other.http, other.root = (
        type(client.http)(client.http.app, base_url="http://testserver", follow_redirects=False),
        "",
    )
    return other


def test_HSTS_is_sent_only_where_TLS_is_ours(app: Jobkit) -> None:
    assert (
        "strict-transport-security"
        in Client(Dashboard(app, auth=by_header, own_tls=True)).get("/-/health").headers
    )
    assert "strict-transport-security" not in Client(Dashboard(app, auth=by_header)).get("/-/health").headers


def test_strangers_get_401_and_no_word_about_jobs(dash: Dashboard, ids: list[int]) -> None:
    stranger = Client(dash, None)
    for path in (
        "/",
        "/jobs",
        "/jobs/1",
        "/nope",
        "/-/live?page=%2Fjobs",
        "/-/suggest?q=a",
        "/jobs/export",
        "/settings",
    ):
        answer = stranger.get(path)
        assert answer.status_code == 401, path
        assert "send_mail" not in answer.text


# -- forgery, on the application


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": ""}, False),
    ],
)
def test_DA2_a_form_needs_the_right_origin(admin: Client, headers: dict[str, str], passes: bool) -> None:
    assert (admin.post("/queues/pause", {"name": "mail"}, **headers).status_code == 303) is passes


def test_DA2_a_form_needs_its_token(admin: Client) -> None:
    headers = {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
    admin.token()
    for content in ("name=mail", "name=mail&_token=wrong", "name=mail&_token="):
        assert admin.http.post("/queues/pause", content=content, headers=headers).status_code == 403


def test_a_configured_public_origin_is_ours_too(app: Jobkit, ids: list[int]) -> None:
    client = Client(Dashboard(app, auth=by_header, public_origins=["https://jobs.example.org"]))
    token = client.token()
    sent = {"origin": "https://jobs.example.org", "content-type": "application/x-www-form-urlencoded"}
    assert (
        client.http.post("/queues/pause", content=f"name=mail&_token={token}", headers=sent).status_code
        == 303
    )
    assert (
        client.http.post(
            "/queues/pause",
            content=f"name=mail&_token={token}",
            headers={**sent, "origin": "https://other.example.org"},
        ).status_code
        == 403
    )


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "text/plain", "application/json"])
def test_only_plain_forms_are_read(admin: Client, kind: str) -> None:
    assert admin.post("/queues/pause", {"name": "mail"}, **{"content-type": kind}).status_code == 415


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "POST"])
def test_other_methods_are_not_answered(admin: Client, method: str) -> None:
    assert admin.http.request(method, "/audit").status_code in (403, 405)


# -- size


def test_a_body_over_the_limit_is_413(admin: Client) -> None:
    assert admin.post("/queues/pause", {"name": "x" * 300_000}).status_code == 413
    assert admin.post("/jobs/new", {"worker": "send_mail", "args": "x" * 300_000}).status_code == 422
    assert admin.post("/jobs/new", {"worker": "send_mail", "args": "x" * 1_100_000}).status_code == 413


def test_an_address_over_the_limit_is_414(admin: Client) -> None:
    assert admin.get("/jobs?q=" + "x" * 9_000).status_code == 414


def test_too_many_fields_are_400(admin: Client) -> None:
    assert admin.get("/jobs?" + "a&" * 3_000 + "a=1").status_code == 400


# -- files


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../app.py",
        "%2e%2e/app.py",
        "..%2fapp.py",
        "%5c..%5capp.py",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "x%00.css",
        "dashboard.css%00",
        "x" * 5000,
        "VENDOR.toml",
        "",
    ],
)
def test_no_file_but_those_of_the_dictionary_is_served(admin: Client, path: str) -> None:
    bundle = static_path(admin).rsplit("/", 2)[1]
    for address in (f"/-/static/{bundle}/{path}", f"/-/static/{path}/dashboard.css"):
        assert admin.get(address).status_code in (400, 404, 414)


def test_files_are_kept_for_ever_under_their_hash(admin: Client) -> None:
    answer = admin.get(static_path(admin, "dashboard.js"))
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]


# -- templates and scripts


def test_no_template_has_inline_code_or_marks_anything_safe() -> None:
    for file in (HERE / "templates").rglob("*.html"):
        text = file.read_text()
        assert not re.search(r"\|\s*safe\b|autoescape false|Markup", text), file
        assert not re.search(r"\sstyle\s*=|\son[a-z]+\s*=\s*[\"']|javascript:|data:", text, re.I), file
        assert not re.findall(r"<script(?![^>]*\bsrc=)|<style", text), file
        assert "://" not in text, file


def test_scripts_have_one_sink_for_HTML_and_no_eval() -> None:
    for file in (HERE / "static").glob("*.js"):
        if file.name == "idiomorph.js":
            continue
        text = file.read_text()
        assert not re.search(
            r"innerHTML\s*=|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function"
            r"|setTimeout\(\s*['\"]",
            text,
        ), file
        assert ("parseFromString" in text) is (file.name == "live.js")
        assert "://" not in text, file


def test_vendored_files_are_those_that_are_listed() -> None:
    listed = {entry["path"]: entry for entry in tomllib.loads((HERE / "VENDOR.toml").read_text())["file"]}
    assert set(listed) == {"static/idiomorph.js"}
    for path, entry in listed.items():
        assert hashlib.sha256((HERE / path).read_bytes()).hexdigest() == entry["sha256"]
        assert (HERE / entry["licence_file"]).read_text()


def test_what_browsers_load_is_small(admin: Client) -> None:
    import gzip

    scripts = b"".join(file.read_bytes() for file in (HERE / "static").glob("*.js"))
    scripts += admin.get(admin.http.app._dash.assets.path("catalogue.js")).content  # type: ignore[attr-defined]
    assert len(gzip.compress(scripts)) <= 25 * 1024
    assert len(gzip.compress((HERE / "static" / "dashboard.css").read_bytes())) <= 12 * 1024


def test_a_long_list_is_a_small_page(app: Jobkit, admin: Client) -> None:
    import gzip

    args = {"user_id": 1, "text": "Dear customer, thank you for all of your orders of this year. " * 2}
    add(app.core, *[row(worker="send_mail", queue="mail", args={**args, "n": n}) for n in range(200)])
    page = admin.get("/jobs?per=200")
    assert page.text.count("data-id=") == 200
    assert len(gzip.compress(page.content)) <= 60 * 1024


# -- logs


def test_the_log_has_no_query_string_and_no_secret(admin: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    admin.get(f"/jobs?q={SECRET}")
    admin.http.get(
        "/jobs%0d%0aforged", headers={"cookie": f"x={SECRET}", "authorization": f"Bearer {SECRET}"}
    )
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("jobkit")]
    assert any("GET /jobs 200" in line for line in lines)
    assert not [line for line in lines if SECRET in line or "\n" in line or "\r" in line]


# -- hosts on a real socket


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /-/health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n", 200),
        (b"GET /-/health HTTP/1.1\r\nHost: evil.example\r\n", 421),
        (b"GET /-/health HTTP/1.1\r\nHost: 127.0.0.1.:%d\r\n", 400),
        (b"GET /-/health HTTP/1.1\r\nHost: LOCALHOST:%d\r\n", 200),
        (b"GET /-/health HTTP/1.1\r\nHost: a@127.0.0.1:%d\r\n", 400),
        (b"GET /-/health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nHost: evil.example\r\n", 400),
        (b"GET /-/health HTTP/1.1\r\n", 400),
        (b"GET /-/health HTTP/1.0\r\n", 400),
        (b"GET http://evil.example/-/health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n", 400),
    ],
)
def test_hosts_on_the_wire(app: Jobkit, request_: bytes, status: int) -> None:
    from jobkit_dashboard.guard.hosts import loopback_hosts
    from tests.support.postgres import free_port

    port = free_port()
    with (
        serving(Dashboard(app, auth=by_header, allowed_hosts=loopback_hosts(port)).asgi, port),
        socket.create_connection(("127.0.0.1", port), 10) as sock,
    ):
        sock.sendall((request_ % port if b"%d" in request_ else request_) + b"Connection: close\r\n\r\n")
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
    assert int(answer.split()[1]) == status
    if status == 421:
        assert answer.endswith(b"\r\n\r\n")


# -- proxies


def test_forwarded_headers_count_only_from_trusted_peers(app: Jobkit) -> None:
    headers = {"x-forwarded-proto": "https", "x-forwarded-host": "evil.example"}
    plain = Client(Dashboard(app, auth=by_header)).get("/settings", **headers)
    assert "secure" not in plain.headers["set-cookie"].lower()
    assert "evil.example" not in plain.text


def test_a_proxy_s_user_is_believed_from_its_network_only() -> None:
    from starlette.requests import HTTPConnection

    auth = proxy_header("X-Forwarded-User", trusted_proxies=["10.0.0.0/8"], role="operator")

    def ask(peer: str, *values: str) -> object:
        headers = [(b"x-forwarded-user", value.encode()) for value in values]
        return auth(HTTPConnection({"type": "http", "headers": headers, "client": (peer, 1)}))

    assert getattr(ask("10.1.2.3", "ana"), "id", None) == "ana"
    for peer, values in [
        ("192.168.0.1", ("ana",)),
        ("10.1.2.3", ()),
        ("10.1.2.3", ("ana", "eve")),
        ("10.1.2.3", ("",)),
        ("", ("ana",)),
    ]:
        assert ask(peer, *values) is None
    with pytest.raises(ValueError, match="networks"):
        proxy_header("X-User", trusted_proxies=[])


def test_cookies_are_strict_over_TLS(app: Jobkit, ids: list[int]) -> None:
    cookie = (
        Client(Dashboard(app, auth=by_header), base="https://testserver").get("/jobs").headers["set-cookie"]
    )
    assert cookie.startswith("__Host-")
    for part in ("Secure", "HttpOnly", "SameSite=lax", "Path=/"):
        assert part in cookie
    below = Client(Dashboard(app, auth=by_header, mount_path="/a/b")).get("/jobs").headers["set-cookie"]
    assert "Path=/a/b;" in below
    assert "HttpOnly" in below
    assert "Secure" not in below


# -- standing alone


@pytest.mark.parametrize(
    ("options", "safe"),
    [
        (Standalone(), True),
        (Standalone(host="localhost"), True),
        (Standalone(host="::1"), True),
        (Standalone(host="127.8.8.8"), True),
        (Standalone(host="0.0.0.0"), False),
        (Standalone(host="::"), False),
        (Standalone(host="10.0.0.5"), False),
        (Standalone(host="myhost"), False),
        (Standalone(host="0.0.0.0", password_file="f"), False),
        (Standalone(host="0.0.0.0", behind_tls_proxy=True), False),
        (Standalone(host="0.0.0.0", password_file="f", behind_tls_proxy=True), True),
        (Standalone(host="0.0.0.0", auth="m:f", certificate="c", key="k"), True),
        (Standalone(host="0.0.0.0", auth="m:f", certificate="c"), False),
        (Standalone(host="0.0.0.0", proxy_header="X", behind_tls_proxy=True), False),
        (
            Standalone(
                host="0.0.0.0", proxy_header="X", trusted_proxies=("10.0.0.0/8",), behind_tls_proxy=True
            ),
            True,
        ),
        (Standalone(proxy_header="X"), False),
    ],
)
def test_DA7_an_open_bind_needs_authentication_and_TLS(options: Standalone, safe: bool) -> None:
    assert (refusal(options) is None) is safe


def test_DA7_the_default_is_loopback_with_a_link() -> None:
    options = Standalone()
    assert is_loopback(options.host)
    assert options.has_links


def test_an_open_bind_must_name_its_host(app: Jobkit, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"ana:admin:{hash_password('x')}\n")
    with pytest.raises(ConfigError, match="allowed-host"):
        dashboard_for(app.core, Standalone(host="0.0.0.0", password_file=str(file), behind_tls_proxy=True))


def test_passwords_are_hashed_and_compared_whole() -> None:
    stored = hash_password("correct horse")
    assert verify("correct horse", stored)
    assert not verify("correct hors", stored)
    assert hash_password("correct horse") != stored
    for bad in ("", "plain", "scrypt$1$2$3$x$y", "scrypt$99999999999$8$1$aaaa$aaaa"):
        with pytest.raises(ValueError):
            verify("x", bad)


@pytest.mark.parametrize("line", ["ana", "ana:root:x", ":admin:x", "ana:admin:plain"])
def test_a_bad_password_file_names_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "users"
    file.write_text(f"# users\n{line}\n")
    with pytest.raises(ConfigError, match="line 2"):
        Users(file)


def test_basic_authentication_asks_for_it(app: Jobkit, ids: list[int], tmp_path: Path) -> None:
    import base64

    file = tmp_path / "users"
    file.write_text(f"ana:viewer:{hash_password('s3cret')}\n")
    client = Client(Dashboard(app, auth=basic(file)), None)
    refused = client.get("/jobs")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Basic")
    for words, status in [("ana:s3cret", 200), ("ana:wrong", 401), ("eve:s3cret", 401), ("ana", 401)]:
        header = "Basic " + base64.b64encode(words.encode()).decode()
        assert client.get("/jobs", authorization=header).status_code == status


def test_opening_it_to_everybody_has_to_be_meant(
    app: Jobkit, ids: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="i_understand"):
        allow_all()
    client = Client(Dashboard(app, auth=allow_all(i_understand=True)), None)
    assert "open to everybody" in caplog.text
    assert "open to everybody" in client.get("/jobs").text


def test_health_says_nothing_else(dash: Dashboard) -> None:
    client = Client(dash, None)
    assert client.get("/-/health").text == "ok\n"
    assert client.get("/-/ready").text == "ready\n"


def test_importing_the_plugin_loads_no_web_framework() -> None:
    import subprocess
    import sys

    code = (
        "import sys, jobkit_dashboard.plugin, jobkit_dashboard.hookspecs; "
        "print([m for m in ('starlette', 'jinja2', 'uvicorn', 'anyio') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.strip()
        == "[]"
    )
