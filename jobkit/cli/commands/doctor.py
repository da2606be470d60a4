"""`jobkit doctor`: looks for problems; each finding has a cause and the command that mends it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.confirm import on_terminal
from jobkit.cli.errors import CommandError, failure_of
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.output import Output
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.terminal import clean

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["SHAPES", "doctor"]

MARKS: Final = {"ok": ("✓", "green"), "attention": ("!", "yellow"), "broken": ("✗", "bold red")}
SAFE: Final = frozenset({"migrate", "stage", "rescue"})
"""Commands that `--fix` may run: they do what the system does anyway."""


@dataclass(frozen=True, slots=True)
class Row:
    """One finding of one check."""

    check: str
    title: str
    level: str
    text: str
    cause: str = ""
    fix: str = ""


DOCTOR: Final = Shape(
    "doctor",
    (
        Field("level", help="ok, attention or broken", column="level", style=lambda r: MARKS[r.level][1]),
        Field("check", help="what --only and --skip take", column="check"),
        Field("title", help="the check in words"),
        Field("text", help="what was found", column="found"),
        Field("cause", help="why that matters or how it comes", column="cause"),
        Field("fix", help="the command or sentence that mends it", column="fix"),
    ),
    title="Findings of all checks",
)
SHAPES: Final = (DOCTOR,)


@click.command(
    cls=Command,
    examples=[
        ("jobkit doctor", "All checks; exit code 10 where something is broken."),
        ("jobkit doctor --only nodes --only queues --json", "Two checks, for machines."),
        ("jobkit doctor --offline", "Only what needs no database."),
    ],
)
@click.option("--only", multiple=True, metavar="CHECK", help="Only this check.")
@click.option("--skip", multiple=True, metavar="CHECK", help="Not this check.")
@click.option("--offline", is_flag=True, help="Ask no database.")
@click.option("--strict", is_flag=True, help="Exit code 10 also where something needs attention.")
@click.option("--fix", is_flag=True, help="Offer to run the safe repairs, one by one.")
@click.pass_context
def doctor(
    ctx: click.Context, only: tuple[str, ...], skip: tuple[str, ...], offline: bool, strict: bool, fix: bool
) -> None:
    """Check configuration, database, tables, clocks, nodes, queues, workers, schedules and more."""
    session = session_of(ctx)
    rows = list(_rows(session, only, skip, offline))
    if session.out.human:
        for row in rows:
            _draw(session.out, row)
    else:
        session.out.items(DOCTOR, rows)
    if fix:
        _repair(session, rows)
    broken = sum(row.level == "broken" for row in rows)
    attention = sum(row.level == "attention" for row in rows)
    if broken or (strict and attention):
        raise CommandError(
            f"{broken} broken, {attention} need{'s' * (attention == 1)} attention", ExitCode.PROBLEMS
        )


def _rows(session: Session, only: tuple[str, ...], skip: tuple[str, ...], offline: bool) -> Iterator[Row]:
    from jobkit.admin.doctor import checks_of, diagnose

    core, rows = _loaded(session)
    known = [row.check for row in rows] + [check.id for check in checks_of(core)]
    for name in (*only, *skip):
        if name not in known:
            raise CommandError(
                f"there is no check {name!r}", ExitCode.USAGE, hint=f"checks are: {', '.join(known)}"
            )
    yield from (row for row in rows if (not only or row.check in only) and row.check not in skip)
    for found in diagnose(core, only=only, skip=skip, offline=offline):
        for finding in found.findings:
            yield Row(found.id, found.title, finding.level, finding.text, finding.cause, finding.fix)


def _loaded(session: Session) -> tuple[Core, list[Row]]:
    """The app, or where it cannot be had a core without it, with what was found on the way."""
    title = "the app can be imported"
    try:
        core = session.app
        core.registry.load()
    except Exception as error:
        failure = failure_of(error)
        nothing_given = session.config.app is None and not session.config.imports
        if failure.code is not ExitCode.CONFIG or nothing_given:
            raise
        return session.core, [Row("app", title, "broken", session.redact(failure.message), fix=failure.hint)]
    what = session.config.app or ", ".join(session.config.imports) or "no app or imports configured"
    return core, [Row("app", title, "ok", what)]


def _draw(out: Output, row: Row) -> None:
    from rich.text import Text

    mark, style = MARKS[row.level]
    text = Text(f"{mark} ", style=style)
    text.append(f"{clean(row.title)}: ", style="bold")
    text.append(clean(row.text), style="default")
    out.console.print(text)
    if row.level != "ok":
        for line in filter(None, (row.cause, row.fix)):
            out.console.print(Text(f"    {clean(line)}"))


def _repair(session: Session, rows: list[Row]) -> None:
    """Offer each safe repair; what is not safe stays advice."""
    fixes = dict.fromkeys(row.fix for row in rows if row.level != "ok" and _safe(row.fix))
    for fix in fixes:
        if not on_terminal():
            raise CommandError(
                f"not confirmed: {fix}", ExitCode.USAGE, hint="--fix asks, so it needs a terminal"
            )
        if click.confirm(f"Run {fix}?", err=True):
            session.export()
            subprocess.run([sys.executable, "-m", "jobkit", *shlex.split(fix)[1:]], check=False)


def _safe(fix: str) -> bool:
    words = shlex.split(fix) if fix.startswith("jobkit ") else []
    return len(words) > 1 and words[1] in SAFE
