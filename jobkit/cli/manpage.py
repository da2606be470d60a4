"""The manual page, `jobkit.1`, made of the same tables and help texts as `jobkit help`.

Invariant: what a command's help says and what the page says are one text.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from jobkit.cli.exitcodes import MEANINGS
from jobkit.cli.framework import Command

__all__ = ["manual"]


def manual(root: click.Context) -> str:
    """The page in troff, for `man`."""
    return "\n".join(_page(root)) + "\n"


def _page(root: click.Context) -> Iterator[str]:
    group = root.command
    assert isinstance(group, click.Group)
    yield '.TH JOBKIT 1 "" "jobkit" "User Commands"'
    yield from (".SH NAME", "jobkit \\- a persistent job queue on SQLite or Postgres")
    yield from (".SH SYNOPSIS", ".B jobkit", "[OPTIONS] COMMAND [ARGS]...", ".SH DESCRIPTION")
    yield from _paragraphs(group.help or "")
    yield ".SH COMMANDS"
    for context in _commands(root):
        yield from _command(context)
    yield ".SH COMMON OPTIONS"
    yield from _options(_common(root))
    yield ".SH EXIT STATUS"
    for code, meaning in MEANINGS.items():
        yield from (".TP", f".B {int(code)}", _text(f"{meaning} ({code.word})"))
    yield ".SH FILES"
    yield from (".TP", ".B jobkit.toml", "Settings; looked for in the working directory and above. ")
    yield from (
        ".TP",
        ".B pyproject.toml",
        _text("Settings in [tool.jobkit], where there is no jobkit.toml."),
    )


def _commands(parent: click.Context) -> Iterator[click.Context]:
    """Every command that does something, groups' verbs after each other."""
    group = parent.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(parent):
        found = group.get_command(parent, name)
        if found is None or found.hidden:
            continue
        context = click.Context(found, info_name=name, parent=parent)
        if isinstance(found, click.Group):
            yield from _commands(context)
        else:
            yield context


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    pieces = " ".join(command.collect_usage_pieces(context))
    words = context.command_path.partition(" ")[2]  # the first is how the program was called
    yield f".SS jobkit {_text(words)} {_text(pieces)}"
    yield from _paragraphs(command.help or "")
    yield from _options(_own(context))
    for line, text in getattr(command, "examples", ()):
        yield from (".TP", f".I {_text(line)}", _text(text))


def _own(context: click.Context) -> list[tuple[str, str]]:
    """The records of the options that only this command has."""
    own = click.Command.get_params(context.command, context)
    return [record for option in own if (record := option.get_help_record(context)) is not None]


def _common(root: click.Context) -> list[tuple[str, str]]:
    command = Command("any", settings=True)
    context = click.Context(command, info_name="any", parent=root)
    own = click.Command.get_params(command, context)
    shared = [option for option in command.get_params(context) if option not in own]
    return [record for option in shared if (record := option.get_help_record(context)) is not None]


def _options(records: list[tuple[str, str]]) -> Iterator[str]:
    for names, text in records:
        yield from (".TP", f".B {_text(names)}", _text(text))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.replace("\b", "").split("\n\n"):
        yield from (".PP", _text(" ".join(paragraph.split())))


def _text(text: str) -> str:
    """The characters as they are: no backslash, hyphen or leading dot means anything."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
