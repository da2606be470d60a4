"""What the dashboard's tests share: an app with jobs of every kind, clients, servers, hostile text."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import sqlalchemy as sa
import uvicorn
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from jobkit import Jobkit, Recurring, hookimpl, worker
from jobkit.admin.actions import Actions
from jobkit.admin.results import Ids
from jobkit.hookspecs import Actor
from jobkit_dashboard import Dashboard
from tests.admin.support import add, error, row
from tests.support.postgres import free_port

SECRET = "hunter2-swordfish"
TOKEN = "ghp_" + "a1B2" * 9
MARKUP = """<script>alert(1)</script><img src=x onerror=alert(2)>'"><b onmouseover=alert(3)>{{7*7}}${7*7}"""
BIDI = "user\u202egnp.exe\u2066\u200bzero\x1b[31mred\x07\u2028line"
TRACEBACK = """ValueError: the order was refused
Traceback (most recent call last):
  File "/srv/app/orders.py", line 42, in place
    charge(order)
  File "/srv/venv/lib/python3.11/site-packages/pay/client.py", line 9, in charge
    raise ValueError("the order was refused")
"""


@worker(queue="mail", secret=["card.number"])
def send_mail(user_id: int, text: str = "", card: dict[str, str] | None = None) -> None:
    """Sends."""


@worker(queue="media")
def resize_image(image_id: int, width: int = 800) -> None:
    """Resizes."""


class Schedules:
    """The recurring entries of the sample app."""

    @hookimpl
    def jobkit_schedules(self) -> list[Recurring]:
        return [
            Recurring("nightly", "0 3 * * *", resize_image(image_id=1), timezone="Europe/Paris"),
            Recurring("often", "*/5 * * * *", send_mail(user_id=1)),
        ]


def make_app(
    url: str, *, plugins: tuple[object, ...] = (), clock: Any = None, config: Any = None, migrate: bool = True
) -> Jobkit:
    """The sample app, its tables made."""
    app = Jobkit(
        url, workers=[send_mail, resize_image], plugins=[Schedules(), *plugins], clock=clock, config=config
    )
    if migrate:
        app.migrate()
    return app


def by_header(connection: HTTPConnection) -> Actor | None:
    """Auth for tests: the header names the role."""
    role = connection.headers.get("x-role")
    return Actor(f"{role}@test", role or "", "web", frozenset({role})) if role else None


def always(role: str) -> Any:
    """Auth for browsers: everybody has this role."""

    def auth(connection: HTTPConnection) -> Actor | None:
        return Actor(f"{role}@test", role, "web", frozenset({role}))

    return auth


def at(now: datetime, **ago: float) -> datetime:
    """So long before now."""
    return now - timedelta(**ago)


def rows_of_every_kind(now: datetime) -> list[dict[str, Any]]:
    """One job in each state and some odd ones; times lie around now."""
    times = {"inserted_at": at(now, minutes=9), "scheduled_at": at(now, minutes=9)}
    ran = {**times, "attempted_at": at(now, minutes=5), "attempted_by": "host-a:17:n1", "attempt": 1}
    mail = {"worker": "send_mail", "queue": "mail"}
    return [
        row(**mail, **times, args={"user_id": 1, "text": "hello"}, tags=["welcome", "user:1"]),
        row(
            **mail,
            state="scheduled",
            inserted_at=at(now, minutes=3),
            scheduled_at=now + timedelta(hours=2),
            args={"user_id": 2, "card": {"number": SECRET}, "password": SECRET},
        ),
        row(
            state="executing",
            **{**ran, "attempted_at": at(now, seconds=40)},
            worker="resize_image",
            queue="media",
            args={"image_id": 7, "width": 1200},
        ),
        row(
            **mail,
            state="retryable",
            **{**ran, "scheduled_at": now + timedelta(minutes=4)},
            args={"user_id": 3},
            errors=[error(TRACEBACK, 1, at(now, minutes=4, seconds=57))],
        ),
        row(
            state="completed",
            completed_at=at(now, minutes=4),
            **ran,
            worker="resize_image",
            queue="media",
            args={"image_id": 8},
            meta={"cron": "nightly"},
            tags=["cron"],
        ),
        row(
            **mail,
            state="discarded",
            discarded_at=at(now, minutes=4),
            **{**ran, "attempt": 3},
            max_attempts=3,
            args={"user_id": 4},
            errors=[
                error(
                    f"HTTPError: POST https://deploy:{SECRET}@api.example.com/charge?token={TOKEN} said 500",
                    n,
                )
                for n in (1, 2, 3)
            ],
        ),
        row(**mail, state="cancelled", cancelled_at=at(now, minutes=2), **times, args={"user_id": 5}),
    ]


def hostile_rows(now: datetime) -> list[dict[str, Any]]:
    """Whoever can put text into a job: every field holds markup, odd characters and secrets."""
    text = f"{MARKUP} {BIDI}"
    times = {"inserted_at": at(now, minutes=1), "scheduled_at": at(now, minutes=1)}
    return [
        row(
            worker=f"w{MARKUP}",
            queue=f"q{MARKUP}",
            **times,
            args={text: text, "password": SECRET, "deep": [{"token": TOKEN}]},
            meta={"note": text, "api_key": SECRET, "cron": text},
            tags=[text[:190], "=cmd|' /C calc'!A0"],
            state="discarded",
            discarded_at=now,
            attempted_at=at(now, seconds=30),
            attempted_by=f"node{MARKUP}",
            attempt=1,
            errors=[
                error(
                    f'{text}: Bearer {TOKEN}\nTraceback (most recent call last):\n  File "{MARKUP}", line 1, in f\n'
                    f"    {text}\n"
                )
            ],
        ),
        row(worker="big", queue="default", **times, args={"blob": "<i>x</i>" * 30_000, "password": SECRET}),
        row(worker="long", queue="default", **times, args={"word": "w" * 5_000}),
    ]


