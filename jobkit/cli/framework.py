"""Click, with the ground rules of this command line built in.

- A group called without a verb runs its default one: `jobkit plugins --json` is `jobkit plugins list --json`.
- Commands are imported when they are run or their help is shown.
- Every command takes the common options; its help ends with examples.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from jobkit.cli.common import common_options, settings_options

__all__ = ["Command", "Entry", "Group", "LazyGroup", "command"]

T = TypeVar("T")
Examples = Sequence[tuple[str, str]]


def _prepared(args: list[str]) -> list[str]:
    """`--json` alone stands for all fields; it never takes the word after it."""
    end = args.index("--") if "--" in args else len(args)
    return ["--json=*" if arg == "--json" else arg for arg in args[:end]] + args[end:]


class Command(click.Command):
    """A command with the common options; `examples` are pairs of a command line and what it does."""

    def __init__(
        self, *args: Any, examples: Examples = (), settings: bool = False, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples
        self.settings = settings
        self._common: list[click.Option] | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own, then the common ones; a completing shell is not kept waiting for the settings."""
        own = super().get_params(ctx)
        if self._common is None:
            taken = frozenset(name for param in own for name in param.opts)
            self._common = [option for option in common_options() if not taken & set(option.opts)]
            if not ctx.resilient_parsing:
                self._common += settings_options(taken=taken, shown=self.settings)
        return [*own, *self._common]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with `--json` made safe."""
        return super().parse_args(ctx, _prepared(args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options first, the common ones apart."""
        common = self._common or []
        own = [
            p.get_help_record(ctx)
            for p in self.get_params(ctx)
            if p not in common and isinstance(p, click.Option)
        ]
        rest = [p.get_help_record(ctx) for p in common]
        for title, records in (("Options", own), ("Common options", rest)):
            shown = [record for record in records if record is not None]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples."""
        if self.examples:
            with formatter.section("Examples"):
                for line, text in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                    formatter.write(f"{'':{formatter.current_indent}}    {text}\n")
        super().format_epilog(ctx, formatter)


def command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function; its docstring is the help."""
    return click.command(name, cls=Command, **attributes)


@dataclass(frozen=True, slots=True)
class Entry:
    """One command of a lazy group: where it is, its line in the help, and under which heading."""

    place: str
    help: str
    topic: str = "Commands"

    def load(self) -> click.Command:
        """Import it."""
        module, _, attribute = self.place.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if not isinstance(found, click.Command):
            raise TypeError(f"{self.place} is no command")
        return found


class Group(click.Group):
    """A group that runs its default verb when none is named."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, default: str | None = "list", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default verb in where the first word is none."""
        asks_help = ctx.resilient_parsing or args[:1] in (["--help"], ["-h"])
        if self.default is not None and not asks_help and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; a wrong word is told with the nearest right one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            text = f"{ctx.command_path} has no command {args[0]!r}{hint}"
            raise click.UsageError(text, error.ctx or ctx) from None


class LazyGroup(Group):
    """A group whose commands are imported when needed; help lists them by topic without importing any."""

    def __init__(self, *args: Any, entries: dict[str, Entry], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return [*self.entries, *(name for name in sorted(self.commands) if name not in self.entries)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported."""
        entry = self.entries.get(cmd_name)
        return entry.load() if entry is not None else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by topic."""
        rows: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            entry = self.entries.get(name)
            if entry is not None:
                rows.setdefault(entry.topic, []).append((name, entry.help))
            elif not (found := self.commands[name]).hidden:
                rows.setdefault("Plugins", []).append((name, found.get_short_help_str(80)))
        width = max(len(name) for names in rows.values() for name, _ in names)
        for topic, names in rows.items():
            with formatter.section(topic):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in names])


def examples_of(group: click.Command, commands: Iterable[click.Command]) -> list[tuple[str, str]]:
    """All examples of some commands, for tests and documentation."""
    return [example for found in commands for example in getattr(found, "examples", ())]
