"""`jobkit init`: a first configuration and a first worker.

Invariant: no file is overwritten without `--force`, and no password is written into one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import click

from jobkit.cli.errors import CommandError, failure_of
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape

__all__ = ["SHAPES", "init"]

DEFAULT: Final = "sqlite:///jobkit.db"
MADE: Final = Shape(
    "init",
    (
        Field("files", "list", help="the files that were written"),
        Field("database_url", help="the database, password masked"),
        Field("connected", "boolean", help="whether it could be reached"),
        Field("next", "list", help="the next commands"),
    ),
    listing=False,
    title="What was set up",
)
SHAPES: Final = (MADE,)

CONFIG: Final = """\
# Settings of jobkit; all of them: jobkit help settings. Effective values: jobkit config show
{database}
imports = ["jobs"]
queues = "default:10"
"""
FROM_ENVIRONMENT: Final = "# database_url has a password: give it as the variable JOBKIT_DATABASE_URL"
WORKERS: Final = '''\
"""The workers of this project. A worker's name is permanent: waiting jobs refer to it."""

import logging

from jobkit import worker

log = logging.getLogger(__name__)


@worker
def greet(name: str = "world") -> None:
    """Say hello in the log."""
    log.warning("hello, %s", name)
'''
NEXT: Final = ("jobkit migrate", "jobkit enqueue greet name=you", "jobkit run")


@click.command(
    cls=Command,
    examples=[
        ("jobkit init", "jobkit.toml and jobs.py, on a SQLite file."),
        ("jobkit init --db postgresql://localhost/app --no-input", "On Postgres, without questions."),
    ],
)
@click.option("--template", type=click.Choice(["minimal"]), default="minimal", help="What to write.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@click.option("--no-input", is_flag=True, help="Ask nothing.")
@click.option("--dry-run", is_flag=True, help="Print the files instead of writing them.")
@click.pass_context
def init(ctx: click.Context, template: str, force: bool, no_input: bool, dry_run: bool) -> None:
    """Write jobkit.toml and jobs.py with one worker here, try the connection, and say what comes next."""
    from jobkit.config import mask_url

    session = session_of(ctx)
    url = _url(session, no_input)
    files = {"jobkit.toml": CONFIG.format(database=_setting(url)), "jobs.py": WORKERS}
    if dry_run:
        for name, text in files.items():
            session.out.write(f"# --- {name}\n{text.rstrip()}")
        return
    _write(files, force)
    problem = _try(session, url)
    made = {"files": list(files), "database_url": mask_url(url), "connected": not problem, "next": list(NEXT)}
    session.out.item(MADE, made, lambda out: out.write("\n".join(NEXT)))
    session.out.note(f"written: {', '.join(files)}; next: {', '.join(NEXT)}" if not session.out.human else "")
    if problem:
        raise CommandError(f"the database cannot be used yet: {problem}", ExitCode.DATABASE)


def _url(session: Session, no_input: bool) -> str:
    from jobkit.config import Config

    given = session.given.settings.get("database_url")
    if given is None and not no_input and sys.stdin.isatty():
        given = click.prompt("Database URL", default=DEFAULT, err=True)
    return Config(database_url=str(given or DEFAULT)).database_url


def _setting(url: str) -> str:
    from jobkit.config import mask_url

    return f"database_url = {json.dumps(url)}" if mask_url(url) == url else FROM_ENVIRONMENT


def _write(files: dict[str, str], force: bool) -> None:
    there = [name for name in files if Path(name).exists()]
    if there and not force:
        raise CommandError(
            f"{', '.join(there)} exists already", ExitCode.CONFLICT, hint="overwrite with --force"
        )
    for name, text in files.items():
        try:
            Path(name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{name} cannot be written: {error.strerror or error}") from None


def _try(session: Session, url: str) -> str:
    """Connect; the problem in words, or nothing. A SQLite file is not made by looking."""
    from jobkit.config import Config
    from jobkit.core import Core

    core = Core(Config(database_url=url))
    if core.dialect == "sqlite":
        return ""
    try:
        with core.engine.connect():
            return ""
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it is told
        return session.redact(failure_of(error).message)
    finally:
        core.close()
