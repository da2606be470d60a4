"""The dashboard inside other programs: each example is really started, as a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from jobkit import Jobkit
from tests.support.postgres import free_port

MOUNTS = Path(__file__).parents[2] / "examples" / "mounts"
WSGI = """
import sys
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from socketserver import ThreadingMixIn
import importlib
class Quiet(WSGIRequestHandler):
    def log_message(self, *given): pass
class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True
application = importlib.import_module(sys.argv[1]).application
make_server("127.0.0.1", int(sys.argv[2]), application, Threaded, Quiet).serve_forever()
"""


@contextmanager
def started(module: str, attribute: str, environment: dict[str, str], *, wsgi: bool) -> Iterator[str]:
    """The program, until the end of the block; yields its address."""
    port = free_port()
    command = [sys.executable, "-c", WSGI, module, str(port)]
    if not wsgi:
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            f"{module}:{attribute}",
            "--port",
            str(port),
            "--log-level",
            "warning",
        ]
    process = subprocess.Popen(
        command, cwd=MOUNTS, env={**os.environ, "PYTHONPATH": str(MOUNTS), **environment}
    )
    base = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    try:
        while True:
            assert process.poll() is None, f"{module} ended with {process.returncode}"
            assert time.monotonic() < deadline
            try:
                httpx.get(f"{base}/", timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield base
    finally:
        process.terminate()
        process.wait(10)


def visit(base: str, headers: dict[str, str], cookies: dict[str, str] | None = None) -> None:
    """The host answers as before, strangers stay outside, and the dashboard shows and acts."""
    assert "the host program" in httpx.get(f"{base}/").text
    assert httpx.get(f"{base}/admin/jobs/jobs").status_code == 401
    assert httpx.get(f"{base}/admin/jobs/-/health").text == "ok\n"
    with httpx.Client(base_url=base, headers=headers, cookies=cookies, follow_redirects=True) as client:
        page = client.get("/admin/jobs/queues")
        assert page.status_code == 200
        assert client.get("/admin/jobs").status_code == 200
        style = re.search(r'href="(/admin/jobs/-/static/[^"]+\.css)"', page.text)
        assert style and client.get(style[1]).headers["content-type"].startswith("text/css")
        token = re.search(r'name="_token" value="([^"]+)"', page.text)
        assert token
        fields = {"_token": token[1], "name": "mail", "reason": "deploy"}
        done = client.post("/admin/jobs/queues/pause", data=fields, headers={"origin": base})
        assert done.status_code == 200, re.findall(r"lead\">(.*?)<", done.text)
        assert "The queue is paused" in done.text
        forged = client.post(
            "/admin/jobs/queues/resume", data=fields, headers={"origin": "http://evil.example"}
        )
        assert forged.status_code == 403
        live = client.get("/admin/jobs/-/live", params={"page": "/admin/jobs/queues", "since": "x"})
        assert live.status_code == 200
        again = {"page": "/admin/jobs/queues", "since": live.headers["x-jobkit-token"]}
        assert client.get("/admin/jobs/-/live", params=again).status_code == 204


@pytest.fixture
def database(app: Jobkit, ids: list[int]) -> dict[str, str]:
    return {"JOBKIT_DATABASE_URL": str(app.config.database_url)}


@pytest.mark.parametrize(
    ("module", "attribute", "wsgi"),
    [
        ("starlette_app", "app", False),
        pytest.param("fastapi_app", "app", False, marks=pytest.mark.slow),
        pytest.param("flask_app", "application", True, marks=pytest.mark.slow),
    ],
)
def test_it_is_mounted_by_header(database: dict[str, str], module: str, attribute: str, wsgi: bool) -> None:
    pytest.importorskip(module.partition("_")[0])
    with started(module, attribute, database, wsgi=wsgi) as base:
        visit(base, {"x-user": "ana"})
        assert httpx.get(f"{base}/admin/jobs/jobs", headers={"x-user": "eve"}).status_code == 401


MAKE_STAFF = """
import django_site
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.contrib.auth.models import User
from django.contrib.auth import SESSION_KEY, BACKEND_SESSION_KEY, HASH_SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
for name, options in (("ana", {"is_staff": True, "is_superuser": True}), ("eve", {})):
    user = User.objects.create_user(name, **options)
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    print(session.session_key)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("module", "wsgi"), [("django_asgi", False), ("django_wsgi", True)])
def test_it_is_mounted_in_django_for_staff(
    database: dict[str, str], tmp_path: Path, module: str, wsgi: bool
) -> None:
    pytest.importorskip("django")
    environment = {**database, "DJANGO_DB": str(tmp_path / "django.db")}
    made = subprocess.run(
        [sys.executable, "-c", MAKE_STAFF],
        cwd=MOUNTS,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    staff, other = made.stdout.split()
    with started(module, "application", environment, wsgi=wsgi) as base:
        visit(base, {}, {"sessionid": staff})
        assert (
            httpx.get(f"{base}/admin/jobs/jobs", headers={"cookie": f"sessionid={other}"}).status_code == 401
        )
