"""`jobkit help`: help on a command, and on topics that belong to no single one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import MEANINGS, ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.root import Root
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape

__all__ = ["SHAPES", "help_"]

CODES: Final = Shape(
    "help.exit-codes",
    (
        Field("code", "integer", help="what the shell sees", column="code"),
        Field("name", help="the same in JSON errors", column="name"),
        Field("meaning", help="what it says", column="meaning"),
    ),
    title="Exit codes",
)
SETTINGS: Final = Shape(
    "help.settings",
    (
        Field("option", help="on the command line", column="option"),
        Field("variable", help="in the environment", column="variable"),
        Field("name", help="in the file", column="setting"),
        Field("form", help="what it takes", column="takes"),
        Field("help", help="what it does", column="about"),
    ),
    title="Settings",
)
WORDS: Final = Shape(
    "help.query",
    (
        Field("qualifier", help="the word before the colon", column="qualifier"),
        Field("aliases", "list", help="other spellings", column="also"),
        Field("example", help="how it is used", column="example"),
    ),
    title="The query language",
)
SHAPES: Final = (CODES, SETTINGS, WORDS)

QUERY: Final = """\
Terms are ANDed, values after a comma are ORed, a minus sign negates, quotes hold blanks and any other character:
  state:discarded,retryable worker:Mail* -queue:low args.user.id:42 inserted:<2h "connection refused"
A bare word is looked for in args, tags, worker and last error; a star counts at the ends of a value."""
TIMES: Final = """\
Durations   10s  5m  2h  7d  1h30m
Times       2026-12-01T09:00  2026-12-01T09:00+01:00  tomorrow 09:00  friday 17:30  09:00  now  -2h  +30m  in 2h
A time without a zone is meant in the zone of --tz (UTC). Times are printed with their zone; JSON has UTC."""
OUTPUT: Final = """\
On a terminal lists are tables fitted to its width; in a pipe they are tab-separated, complete, without colours.
  --json          one JSON document: {"schema": "jobkit.jobs.list/1", "items": [...]}
  --json=id,state the same with these fields only (always with =)
  --jsonl         one JSON object a line
  --csv --tsv     separated values; --header adds the names; --columns a,b picks
  --table         a table also in a pipe; --absolute shows times as dates
Errors go to stderr, with --json as {"error": {"code", "message", "hint"}}. See: jobkit schema"""


@click.command(
    "help",
    cls=Command,
    examples=[
        ("jobkit help jobs retry", "Help on a command."),
        ("jobkit help exit-codes", "What each exit code means."),
        ("jobkit help man > jobkit.1", "The manual page, for `man ./jobkit.1`."),
    ],
)
@click.argument("words", nargs=-1)
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Help on a command, or on a topic: exit-codes, settings, query, times, output; man prints the manual page."""
    session = session_of(ctx)
    if words == ("man",):
        from jobkit.cli.manpage import manual

        session.out.write(manual(ctx.find_root()).rstrip())
        return
    topic = TOPICS.get(" ".join(words))
    if topic is not None:
        topic(session)
        return
    session.out.write(_command_help(ctx.find_root(), words))


def _command_help(root: click.Context, words: tuple[str, ...]) -> str:
    at, command = root, root.command
    for word in words:
        found = command.get_command(at, word) if isinstance(command, click.Group) else None
        if found is None:
            reason = command.missing(word) if isinstance(command, Root) else None
            if reason is not None:
                raise reason
            topics = ", ".join(TOPICS)
            raise CommandError(
                f"there is no command or topic {' '.join(words)!r}",
                ExitCode.USAGE,
                hint=f"topics are: {topics}",
            )
        at, command = click.Context(found, info_name=word, parent=at), found
    return command.get_help(at)


def _exit_codes(session: Session) -> None:
    rows = [{"code": int(code), "name": code.word, "meaning": text} for code, text in MEANINGS.items()]
    session.out.items(CODES, rows)


def _settings(session: Session) -> None:
    from jobkit.config import SETTINGS as ALL

    rows = [
        {
            "option": " ".join(spec.options),
            "variable": spec.env,
            "name": spec.name,
            "form": spec.form,
            "help": spec.help,
        }
        for spec in ALL.values()
    ]
    session.out.items(SETTINGS, rows)


def _query(session: Session) -> None:
    from jobkit.admin._fields import FIELDS

    session.out.note(QUERY)
    rows = [
        {"qualifier": f"{field.name}:", "aliases": field.aliases, "example": field.help} for field in FIELDS
    ]
    session.out.items(WORDS, rows)


def _text(text: str) -> Callable[[Session], None]:
    return lambda session: session.out.write(text)


TOPICS: Final[dict[str, Callable[[Session], None]]] = {
    "exit-codes": _exit_codes,
    "settings": _settings,
    "query": _query,
    "times": _text(TIMES),
    "output": _text(OUTPUT),
}
