"""`--watch`: the same output again and again, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta

from jobkit.cli.session import Session

__all__ = ["watch"]


def watch(session: Session, interval: timedelta | None, draw: Callable[[], None]) -> None:
    """Draw once, or every `interval`; on a terminal each time from the top."""
    if interval is None:
        draw()
        return
    session.endless = True
    pause = max(interval.total_seconds(), 0.2)
    while True:
        if session.out.human and sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
            session.out.note(f"every {pause:g} s, {session.out.time(session.now())}; Ctrl-C ends")
        draw()
        session.out.flush()
        time.sleep(pause)
