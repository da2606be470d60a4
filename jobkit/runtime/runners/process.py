"""The process runner: a pool of children that can be killed.

Children are fresh interpreters, never forks. Each has one thread here that starts it, speaks JSON lines with it over
pipes, and reaps it. Invariant: a child runs one job at a time, and its death is that job's failure and nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Final

from jobkit.outcomes import outcome_from_json
from jobkit.runtime.failures import Failure, describe
from jobkit.runtime.logs import log
from jobkit.runtime.runners import RunnerHost
from jobkit.runtime.runs import Why

if TYPE_CHECKING:
    from jobkit.config import ProcessConfig
    from jobkit.runtime.runs import Run

__all__ = ["ProcessRunner", "hello"]

START: Final = 60.0
"""Seconds that a child has to import everything and open its lifespans."""
LEAVE: Final = 2.0
"""Seconds that an idle child has to close its lifespans before it is killed."""
COMMAND: Final = ("-m", "jobkit.runtime.runners.child")

Post = Callable[..., None]


class ProcessRunner:
    """Runs `runner="process"` workers. `start`, `stop` and `nudge` belong to the event loop."""

    def __init__(
        self,
        host: RunnerHost,
        loop: asyncio.AbstractEventLoop,
        config: ProcessConfig,
        greeting: Mapping[str, object],
    ) -> None:
        self._host = host
        self._loop = loop
        self._config = config
        self._greeting = greeting
        self._waiting: deque[Run] = deque()
        self._children: list[Child] = []
        self._idle: list[Child] = []
        self._closed = False

    def start(self, run: Run) -> None:
        """See JobRunner. The run waits where all children are busy; its timeout begins with its child."""
        self._waiting.append(run)
        self._assign()

    def stop(self, run: Run) -> None:
        """Kill the child; a run that still waits ends at once."""
        if isinstance(run.handle, Child):
            run.handle.kill()
        elif run in self._waiting:
            self._waiting.remove(run)
            self._host.ended(run, asyncio.CancelledError("told to end before it began"))

    def nudge(self, run: Run) -> None:
        """See JobRunner."""
        if isinstance(run.handle, Child):
            run.handle.tell({"stop": True})

    def close(self) -> None:
        """Idle children leave, busy ones are killed."""
        self._closed = True
        for child in self._children:
            if child in self._idle:
                child.dismiss()
            else:
                child.kill()

    def join(self, timeout: float) -> None:
        """Wait until the children have closed their lifespans and were reaped."""
        deadline = time.monotonic() + timeout
        for child in list(self._children):
            child.join(deadline - time.monotonic())

    @property
    def pids(self) -> list[int]:
        """The processes of the pool."""
        return [child.pid for child in self._children if child.pid]

    def _assign(self) -> None:
        """Give waiting runs to idle children, and start children while runs would wait."""
        while self._waiting and self._idle:
            run = self._waiting.popleft()
            if self._host.begin(run):
                child = self._idle.pop()
                run.handle = child
                child.assign(run)
        starting = sum(1 for child in self._children if not child.ready)
        while (
            len(self._waiting) > starting and len(self._children) < self._config.children and not self._closed
        ):
            child = Child(self._greeting, self._post, ready=self._ready, ended=self._ended, gone=self._gone)
            self._children.append(child)
            child.start()
            starting += 1

    def _post(self, fn: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the node has ended
            self._loop.call_soon_threadsafe(fn, *args)

    def _ready(self, child: Child) -> None:
        child.ready = True
        self._idle.append(child)
        if self._closed:
            child.dismiss()
        self._assign()

    def _ended(self, child: Child, run: Run, result: BaseException) -> None:
        run.handle = None
        if child.alive and not child.worn_out(self._config):
            self._idle.append(child)
            if self._closed:
                child.dismiss()
        else:
            child.dismiss()
        self._host.ended(run, result)
        self._assign()

    def _gone(self, child: Child, failure: str) -> None:
        """The process has ended and was reaped. One that never got ready fails the run that waits longest."""
        if child in self._children:
            self._children.remove(child)
        if child in self._idle:
            self._idle.remove(child)
        if not child.ready and not self._closed:
            log.error("a child process could not start: %s", failure.partition("\n")[0])
            if self._waiting:
                run = self._waiting.popleft()
                if self._host.begin(run):
                    self._host.ended(run, Failure(failure))
        self._assign()


class Child:
    """One child and the thread that speaks with it."""

    def __init__(
        self,
        greeting: Mapping[str, object],
        post: Post,
        *,
        ready: Callable[[Child], None],
        ended: Callable[[Child, Run, BaseException], None],
        gone: Callable[[Child, str], None],
    ) -> None:
        self._greeting = greeting
        self._post = post
        self._on_ready = ready
        self._on_ended = ended
        self._on_gone = gone
        self._inbox: SimpleQueue[Run | None] = SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._write_lock = threading.Lock()
        self._killed = False
        self._thread = threading.Thread(target=self._main, name="jobkit-child", daemon=True)
        self.ready = False
        self.alive = True
        self.jobs = 0
        self.memory = 0

    # -- the loop's side

    def start(self) -> None:
        """Start the thread, which starts the process."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the thread, which outlives the process."""
        self._thread.join(max(timeout, 0.0))

    def assign(self, run: Run) -> None:
        """Run this job; only while idle."""
        self._inbox.put(run)

    def dismiss(self) -> None:
        """Leave after the job that runs, closing lifespans."""
        self._inbox.put(None)

    def kill(self) -> None:
        """End the process now, and whatever it has started."""
        self._killed = True
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def tell(self, message: Mapping[str, object]) -> None:
        """Send a line; a child that is gone is not told."""
        with contextlib.suppress(OSError, ValueError), self._write_lock:
            stdin = self._stdin()
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()

    def worn_out(self, config: ProcessConfig) -> bool:
        """True where the child has run enough jobs or holds too much memory."""
        if config.max_jobs is not None and self.jobs >= config.max_jobs:
            return True
        return config.max_memory is not None and self.memory > config.max_memory

    @property
    def pid(self) -> int:
        """The process's id; 0 before it starts."""
        return self._process.pid if self._process is not None else 0

    # -- the thread's side

    def _main(self) -> None:
        failure = ""
        try:
            failure = self._begin()
            if not failure:
                self._post(self._on_ready, self)
                self._serve()
        except Exception as exc:  # noqa: BLE001 - the thread answers for its child, whatever happens
            failure = describe(exc)
        finally:
            self.alive = False
            self._reap()
            self._post(self._on_gone, self, failure)

    def _begin(self) -> str:
        """Start the process; returns why it is not ready, or an empty text."""
        self._process = subprocess.Popen(
            [sys.executable, *COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is the node's to answer
            close_fds=True,
        )
        if self._killed:
            self.kill()
        self.tell(self._greeting)
        watchdog = threading.Timer(START, self.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            answer = self._read()
        finally:
            watchdog.cancel()
        if answer is None:
            return f"ChildProcessError: {self._ending()} before it was ready"
        return "" if answer.get("ready") else str(answer.get("failed", "the child is not ready"))

    def _serve(self) -> None:
        while (run := self._inbox.get()) is not None:
            self.jobs += 1
            result = self._one(run)
            self._post(self._on_ended, self, run, result)
            del run, result
            if not self.alive:
                return

    def _one(self, run: Run) -> BaseException:
        self.tell(_assignment(run))
        answer = self._read()
        if answer is None:
            self.alive = False
            return Failure(f"ChildProcessError: {self._ending()}", "ChildProcessError")
        memory = answer.get("memory", 0)
        self.memory = memory if isinstance(memory, int) else 0
        outcome = answer.get("outcome")
        if isinstance(outcome, dict):
            return outcome_from_json(outcome)
        if answer.get("cancelled") and run.why is Why.SHUTDOWN:
            return asyncio.CancelledError()
        return Failure(str(answer.get("error", "")), str(answer.get("kind", "")))

    def _read(self) -> dict[str, object] | None:
        """The next message; None where the child has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def _ending(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "process closed its pipe"
        return f"process ended: signal {-code}" if code < 0 else f"process ended: exit code {code}"

    def _reap(self) -> None:
        """Let an idle child close its lifespans, end any other, and leave no zombie."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._stdin().close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE)
        self.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _stdin(self) -> IO[bytes]:
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin


def _assignment(run: Run) -> dict[str, object]:
    claimed, config = run.claimed, type(run.worker).__jobkit__
    text = {name: _text(getattr(claimed, name)) for name in ("args", "meta", "tags")}
    times = {
        name: getattr(claimed, name).isoformat() for name in ("inserted_at", "scheduled_at", "attempted_at")
    }
    numbers = {name: getattr(claimed, name) for name in ("id", "attempt", "max_attempts", "priority")}
    names = {"worker": claimed.worker, "queue": claimed.queue, "node": claimed.node}
    return {
        "job": {**numbers, **names, **text, **times},
        "module": config.module,
        "qualname": config.qualname,
        "stop": run.flag.up,
    }


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8")


def hello(config: Mapping[str, object], app: str | None, plugins: list[str]) -> dict[str, object]:
    """The first message: the configuration, how to find the app or its parts, and where modules are looked for."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    path = getattr(main, "__file__", None)
    root = logging.getLogger()
    return {
        "config": dict(config),
        "app": app,
        "plugins": plugins,
        "sys_path": [os.path.abspath(entry) if entry == "" else entry for entry in sys.path],
        "main_name": spec.name if spec is not None else None,
        "main_path": os.path.abspath(path) if path and spec is None else None,
        "log_level": root.level if root.handlers else None,
    }
