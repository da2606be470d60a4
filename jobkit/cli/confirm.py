"""Asking before something is changed that touches more than one job or destroys something.

Invariant: without a terminal and without `--yes` nothing is changed: exit code 2, naming the option.
"""

from __future__ import annotations

import sys

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.session import Session
from jobkit.cli.terminal import clean

__all__ = ["confirm", "on_terminal"]


def on_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(session: Session, action: str, *, yes: bool, type_count: int | None = None) -> None:
    """Ask whether to do `action`; `type_count` asks for that number to be typed. Raises unless the answer is yes."""
    if yes:
        return
    if not on_terminal():
        raise CommandError(
            f"not confirmed: {action}", ExitCode.USAGE, hint="give --yes to do it, or --dry-run to look"
        )
    if type_count is not None:
        answer = click.prompt(
            f"{clean(action)}\nType {type_count} to go on", default="", show_default=False, err=True
        )
        right = answer.strip().replace(",", "") == str(type_count)
    else:
        right = click.confirm(clean(action[:1].upper() + action[1:]) + "?", err=True)
    if not right:
        raise CommandError("nothing was done", ExitCode.FAILED)
