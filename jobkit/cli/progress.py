"""Progress on stderr: a bar on a terminal, else one plain line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from jobkit.cli.session import Session

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Meter", "progress"]

EVERY: Final = 10.0


class Meter:
    """How far something is."""

    def __init__(self, session: Session, what: str, bar: Progress | None, task: TaskID | None) -> None:
        self._session = session
        self._what = what
        self._bar = bar
        self._task = task
        self._started = self._said = time.monotonic()

    def update(self, done: int, total: int | None = None) -> None:
        """So many are done, of so many where that is known."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
            return
        now = time.monotonic()
        if now - self._said >= EVERY:
            self._said = now
            rate = done / max(now - self._started, 0.001)
            of = f" of {total:,}" if total is not None else ""
            self._session.out.note(f"{self._what}: {done:,}{of}, {rate:,.0f}/s")


@contextmanager
def progress(session: Session, what: str, total: int | None = None) -> Iterator[Meter]:
    """Show progress while the block runs."""
    if session.given.output.quiet or not sys.stderr.isatty():
        yield Meter(session, what, None, None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from jobkit.cli.terminal import console

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.speed:,.0f}/s", justify="right"),
        TimeRemainingColumn(),
    )
    out = console(sys.stderr, session.given.output.color)
    with Progress(*columns[:3], columns[4], console=out, transient=True) as bar:
        yield Meter(session, what, bar, bar.add_task(what, total=total))
