"""Two server processes for one dashboard: it does not matter which one answers."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import ThreadingHTTPServer
from itertools import cycle
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from jobkit import Jobkit
from tests.dashboard.support import _Proxy
from tests.support.postgres import free_port


class _Turns(_Proxy):
    """Each request goes to the next process, and the answer says to which one it went."""

    targets: Any = None

    def _pass(self) -> None:
        self.target = next(self.targets)
        super()._pass()

    do_GET = do_POST = do_HEAD = _pass


@contextmanager
def taking_turns(ports: list[int], outer: int) -> Iterator[str]:
    handler = type("Turns", (_Turns,), {"targets": cycle(ports)})
    server = ThreadingHTTPServer(("127.0.0.1", outer), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{outer}"
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


@contextmanager
def process(app: Jobkit, port: int, outer: int, link: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "jobkit", "dashboard", "--port", str(port), "--token-file", str(link)]
    command += ["--db", str(app.config.database_url), "--allowed-host", f"127.0.0.1:{outer}"]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    try:
        while True:
            assert running.poll() is None and time.monotonic() < deadline
            try:
                httpx.get(f"http://127.0.0.1:{port}/-/health", timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield
    finally:
        running.terminate()
        running.wait(20)


@pytest.fixture
def pair(app: Jobkit, ids: list[int], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Where both processes are reached in turns, and a login link of the first."""
    ports, outer = [free_port(), free_port()], free_port()
    with ExitStack() as stack:
        for at, port in enumerate(ports):
            stack.enter_context(process(app, port, outer, tmp_path / f"link{at}"))
        base = stack.enter_context(taking_turns(ports, outer))
        yield base, (tmp_path / "link0").read_text().strip().partition("token=")[2]


def field(page: str) -> str:
    found = re.search(r'name="_token" value="([^"]+)"', page)
    assert found
    return found[1]


@pytest.mark.slow
def test_sessions_forms_and_the_refresh_work_on_either_process(
    pair: tuple[str, str], app: Jobkit, ids: list[int]
) -> None:
    base, link = pair
    with httpx.Client(base_url=base, headers={"origin": base}, timeout=30) as client:
        token = field(client.get("/-/login", params={"token": link}).text)
        signed = client.post("/-/login", data={"_token": token, "token": link})
        assert signed.status_code == 303
        for _ in range(4):  # both, twice
            assert client.get("/jobs").status_code == 200
        form = field(client.get("/queues").text)
        for action in ("pause", "resume", "pause"):  # a form from one is taken by the other
            answer = client.post(f"/queues/{action}", data={"_token": form, "name": "mail"})
            assert answer.status_code == 303, answer.text
        first = client.get("/-/live", params={"page": "/jobs", "since": ""})
        since = first.headers["x-jobkit-token"]
        for _ in range(4):  # the same page is the same to both
            assert client.get("/-/live", params={"page": "/jobs", "since": since}).status_code == 204
        jobs = app.tables.jobs
        with app.engine.begin() as conn:
            conn.execute(sa.update(jobs).where(jobs.c.id == ids[0]).values(priority=7))
        assert told_by_both(client, since)
        out = client.post("/-/logout", data={"_token": form})
        assert out.status_code == 303
        assert [client.get("/jobs").status_code for _ in range(2)] == [303, 303]


def told_by_both(client: httpx.Client, since: str) -> bool:
    """Each process tells within its second what another one wrote."""
    deadline, told = time.monotonic() + 15, 0
    while told < 2 and time.monotonic() < deadline:
        answer = client.get("/-/live", params={"page": "/jobs", "since": since})
        told = told + 1 if answer.status_code == 200 else 0
        time.sleep(0.1)
    return told >= 2


def test_the_proxy_of_these_tests_passes_things_on(tmp_path: Path) -> None:
    """Otherwise nothing above would mean anything."""
    outer = free_port()
    with taking_turns([1, 1], outer):
        connection = http.client.HTTPConnection("127.0.0.1", outer, timeout=5)
        connection.request("GET", "/")
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()
