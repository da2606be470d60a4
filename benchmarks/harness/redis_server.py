"""A Redis of the run's own, without a log and without snapshots: as fast as it goes, and not durable."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import psutil
import redis

from benchmarks.harness.postgres import free_port
from benchmarks.harness.usage import Usage


class RedisServer:
    """A running server; use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "redis"
        self.port = free_port()
        self.client = redis.Redis(port=self.port)

    @staticmethod
    def found() -> bool:
        return shutil.which("redis-server") is not None

    def __enter__(self) -> Self:
        self.directory.mkdir()
        command = [
            "redis-server",
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self.process = subprocess.Popen(command, cwd=self.directory, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                self.version = str(self._info("server")["redis_version"])
                break
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def commands(self) -> int:
        """Commands processed since the start."""
        return int(str(self._info("stats")["total_commands_processed"]))

    def _info(self, section: str) -> dict[str, object]:
        return cast("dict[str, object]", self.client.info(section))

    def usage(self) -> Usage:
        return Usage.of([psutil.Process(self.process.pid)])
