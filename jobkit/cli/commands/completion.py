"""`jobkit completion SHELL`: the script that lets a shell complete commands, options and values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from jobkit.cli.errors import CommandError
from jobkit.cli.framework import Command
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape

__all__ = ["SHAPES", "completion"]

VARIABLE: Final = "_JOBKIT_COMPLETE"
PLACES: Final = {
    "bash": "~/.local/share/bash-completion/completions/jobkit",
    "zsh": "~/.zfunc/_jobkit",
    "fish": "~/.config/fish/completions/jobkit.fish",
}
SCRIPT: Final = Shape(
    "completion",
    (
        Field("shell", help="bash, zsh or fish"),
        Field("script", help="what the shell reads"),
        Field("path", help="where --install wrote it", nullable=True),
    ),
    listing=False,
    title="A shell's completion script",
)
SHAPES: Final = (SCRIPT,)
ZSH_HINT: Final = "add to ~/.zshrc, before compinit: fpath+=~/.zfunc"


@click.command(
    cls=Command,
    examples=[
        ('eval "$(jobkit completion bash)"', "For this shell."),
        ("jobkit completion fish --install", "For good."),
    ],
)
@click.argument("shell", type=click.Choice(list(PLACES)))
@click.option("--install", is_flag=True, help="Write it where the shell finds it.")
@click.pass_context
def completion(ctx: click.Context, shell: str, install: bool) -> None:
    """Print the completion script of a shell, or install it."""
    session = session_of(ctx)
    found = get_completion_class(shell)
    if found is None:
        raise CommandError(f"no completion for {shell}")
    text = found(ctx.find_root().command, {}, "jobkit", VARIABLE).source()
    if not install:
        _print(session, {"shell": shell, "script": text, "path": None}, text)
        return
    path = Path(os.path.expanduser(PLACES[shell]))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from None
    session.out.note(f"written: {path}; it works in new shells")
    if shell == "zsh":
        session.out.note(ZSH_HINT)
    _print(session, {"shell": shell, "script": text, "path": str(path)}, "")


def _print(session: Session, found: dict[str, str | None], text: str) -> None:
    if session.out.json:
        session.out.item(SCRIPT, found)
    elif text:
        session.out.write(text)
