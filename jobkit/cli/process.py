"""The command line as a process: signals, encodings, the last flush.

Invariant: Ctrl-C ends any command with code 130 and SIGTERM with 143, each with a short line and no traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

__all__ = ["run"]


def run() -> None:
    """Run the command line of this process; does not return."""
    _complete_quickly()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminated)
    from jobkit.cli.root import cli
    from jobkit.cli.session import Session

    session = Session()
    session.own_process = True
    code = 1
    try:
        cli.main(prog_name="jobkit", obj=session, complete_var="_JOBKIT_COMPLETE")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:  # a second one, while the first was being dealt with
        code = 130
    _leave(code)


def _leave(code: int) -> None:
    """Flush, quietly where nobody reads any more, and end as Python does."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ValueError:
        pass
    sys.exit(code)


def _terminated(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("terminated", file=sys.stderr)  # noqa: T201 - a signal handler has no session
    sys.exit(128 + number)


def _complete_quickly() -> None:
    """A completing shell is not kept waiting, and never sees an error."""
    if "_JOBKIT_COMPLETE" in os.environ and "_jobkit_complete" not in sys.argv:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the rest of this short process
