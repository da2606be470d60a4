"""The health endpoint of `jobkit run --health HOST:PORT`: `/live`, `/ready`, and both with figures at `/`.

It answers from a thread of its own, so that a blocked event loop is seen from outside. Invariant: it tells figures
only, nothing of jobs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode

__all__ = ["Health", "HealthServer", "split_address"]


@dataclass(frozen=True, slots=True)
class Health:
    """One look: alive (not to be restarted), ready (works on jobs), and figures."""

    live: bool
    ready: bool
    facts: Mapping[str, object] = field(default_factory=dict)


def split_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `:PORT` or `PORT`; the host is 127.0.0.1 where it is left out."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise CommandError(f"--health {text!r}: expected HOST:PORT, such as 127.0.0.1:9000", ExitCode.USAGE)
    return host.strip("[]") or "127.0.0.1", int(port)


class HealthServer:
    """Answers until `close`; `address` is what it listens on (port 0 takes a free one)."""

    def __init__(self, address: tuple[str, int], look: Callable[[], Health]) -> None:
        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version = "jobkit", ""

            def do_GET(self) -> None:
                _answer(self, look, body=True)

            def do_HEAD(self) -> None:
                _answer(self, look, body=False)

            def log_message(self, format: str, *args: Any) -> None:
                """Probes come every second; they are no news."""

        try:
            self._server = ThreadingHTTPServer(address, Handler)
        except OSError as error:
            raise CommandError(f"--health {address[0]}:{address[1]}: {error.strerror or error}") from None
        self._server.daemon_threads = True
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        self._thread = threading.Thread(target=self._server.serve_forever, name="jobkit-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


def _answer(request: BaseHTTPRequestHandler, look: Callable[[], Health], *, body: bool) -> None:
    path = request.path.partition("?")[0].rstrip("/")
    health = look()
    fine = {"": health.live and health.ready, "/live": health.live, "/ready": health.ready}.get(path)
    found = {"live": health.live, "ready": health.ready, **health.facts}
    text = json.dumps(found if fine is not None else {"error": "try /live, /ready or /"}).encode()
    request.send_response(404 if fine is None else 200 if fine else 503)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(text)))
    request.send_header("Cache-Control", "no-store")
    request.end_headers()
    if body:
        request.wfile.write(text)
