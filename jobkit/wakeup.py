"""The waker: tells producers, here and elsewhere, that there may be work.

A wake-up is only a hint; polling is the guarantee. Invariant: nobody is woken for rows of a transaction that
has not committed, and nothing is ever sent inside a caller's transaction unless `notify = "in_statement"`
asks for it.

SQLAlchemy's commit event fires before the database commits, and also where the commit then fails, so it is
taken as the moment to begin asking: a thread looks for the row on a connection of its own and wakes once it
sees it. The thread is made at first use, one a process, and again after a fork.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine, event, text

from jobkit._forks import in_children
from jobkit.clock import Clock
from jobkit.config import Config
from jobkit.events import Event, WakeFailed, WakeSent
from jobkit.storage.base import Storage
from jobkit.storage.engine import node_connection
from jobkit.storage.kept import KeptConnection

__all__ = ["Waker", "channel_of", "waker_of"]

log = logging.getLogger("jobkit.wakeup")

SPACING: Final = 0.004
"""Seconds between two notifications of a busy process: what comes in between is sent as one."""
PAUSES: Final = (0.0, 0.0003, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
"""How long the thread waits between looks at one transaction's row, 2 s in all; then polling has to find
it.
"""
MAX_PAYLOAD: Final = 7_000
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
    def engine(self) -> Engine: ...
    @property
    def storage(self) -> Storage: ...
    @property
    def clock(self) -> Clock: ...
    def emit(self, event: Event) -> None: ...
    def redact_error(self, text: str, worker: str | None) -> str: ...
    def once(self, key: Hashable, make: Callable[[], T]) -> T: ...


def channel_of(config: Config) -> str:
    """The name of the Postgres channel that nodes of this schema and prefix listen on."""
    return f"{config.schema + '.' if config.schema else ''}{config.table_prefix}wake"[-63:]


def waker_of(host: WakerHost) -> Waker:
    """The one waker of a core."""
    return host.once("waker", lambda: Waker(host))


@dataclass(slots=True)
class _Items:
    """What one open transaction of a caller has inserted."""

    rows: list[tuple[int, str]] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)

    def cut_to(self, savepoint: str) -> None:
        """Forget what came after the savepoint; one older than the first row has no mark."""
        del self.rows[self.marks.get(savepoint, 0) :]


@dataclass(slots=True)
class _Unconfirmed:
    """A transaction that is about to commit, or has: `last` is the id whose row proves it."""

    last: int
    queues: frozenset[str]
    looks: int = 0
    due: float = 0.0


class Waker:
    """Wakes local producers directly and those of other processes by one coalesced notification."""

    def __init__(self, host: WakerHost) -> None:
        self._host_ref = weakref.ref(host)
        self._open: weakref.WeakKeyDictionary[Connection, _Items] = weakref.WeakKeyDictionary()
        self._start_over()
        in_children(self, Waker._start_over)

    def _start_over(self) -> None:
        """Nothing of a parent process is taken over: neither its thread and connection nor its node."""
        self._subscribers: tuple[Subscriber, ...] = ()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._todo: list[_Unconfirmed] = []
        self._send_at = 0.0
        self._outbox: set[str] = set()
        self._idle = True
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

    def wake(self, queues: Iterable[str]) -> None:
        """There is committed work in these queues."""
        names = frozenset(queues)
        if not names:
            return
        self._tell_here(names)
        if not self._notifies:
            self._sent(names, notified=False)
            return
        with self._changed:
            self._outbox |= names
            self._ensure_thread()
            self._changed.notify()

    def joined(self, conn: Connection, rows: Iterable[tuple[int, str]]) -> None:
        """Rows were inserted into the caller's open transaction on `conn`: wake once it has committed."""
        if not self._subscribers and not self._notifies:
            return
        _watch(conn.engine, self)
        items = self._open.get(conn)
        if items is None:
            items = self._open[conn] = _Items()
        items.rows.extend(rows)

    def notify_inside(self, conn: Connection, queues: Iterable[str]) -> None:
        """`notify = "in_statement"`: send with the caller's own transaction; Postgres delivers it at the
        commit.
        """
        if conn.dialect.name == "postgresql":
            _notify(conn, channel_of(self._host.config), queues)

    def flush(self, timeout: float) -> bool:
        """Wait until everything known so far was sent; False where that took longer than `timeout`
        seconds.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._idle and not self._todo and not self._outbox, timeout)

    def close(self) -> None:
        """End the thread and its connection; a later wake-up starts another one."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    # -- events of callers' transactions

    def committing(self, conn: Connection) -> None:
        """The transaction on `conn` is about to commit."""
        items = self._open.pop(conn, None)
        if items is None or not items.rows:
            return
        last = max(id for id, _ in items.rows)
        with self._changed:
            self._todo.append(_Unconfirmed(last, frozenset(queue for _, queue in items.rows)))
            self._ensure_thread()
            self._changed.notify()

    def rolled_back(self, conn: Connection) -> None:
        """The transaction on `conn` was rolled back."""
        self._open.pop(conn, None)

    def savepoint(self, conn: Connection, name: str) -> None:
        """A savepoint begins on `conn`."""
        if items := self._open.get(conn):
            items.marks[name] = len(items.rows)

    def rolled_back_to(self, conn: Connection, name: str) -> None:
        """The transaction on `conn` went back to a savepoint."""
        if items := self._open.get(conn):
            items.cut_to(name)

    # -- the thread

    @property
    def _host(self) -> WakerHost:
        if (host := self._host_ref()) is None:
            raise ReferenceError("the app of this waker is gone")
        return host

    @property
    def _notifies(self) -> bool:
        return self._host.config.notify == "after_commit" and self._host.engine.dialect.name == "postgresql"

    def _tell_here(self, queues: frozenset[str]) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(queues)
            except Exception:
                log.exception("a subscriber to wake-ups failed")

    def _ensure_thread(self) -> None:
        self._idle = False
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="jobkit-waker", daemon=True)
            self._thread.start()
            _started.add(self)

    def _run(self) -> None:
        line = KeptConnection(lambda: node_connection(self._host.engine, autocommit=True))
        try:
            while self._wait():
                self._round(line)
        finally:
            line.drop()

    def _wait(self) -> bool:
        """Sleep until something is due; False where the waker was closed, or its app is gone."""
        me = threading.current_thread()
        with self._changed:
            while self._thread is me and self._host_ref() is not None:
                delay = self._delay()
                if delay is not None and delay <= 0:
                    return True
                if delay is None:
                    self._idle = True
                    self._changed.notify_all()
                self._changed.wait(LOOK_AROUND if delay is None else delay)
            if self._thread is None or self._thread is me:
                self._idle = True
                self._changed.notify_all()
            return False

    def _delay(self) -> float | None:
        """Seconds until the next look or the next notification; None where there is neither."""
        moments = [u.due for u in self._todo]
        if self._outbox:
            moments.append(self._send_at)
        return min(moments) - time.monotonic() if moments else None

    def _round(self, line: KeptConnection) -> None:
        now = time.monotonic()
        with self._lock:
            due = [u for u in self._todo if u.due <= now]
            self._todo = [u for u in self._todo if u.due > now]
        try:
            if due:
                self._confirm(line, due, now)
            if now >= self._send_at:
                self._send(line)
        except Exception as error:  # noqa: BLE001 - a hint may fail in any way
            line.drop()
            self._failed(error)

    def _confirm(self, line: KeptConnection, due: list[_Unconfirmed], now: float) -> None:
        """Wake for those whose row is visible by now; the others are looked for again, a bounded number of
        times.
        """
        seen = self._host.storage.visible(line.get(), [u.last for u in due])
        self._failures = 0
        for u in due:
            if u.last in seen:
                self._tell_here(u.queues)
        woken = frozenset[str]().union(*(u.queues for u in due if u.last in seen))
        unseen = [u for u in due if u.last not in seen and u.looks + 1 < len(PAUSES)]
        for u in unseen:
            u.looks += 1
            u.due = now + PAUSES[u.looks]
        with self._lock:
            self._todo.extend(unseen)
            if self._notifies:
                self._outbox |= woken
        if woken and not self._notifies:
            self._sent(woken, notified=False)

    def _send(self, line: KeptConnection) -> None:
        with self._lock:
            queues, self._outbox = frozenset(self._outbox), set()
        if queues:
            try:
                _notify(line.get(), channel_of(self._host.config), queues)
            except Exception:
                with self._lock:
                    self._outbox |= queues
                raise
            self._failures = 0
            self._send_at = time.monotonic() + SPACING
            self._sent(queues, notified=True)

    def _sent(self, queues: frozenset[str], *, notified: bool) -> None:
        host = self._host
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


