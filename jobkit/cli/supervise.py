"""`jobkit run --processes N` and `--reload`: node processes under a supervisor.

Each child is `jobkit run` in a process group of its own; it says over a pipe when it is ready, and stops when the
supervisor is gone. Invariants: one signal stops all children gracefully, a second one at once; a child that dies is
started again with a growing pause; one that cannot ever start (configuration, schema) ends them all.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Final

from jobkit.cli.companion import READY, RECYCLE, SUPERVISED
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.health import Health, HealthServer

if TYPE_CHECKING:
    from jobkit.cli.session import Session

__all__ = ["Supervisor", "supervise"]

log = logging.getLogger("jobkit.supervisor")

HOPELESS: Final = frozenset({ExitCode.USAGE, ExitCode.CONFIG, ExitCode.SCHEMA})
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
SETTLED: Final = 60.0
"""Seconds after which a child that dies has earned the first pause again."""
TURN: Final = 0.2
KILL_AFTER: Final = 3.0


def supervise(
    session: Session, *, processes: int, reload: bool, drain: bool, health: tuple[str, int] | None
) -> int:
    """Run until a signal, or until all children are done; returns the exit code."""
    from jobkit.cli.reload import Changes, folders

    changes = Changes(folders(session.config)) if reload else None
    supervisor = Supervisor(child_command(sys.argv[1:]), processes, drain=drain, changes=changes)
    server = HealthServer(health, supervisor.look) if health is not None else None
    try:
        return supervisor.run()
    finally:
        if server is not None:
            server.close()


def child_command(arguments: Sequence[str]) -> list[str]:
    """The command line of a child: the supervisor's own, without what is the supervisor's business."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        name = argument.partition("=")[0]
        if skip:
            skip = False
        elif name in ("--processes", "--health"):
            skip = "=" not in argument
        elif name != "--reload":
            kept.append(argument)
    return [sys.executable, "-m", "jobkit", *kept]


@dataclass(slots=True)
class Child:
    """One place for a child process; `process` is None while it pauses before the next start."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    started: float = 0.0
    ready: bool = False
    recycling: bool = False
    finished: bool = False
    pause: float = FIRST_PAUSE
    start_at: float = 0.0
    said: bytes = field(default=b"", repr=False)

    def hear(self) -> None:
        """Read what the child said."""
        with contextlib.suppress(BlockingIOError, OSError):
            while found := os.read(self.pipe, 4096):
                self.said += found
        self.ready = READY in self.said
        self.recycling = RECYCLE in self.said

    def close(self) -> None:
        """Forget an ended process."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        if self.pipe >= 0:
            os.close(self.pipe)
        self.process, self.pipe, self.ready, self.said = None, -1, False, b""


class Supervisor:
    """Keeps `count` children of one command running."""

    def __init__(
        self, command: Sequence[str], count: int, *, drain: bool = False, changes: Iterator[str] | None = None
    ) -> None:
        self._command = list(command)
        self._children = [Child(number) for number in range(1, count + 1)]
        self._drain = drain
        self._changes = changes
        self._signals = 0
        self._code = 0
        self._told_ready = False
        self._kill_at: float | None = None

    # -- the loop

    def run(self) -> int:
        """Run until all children have ended for good."""
        with self._handling():
            while not all(child.finished for child in self._children):
                self._turn(time.monotonic())
        return self._code

    def _turn(self, now: float) -> None:
        self._wait()
        for child in self._children:
            if child.process is not None:
                child.hear()
                if child.process.poll() is not None:
                    self._ended(child, now)
            elif not child.finished and self._signals:
                child.finished = True
            elif not child.finished and now >= child.start_at:
                self._start(child, now)
        self._say_ready()
        self._look_for_changes(now)
        self._kill_late(now)

    def _wait(self) -> None:
        pipes = [child.pipe for child in self._children if child.pipe >= 0]
        with contextlib.suppress(InterruptedError, OSError, ValueError):
            ready, _, _ = select.select(pipes, [], [], TURN)
            if ready and not any(
                child.process is not None and child.process.poll() is None for child in self._children
            ):
                return
            if ready:
                time.sleep(0.01)

    def _start(self, child: Child, now: float) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        child.process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            env={**os.environ, SUPERVISED: f"{writing}:{child.number}"},
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)
        child.pipe, child.started, child.recycling = reading, now, False
        log.info("process %d: started as %d", child.number, child.process.pid)

    # -- children that end

    def _ended(self, child: Child, now: float) -> None:
        assert child.process is not None
        child.hear()
        code, recycled = child.process.returncode, child.recycling
        child.close()
        if self._signals or (self._drain and code == 0 and not recycled):
            child.finished = True
            self._code = self._code or _reported(code)
        elif code in HOPELESS:
            log.error("process %d cannot run (exit code %d); stopping all", child.number, code)
            child.finished, self._code = True, code
            self._stop_all(signal.SIGTERM)
        elif recycled or code == 0:
            log.info("process %d: ended with %d; replaced", child.number, code)
            child.start_at, child.pause = now, FIRST_PAUSE
        else:
            self._again(child, code, now)

    def _again(self, child: Child, code: int, now: float) -> None:
        if now - child.started > SETTLED:
            child.pause = FIRST_PAUSE
        log.warning(
            "process %d ended with %s; started again in %.0f s", child.number, _words(code), child.pause
        )
        child.start_at, child.pause = now + child.pause, min(child.pause * 2, LONGEST_PAUSE)

    # -- signals

    @contextlib.contextmanager
    def _handling(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signal(self, number: int, frame: FrameType | None) -> None:
        again = self._signals > 0
        self._stop_all(signal.SIGTERM)
        if again:
            self._code, self._kill_at = 128 + number, time.monotonic() + KILL_AFTER

    def _stop_all(self, number: int) -> None:
        """The first call lets children drain; each further one is their second signal."""
        self._signals += 1
        for child in self._children:
            self._send(child, number)

    def _send(self, child: Child, number: int) -> None:
        if child.process is not None and child.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(number)

    def _kill_late(self, now: float) -> None:
        if self._kill_at is not None and now > self._kill_at:
            for child in self._children:
                self._send(child, signal.SIGKILL)

    # -- the rest

    def _look_for_changes(self, now: float) -> None:
        changed = next(self._changes, "") if self._changes is not None and not self._signals else ""
        if changed:
            log.info("%s changed; restarting", changed)
            for child in self._children:
                child.start_at, child.pause = now, FIRST_PAUSE
                child.said += RECYCLE
                self._send(child, signal.SIGTERM)

    def _say_ready(self) -> None:
        ready = all(child.ready for child in self._children)
        if ready and not self._told_ready:
            log.info("all %d processes are ready", len(self._children))
        self._told_ready = ready

    def look(self) -> Health:
        """The children as probes see them: ready when all are."""
        running = [child for child in self._children if child.process is not None]
        facts = {
            "processes": len(self._children),
            "running": len(running),
            "ready": sum(child.ready for child in running),
            "pids": [child.process.pid for child in running if child.process is not None],
        }
        ready = all(child.ready for child in self._children) and not self._signals
        return Health(live=True, ready=ready, facts={"children": facts})


def _reported(code: int) -> int:
    """What the supervisor's own exit code says of a child's."""
    return 0 if code in (0, ExitCode.TERMINATED, ExitCode.INTERRUPTED, -signal.SIGTERM) else abs(code)


def _words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