def seed(app: Jobkit, *, hostile: bool = False, nodes: bool = True) -> list[int]:
    """Jobs of every kind, two nodes, recurring entries; returns the ids."""
    now = datetime.now(UTC)
    core = app.core
    ids = add(core, *rows_of_every_kind(now), *(hostile_rows(now) if hostile else []))
    storage = core.storage
    with core.engine.begin() as conn:
        storage.ensure_entry(
            conn,
            "nightly",
            cron="0 3 * * *",
            timezone="Europe/Paris",
            worker="resize_image",
            paused=False,
            now=at(now, days=2),
        )
        storage.ensure_entry(
            conn,
            "often",
            cron="*/5 * * * *",
            timezone="UTC",
            worker="send_mail",
            paused=False,
            now=at(now, hours=1),
        )
        if nodes:
            for node, queues in (("host-a:17:n1", {"mail": 5, "media": 10}), ("host-b:9:n2", {"media": 4})):
                info = {"version": "0.1.0", "host": node.partition(":")[0], "pid": 17}
                storage.register_node(conn, node, now=now, queues=queues, info=info)
    return ids


HOSTILE_NODE = f"node{MARKUP}\u202e"
HOSTILE_QUEUE = f"q{MARKUP}"
HOSTILE_KEY = f"cron{MARKUP}"


def hostile_fleet(app: Jobkit) -> None:
    """Nodes, queues, entries, workers, audit and operations whose every text is hostile, as a node could write them."""
    now, storage = datetime.now(UTC), app.core.storage
    name, text = f"{MARKUP} {BIDI}", f"{MARKUP} {BIDI} password={SECRET}"
    with app.core.engine.begin() as conn:
        info = {"version": name, "host": name, "pid": 1, "services": {name: {"error": text}}, name: name}
        storage.register_node(conn, HOSTILE_NODE, now=now, queues={HOSTILE_QUEUE: 3}, info=info)
        storage.ensure_entry(
            conn,
            HOSTILE_KEY,
            cron="* * * * *",
            timezone="UTC",
            worker=name,
            paused=False,
            now=at(now, days=2),
        )
        storage.ensure_entry(
            conn, "odd", cron=name[:100], timezone=name[:60], worker=name, paused=False, now=at(now, days=2)
        )
        queue = {"name": HOSTILE_QUEUE, "paused": True, "reason": text, "paused_by": name, "version": 1}
        conn.execute(sa.insert(app.core.tables.queues), {**queue, "updated_at": now})
        storage.publish_workers(conn, {f"w{MARKUP}": "{}"}, now=now)
    actions = Actions(app.core, Actor(f"eve{MARKUP}", f"eve{MARKUP}{BIDI}", "web", frozenset({"admin"})))
    actions.pause_queue("mail", reason=text)
    actions.pause_cron(HOSTILE_KEY, reason=text)
    operation = actions.start("retry", Ids((6,)), reason=text)
    actions.run_operation(operation.id)


class Client:
    """A browser without scripts, for one role: keeps cookies, sends forms as browsers do."""

    def __init__(self, dash: Dashboard, role: str | None = "admin", base: str = "http://testserver") -> None:
        self.http = TestClient(
            dash.asgi, base_url=base, follow_redirects=False, raise_server_exceptions=False
        )
        if role:
            self.http.headers["x-role"] = role
        self.root = dash.mount_path or ""

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.http.get(self.root + path, headers=headers)

    def token(self) -> str:
        """The form token of this browser."""
        for cookie in self.http.cookies.jar:
            if "-form-" in cookie.name:
                return str(cookie.value)
        self.get("/settings")
        return next(str(c.value) for c in self.http.cookies.jar if "-form-" in c.name)

    def post(self, path: str, fields: Any = None, **headers: str) -> httpx.Response:
        pairs = list((fields or {}).items()) if isinstance(fields, Mapping) else list(fields or [])
        pairs.append(("_token", self.token()))
        content = str(httpx.QueryParams(pairs))
        sent = {
            "sec-fetch-site": "same-origin",
            "content-type": "application/x-www-form-urlencoded",
            **headers,
        }
        return self.http.post(self.root + path, content=content, headers=sent)

    def follow(self, answer: httpx.Response) -> httpx.Response:
        """Where a 303 leads."""
        assert answer.status_code == 303, (answer.status_code, answer.text[:2000])
        return self.http.get(answer.headers["location"])


@contextmanager
def serving(app: Any, port: int | None = None) -> Iterator[int]:
    """A real server in a thread."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port or 0))
    sock.listen(64)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.started
    try:
        yield int(sock.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(10)
        sock.close()


class _Proxy(BaseHTTPRequestHandler):
    """Strips a prefix, as proxies do, and passes the rest on with the Host that the browser sent."""

    target = 0
    prefix = ""
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        if not self.path.startswith(self.prefix):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        upstream = http.client.HTTPConnection("127.0.0.1", self.target, timeout=20)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        upstream.request(self.command, self.path[len(self.prefix) :] or "/", body, headers)
        answer = upstream.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        if answer.status != 204:
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        upstream.close()

    do_GET = do_POST = do_HEAD = _pass

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def proxied(target: int, prefix: str) -> Iterator[int]:
    """A proxy in front of a port; yields its own."""
    handler = type("Proxy", (_Proxy,), {"target": target, "prefix": prefix})
    server = ThreadingHTTPServer(("127.0.0.1", free_port()), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()
