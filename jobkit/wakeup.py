"""The waker: tells producers, here and elsewhere, that there may be work.

A wake-up is only a hint; polling is the guarantee. Invariant: nobody is woken for rows of a transaction that
has not committed, and nothing is ever sent inside a caller's transaction unless `notify = "in_statement"`
asks for it.

An insert in a transaction of jobkit's own notifies by itself, but one in `SPACING` at most: to notify takes a lock
that makes commits wait for each other. What comes in between is sent by a thread, as one. For callers'
transactions the thread waits for their end, looks for the row on a connection of its own, and wakes once it
sees it. It is made at first use, one a process, and again after a fork.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine

from jobkit._commits import Commit, Transactions
from jobkit._forks import in_children
from jobkit.clock import Clock
from jobkit.config import Config
from jobkit.events import Event, WakeFailed, WakeSent
from jobkit.storage.base import Storage
from jobkit.storage.kept import kept_connections
from jobkit.storage.notices import Notices, notify, payload_of
from jobkit.storage.schema import Tables

__all__ = ["Waker", "channel_of", "waker_of"]

log = logging.getLogger("jobkit.wakeup")

SPACING: Final = 0.004
"""Seconds between two notifications of a busy process: what comes in between is sent as one."""
GRACE: Final = 0.001
"""Seconds that the thread leaves to the next insert, which may send it for nothing."""
EXIT_FLUSH: Final = 0.2
"""Seconds that all wakers together have when the interpreter ends."""
LOOK_AROUND: Final = 30.0
"""Seconds after which an idle thread looks whether its app is still there."""

T = TypeVar("T")
Subscriber = Callable[[frozenset[str]], None]


class WakerHost(Protocol):
    """What the waker needs to be given; `Core` has it."""

    @property
    def config(self) -> Config: ...
    @property
    def dialect(self) -> str: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def tables(self) -> Tables: ...
    @property
    def storage(self) -> Storage: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def heard(self) -> bool: ...
    def emit(self, event: Event) -> None: ...
    def redact_error(self, text: str, worker: str | None) -> str: ...
    def once(self, key: Hashable, make: Callable[[], T]) -> T: ...


def channel_of(config: Config) -> str:
    """The name of the Postgres channel that nodes of this schema and prefix listen on."""
    return f"{config.schema + '.' if config.schema else ''}{config.table_prefix}wake"[-63:]


def waker_of(host: WakerHost) -> Waker:
    """The one waker of a core."""
    return host.once("waker", lambda: Waker(host))


class Waker:
    """Wakes local producers directly and those of other processes by one coalesced notification."""

    def __init__(self, host: WakerHost) -> None:
        self._host_ref = weakref.ref(host)
        self._transactions = Transactions(self)
        self._start_over()
        in_children(self, Waker._start_over)

    def _start_over(self) -> None:
        """Nothing of a parent process is taken over: neither its thread and connection nor its node."""
        self._subscribers: tuple[Subscriber, ...] = ()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        self._commits: list[Commit] = []
        self._send_at = 0.0
        self._outbox: set[str] = set()
        self._idle = True
        self._wakes_at = 0.0
        self._thread: threading.Thread | None = None
        self._failures = 0

    # -- what others call

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with the names of queues that may have work, from any thread; returns the way
        back.
        """
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(s for s in self._subscribers if s is not subscriber)

        return unsubscribe

    @contextmanager
    def along(self, queue: str) -> Iterator[str | None]:
        """The channel that the body's own statement is to notify of `queue`; None where others did just now.

        What waits to be sent for this queue goes with it, unless the body fails.
        """
        with self._lock:
            now = time.monotonic()
            sends = self._sends_along(now)
            waited = sends and queue in self._outbox
            if sends:
                self._send_at = max(self._send_at, now + SPACING)
                self._outbox.discard(queue)
        try:
            yield channel_of(self._host.config) if sends else None
        except BaseException:
            if waited:
                self._send_soon({queue})
            raise

    def wake(self, queues: Iterable[str], *, told: bool = False) -> None:
        """There is committed work in these queues; `told`: other processes know."""
        names = frozenset(queues)
        if not names:
            return
        self._tell_here(names)
        if told or not self._notifies:
            self._sent(names, notified=told)
        else:
            self._send_soon(names)

    def joined(self, conn: Connection, rows: Iterable[tuple[int, str]]) -> None:
        """Rows were inserted into the caller's open transaction on `conn`: wake once it has committed."""
        if self._subscribers or self._notifies:
            self._transactions.inserted(conn, rows)

    def notify_inside(self, conn: Connection, queues: Iterable[str]) -> None:
        """`notify = "in_statement"`: send with the caller's own transaction; Postgres delivers it at the
        commit.
        """
        if conn.dialect.name == "postgresql":
            notify(conn, channel_of(self._host.config), payload_of(queues))

    def flush(self, timeout: float) -> bool:
        """Wait until everything known so far was sent; False where that took longer than `timeout`
        seconds.
        """
        with self._settled:
            return self._settled.wait_for(
                lambda: self._idle and not self._commits and not self._outbox, timeout
            )

    def close(self) -> None:
        """End the thread and its connection; a later wake-up starts another one."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def committing(self, commit: Commit) -> None:
        """A caller's transaction is about to commit."""
        with self._lock:
            self._commits.append(commit)
            self._ensure_thread(commit.due)

    # -- what is sent, and when

    @property
    def _host(self) -> WakerHost:
        if (host := self._host_ref()) is None:
            raise ReferenceError("the app of this waker is gone")
        return host

    @property
    def _notifies(self) -> bool:
        host = self._host
        return host.config.notify == "after_commit" and host.dialect == "postgresql"

    def _sends_along(self, now: float) -> bool:
        host = self._host
        if host.dialect != "postgresql" or host.config.notify == "off":
            return False
        return host.config.notify == "in_statement" or now >= self._send_at

    def _tell_here(self, queues: frozenset[str]) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(queues)
            except Exception:
                log.exception("a subscriber to wake-ups failed")

    def _send_soon(self, queues: Iterable[str]) -> None:
        with self._lock:
            self._outbox.update(queues)
            self._ensure_thread(self._send_at + GRACE)

    def _ensure_thread(self, due: float) -> None:
        """Under the lock: the thread has something to do at `due`. It is not disturbed where it wakes before."""
        self._idle = False
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="jobkit-waker", daemon=True)
            self._thread.start()
            _started.add(self)
        elif due < self._wakes_at:
            self._changed.notify()

    # -- the thread

    def _run(self) -> None:
        while self._wait():
            self._round()

    def _wait(self) -> bool:
        """Sleep until something is due; False where the waker was closed, or its app is gone."""
        me = threading.current_thread()
        with self._lock:
            while self._thread is me and self._host_ref() is not None:
                now = time.monotonic()
                due = self._next_due()
                if due <= now:
                    return True
                if due == math.inf:
                    self._settle()
                self._wakes_at = min(due, now + LOOK_AROUND)
                self._changed.wait(self._wakes_at - now)
                self._wakes_at = 0.0
            if self._thread is None or self._thread is me:
                self._settle()
            return False

    def _settle(self) -> None:
        self._idle = True
        self._settled.notify_all()

    def _next_due(self) -> float:
        """When the next look or the next notification is due; infinity where there is neither."""
        moments = [commit.due for commit in self._commits]
        if self._outbox:
            moments.append(self._send_at + GRACE)
        return min(moments, default=math.inf)

    def _round(self) -> None:
        now = time.monotonic()
        with self._lock:
            due = [commit for commit in self._commits if commit.due <= now]
            self._commits = [commit for commit in self._commits if commit.due > now]
        ended = [commit for commit in due if commit.ended or not commit.looks]
        self._look_again([commit for commit in due if commit not in ended], now)
        sends = bool(self._outbox) and now >= self._send_at
        if not ended and not sends:
            return
        try:
            with kept_connections(self._host).borrowed() as conn:
                if ended:
                    self._confirm(conn, ended, now)
                if now >= self._send_at:
                    self._send(conn)
            self._failures = 0
        except Exception as error:  # noqa: BLE001 - a hint may fail in any way
            self._failed(error)
            self._look_again(ended, now, until=self._send_at)

    def _look_again(self, commits: Iterable[Commit], now: float, *, until: float = 0.0) -> None:
        with self._lock:
            self._commits.extend(commit for commit in commits if commit.postpone(now, until=until))

    def _confirm(self, conn: Connection, commits: list[Commit], now: float) -> None:
        """Wake for those whose row is visible by now; the others are looked for again, for a while."""
        told = self._notifies and now >= self._send_at
        if told:
            seen = self._notices.confirm(conn, {c.last: payload_of(c.queues) for c in commits})
        else:
            seen = self._host.storage.visible(conn, [commit.last for commit in commits])
        self._look_again([commit for commit in commits if commit.last not in seen], now)
        visible = [commit.queues for commit in commits if commit.last in seen]
        for queues in visible:
            self._tell_here(queues)
        if woken := frozenset[str]().union(*visible):
            self._confirmed(woken, told=told)

    def _confirmed(self, queues: frozenset[str], *, told: bool) -> None:
        if told:
            self._send_at = time.monotonic() + SPACING
        elif self._notifies:
            with self._lock:
                self._outbox |= queues
            return
        self._sent(queues, notified=told)

    def _send(self, conn: Connection) -> None:
        with self._lock:
            queues, self._outbox = frozenset(self._outbox), set()
        if queues:
            try:
                self._notices.send(conn, queues)
            except Exception:
                with self._lock:
                    self._outbox |= queues
                raise
            self._send_at = time.monotonic() + SPACING
            self._sent(queues, notified=True)

    @property
    def _notices(self) -> Notices:
        host = self._host
        return host.once("notices", lambda: Notices(host.tables, channel_of(host.config)))

    def _sent(self, queues: frozenset[str], *, notified: bool) -> None:
        host = self._host
        if host.heard:
            host.emit(WakeSent(at=host.clock.now(), queues=tuple(sorted(queues)), notified=notified))

    def _failed(self, error: Exception) -> None:
        """A hint was lost; nodes find the work by polling. One line an outage, and no busy loop."""
        self._failures += 1
        self._send_at = time.monotonic() + min(0.05 * 2 ** min(self._failures, 7), 5.0)
        host = self._host_ref()
        if host is None:
            return
        text = host.redact_error(next(iter(str(error).splitlines()), "") or type(error).__name__, None)
        if self._failures == 1:
            log.warning("wake-ups are not being sent: %s", text)
        host.emit(WakeFailed(at=host.clock.now(), error=text))


_started: Final[weakref.WeakSet[Waker]] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    """When the interpreter ends, what was enqueued last is still told of."""
    end = time.monotonic() + EXIT_FLUSH
    for waker in list(_started):
        waker.flush(end - time.monotonic())
