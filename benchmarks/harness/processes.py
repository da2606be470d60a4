"""The processes of one measurement: the peer's agent and the peer's workers, each in a session of its own."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from benchmarks.harness.usage import Usage


class MeasurementFailed(Exception):
    """A peer did not do its work; the run goes on without this measurement."""


@dataclass(slots=True)
class Agent:
    """`benchmarks.peers.serve` in the peer's environment."""

    python: Path
    module: str
    environment: Mapping[str, str]
    directory: Path
    process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [str(self.python), "-m", "benchmarks.peers.serve", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.directory / "agent.log").open("w"),
            env=self.environment,
            cwd=self.directory,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        end(self.process, patience=3.0)
        self.process.stdout.close()

    def call(self, name: str, *, timeout: float = 300.0, **arguments: object) -> object:
        """Have the adapter do something and wait for the result.

        Raises `MeasurementFailed` when it reports an error, ends, or takes longer than `timeout` seconds.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"call": name, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise MeasurementFailed(f"the agent ended: {self._log()}") from None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout):
                raise MeasurementFailed(f"{name} took longer than {timeout:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise MeasurementFailed(f"the agent ended during {name}: {self._log()}")
        answer = json.loads(line)
        if "error" in answer:
            raise MeasurementFailed(f"{name}: {answer['error']}")
        return answer["result"]

    def _log(self) -> str:
        return (self.directory / "agent.log").read_text()[-2000:]


@dataclass(slots=True)
class Workers:
    """The running worker commands of a peer."""

    commands: Sequence[Sequence[str]]
    environment: Mapping[str, str]
    directory: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        for index, command in enumerate(self.commands):
            log = (self.directory / f"worker-{index}.log").open("wb")
            started = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.directory,
                start_new_session=True,
            )
            log.close()
            self.processes.append(started)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for process in self.processes:
            signal_session(process.pid, signal.SIGTERM)
        for process in self.processes:
            end(process, patience=2.0)

    def usage(self) -> Usage:
        return Usage.of(psutil.Process(process.pid) for process in self.processes if process.poll() is None)

    def check(self) -> None:
        """Raises `MeasurementFailed` with the end of its log when a worker has ended."""
        for index, process in enumerate(self.processes):
            if process.poll() is not None:
                log = (self.directory / f"worker-{index}.log").read_text(errors="replace")[-2000:]
                raise MeasurementFailed(f"a worker ended with {process.returncode}: {log}")


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes], patience: float) -> None:
    """Wait for a process, then kill what is left of its session."""
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        pass
    signal_session(process.pid, signal.SIGKILL)
    process.wait()


def signal_session(pid: int, number: int) -> None:
    """Signal a session that this run started; it may be gone already."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
