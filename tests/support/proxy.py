"""A TCP proxy that breaks connections in the ways networks do.

It can swallow everything while keeping the lines open (the kernel goes on acknowledging, so nothing but silence
tells), delay, cut all lines, refuse new ones, or let one request through and cut the line before its reply.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from dataclasses import dataclass, field

CHUNK = 65_536


@dataclass(eq=False)
class _Line:
    """One connection through the proxy."""

    client: socket.socket
    server: socket.socket
    silent: bool = False
    doomed: bool = False
    """Its next bytes from the server are dropped, and the line with them."""
    said: bytes = field(default=b"", repr=False)

    def close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                end.close()


class Proxy:
    """Listens on a loopback port and passes on to `target`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._lines: list[_Line] = []
        self._lock = threading.Lock()
        self._closed = False
        self._needle: bytes | None = None
        self.delay = 0.0
        """Seconds by which each chunk is late."""
        self.refusing = False
        """New connections are closed at once."""
        self.swallowing = False
        """New connections are silent, too."""
        self.cuts = 0
        """How many lines were cut before a reply."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what a test does to it

    def swallow(self, *, new: bool = False) -> int:
        """From now on the lines that are open stay silent for ever (`new`: and those to come); returns how many."""
        with self._lock:
            self.swallowing = new
            open_lines = [line for line in self._lines if not line.silent]
            for line in open_lines:
                line.silent = True
        return len(open_lines)

    def heal(self) -> None:
        """New lines work again; silent ones stay so."""
        self.swallowing = self.refusing = False

    def cut(self) -> int:
        """Cut all lines; returns how many."""
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            line.close()
        return len(lines)

    def cut_before_reply(self, needle: bytes) -> None:
        """The next request that contains these bytes reaches the server, its reply is lost with the line."""
        self._needle = needle

    @property
    def working(self) -> int:
        """How many lines are open and not silent."""
        return sum(not line.silent for line in self._lines)

    def close(self) -> None:
        """End everything."""
        self._closed = True
        self._listener.close()
        self.cut()

    # -- its threads

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            line = _Line(client, server, silent=self.swallowing)
            with self._lock:
                self._lines.append(line)
            threading.Thread(target=self._serve, args=(line,), name="proxy-line", daemon=True).start()

    def _serve(self, line: _Line) -> None:
        try:
            while self._pass_on(line):
                pass
        except (OSError, ValueError):
            pass
        finally:
            line.close()
            with self._lock:
                if line in self._lines:
                    self._lines.remove(line)

    def _pass_on(self, line: _Line) -> bool:
        readable, _, _ = select.select([line.client, line.server], [], [], 1.0)
        for end in readable:
            data = end.recv(CHUNK)
            if line.silent:
                if not data:
                    return False  # the client has given up; what the server still holds is closed with it
                continue
            if not data:
                return False
            if self.delay:
                time.sleep(self.delay)
            if end is line.client:
                self._listen_in(line, data)
                line.server.sendall(data)
            elif line.doomed:
                self.cuts += 1
                return False
            else:
                line.client.sendall(data)
        return True

    def _listen_in(self, line: _Line, data: bytes) -> None:
        needle = self._needle
        line.said = (line.said + data)[-CHUNK:]
        if needle is not None and needle in line.said:
            self._needle, line.doomed = None, True
        if data.endswith(b"S\x00\x00\x00\x04"):  # Sync: a request ends
            line.said = b""