def _notify(conn: Connection, channel: str, queues: Iterable[str]) -> None:
    payload = ",".join(sorted(queues))
    if len(payload) > MAX_PAYLOAD:
        payload = "*"
    conn.execute(_NOTIFY, {"channel": channel, "payload": payload})


_NOTIFY = text("SELECT pg_notify(:channel, :payload)")


_started: Final[weakref.WeakSet[Waker]] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    """When the interpreter ends, what was enqueued last is still told of."""
    end = time.monotonic() + EXIT_FLUSH
    for waker in list(_started):
        waker.flush(end - time.monotonic())


# Listeners stand on the caller's engine once, not on each connection: that also covers connections already
# open, and costs nothing for transactions that insert no job.
_watched: Final[weakref.WeakKeyDictionary[Engine, weakref.WeakSet[Waker]]] = weakref.WeakKeyDictionary()


def _watch(engine: Engine, waker: Waker) -> None:
    wakers = _watched.get(engine)
    if wakers is None:
        made: weakref.WeakSet[Waker] = weakref.WeakSet()
        _listen(engine, made)
        wakers = _watched.setdefault(
            engine, made
        )  # where two come at once, one pair of ears stays without a waker
    wakers.add(waker)


def _listen(engine: Engine, wakers: weakref.WeakSet[Waker]) -> None:
    def committing(conn: Connection, *_: object) -> None:
        for waker in list(wakers):
            waker.committing(conn)

    def rolled_back(conn: Connection, *_: object) -> None:
        for waker in list(wakers):
            waker.rolled_back(conn)

    def savepoint(conn: Connection, name: str) -> None:
        for waker in list(wakers):
            waker.savepoint(conn, name)

    def rolled_back_to(conn: Connection, name: str, _context: object) -> None:
        for waker in list(wakers):
            waker.rolled_back_to(conn, name)

    event.listen(engine, "commit", committing)
    event.listen(engine, "commit_twophase", committing)
    event.listen(engine, "rollback", rolled_back)
    event.listen(engine, "rollback_twophase", rolled_back)
    event.listen(engine, "savepoint", savepoint)
    event.listen(engine, "rollback_savepoint", rolled_back_to)
