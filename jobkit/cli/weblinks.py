"""`--web`: the dashboard's page of what a command would print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.session import Session

__all__ = ["open_job", "open_list", "web_options"]

F = TypeVar("F", bound=Callable[..., Any])
DASHBOARD: Final = "http://127.0.0.1:8778/"
"""Where `jobkit dashboard` serves by default."""


def web_options(function: F) -> F:
    """`--web`, and where the dashboard is."""
    where = click.option(
        "--web-at",
        default=DASHBOARD,
        show_default=True,
        metavar="URL",
        help="Where the dashboard is, with its root path.",
    )
    return click.option("--web", is_flag=True, help="Open the page of the dashboard instead.")(
        where(function)
    )


def open_job(session: Session, at: str, job_id: int) -> None:
    """The page of a job."""
    _open(session, _base(at) + f"jobs/{job_id}")


def open_list(session: Session, at: str, query: str) -> None:
    """The list of jobs that match."""
    _open(session, _base(at) + (f"jobs?{urlencode({'q': query}, quote_via=quote)}" if query else "jobs"))


def _base(at: str) -> str:
    if not at.startswith(("http://", "https://")):
        raise CommandError(
            f"--web-at: {at!r} is no URL of a dashboard", ExitCode.USAGE, hint=f"such as {DASHBOARD}"
        )
    return at.rstrip("/") + "/"


def _open(session: Session, url: str) -> None:
    session.out.note(f"opening {url}")
    if click.launch(url):
        raise CommandError("no browser could be started", hint=f"open {url}")
