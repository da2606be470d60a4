"""The command `jobkit` itself: the table of its commands, and what happens to errors.

Invariant: names in the table belong to jobkit; a plugin's command is looked for only where the table has none.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

import click

from jobkit.cli.common import common_options
from jobkit.cli.errors import Failure, failure_of
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Entry, LazyGroup, _prepared
from jobkit.cli.logs import without_repeats
from jobkit.cli.session import Session, session_of
from jobkit.cli.terminal import clean

__all__ = ["COMMANDS", "Root", "cli"]

_SETUP: Final = "Set up and run"
_JOBS: Final = "Jobs"
_SYSTEM: Final = "Queues, nodes, schedules"
_HEALTH: Final = "Health"
_REST: Final = "Other"
_AT: Final = "jobkit.cli.commands"

COMMANDS: Final[dict[str, Entry]] = {
    "init": Entry(f"{_AT}.init:init", "Make a jobkit.toml and a first worker.", _SETUP),
    "migrate": Entry(f"{_AT}.migrate:migrate", "Make or update the tables.", _SETUP),
    "run": Entry(f"{_AT}.run:run", "Run a node: work on queues until stopped.", _SETUP),
    "enqueue": Entry(f"{_AT}.enqueue:enqueue", "Insert a job.", _JOBS),
    "jobs": Entry(f"{_AT}.jobs:jobs", "List, show, retry, cancel, edit, wait for, export jobs.", _JOBS),
    "why": Entry(f"{_AT}.why:why", "Explain why a job is not running.", _JOBS),
    "queues": Entry(f"{_AT}.queues:queues", "List, show, pause, resume, scale queues.", _SYSTEM),
    "nodes": Entry(f"{_AT}.nodes:nodes", "List, show, drain, pause, resume, forget nodes.", _SYSTEM),
    "cron": Entry(f"{_AT}.cron:cron", "List, show, run, pause recurring jobs; check expressions.", _SYSTEM),
    "workers": Entry(f"{_AT}.workers:workers", "List and show workers.", _SYSTEM),
    "plugins": Entry(f"{_AT}.plugins:plugins", "List, show and check plugins.", _SYSTEM),
    "prune": Entry(f"{_AT}.services:prune", "Delete finished jobs, as the pruner does.", _SYSTEM),
    "rescue": Entry(f"{_AT}.services:rescue", "Give back jobs of dead nodes, as the lifeline does.", _SYSTEM),
    "stage": Entry(f"{_AT}.services:stage", "Make due jobs available, as the stager does.", _SYSTEM),
    "stats": Entry(f"{_AT}.stats:stats", "Counts by state and queue; conditions for monitoring.", _HEALTH),
    "doctor": Entry(f"{_AT}.doctor:doctor", "Look for problems, with cause and remedy.", _HEALTH),
    "audit": Entry(f"{_AT}.audit:audit", "List what operators did.", _HEALTH),
    "config": Entry(f"{_AT}.config:config", "Show and check the configuration.", _REST),
    "schema": Entry(f"{_AT}.schema:schema", "Print the JSON Schema of an output.", _REST),
    "completion": Entry(f"{_AT}.completion:completion", "Print or install shell completion.", _REST),
    "version": Entry(f"{_AT}.version:version", "Print versions.", _REST),
    "help": Entry(f"{_AT}.help:help_", "Help on a command or topic.", _REST),
}


class Root(LazyGroup):
    """`jobkit`: commands of the table, then those that plugins add."""

    _asked_plugins = False
    missing: Callable[[str], Exception | None] = staticmethod(lambda name: None)
    """Why a plugin's command of that name may be missing; known once the plugins were asked."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The common options may also stand before the command; the settings with them."""
        own = super().get_params(ctx)
        if not hasattr(self, "_common"):
            self._common: list[click.Parameter] = [*common_options(), *_main_settings()]
        return [*own, *self._common]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with `--json` made safe."""
        session_of(ctx)
        return super().parse_args(ctx, _prepared(args))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names; asks the plugins."""
        self._ask_plugins(ctx)
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; asks the plugins where the table has none."""
        if cmd_name not in self.entries:
            self._ask_plugins(ctx)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As every group; where plugins could not be asked for the command, the reason is told instead."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            reason = None if _nearest(args[0], self.entries) else self.missing(args[0])
            if reason is None:
                raise
            raise reason from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; one whose output nobody reads any more has done enough."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _close_stdout()
            return ExitCode.OK

    def _ask_plugins(self, ctx: click.Context) -> None:
        if self._asked_plugins or ctx.resilient_parsing:
            return
        self._asked_plugins = True
        from jobkit.cli.plugincommands import add_plugin_commands

        add_plugin_commands(self, session_of(ctx))

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *,
        obj: Session | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run, and exit with the code that the outcome has."""
        session = obj or Session()
        self.__dict__.pop("_common", None)
        self._asked_plugins, self.commands, self.missing = False, {}, lambda name: None
        try:
            with without_repeats():
                code = super().main(
                    args, prog_name, complete_var, standalone_mode=False, obj=session, **extra
                )
        except BaseException as error:  # noqa: BLE001 - this is where every error becomes an exit code
            code = _outcome(error, session)
        finally:
            session.close()
        sys.exit(int(code) if isinstance(code, int) else ExitCode.OK)


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(name, known, 1)


def _main_settings() -> list[click.Parameter]:
    """`--db`, `--app`, `--import` and the others, without importing what validates them."""
    from jobkit.cli.common import root_settings

    return list(root_settings())


def _outcome(error: BaseException, session: Session) -> int:
    """The exit code of an error, which is told on stderr."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return (
            error.code
            if isinstance(error.code, int)
            else ExitCode.OK
            if error.code is None
            else ExitCode.FAILED
        )
    if session.endless and isinstance(error, (KeyboardInterrupt, click.Abort)):
        return ExitCode.INTERRUPTED
    if session.given.debug and not isinstance(error, (click.UsageError, KeyboardInterrupt, click.Abort)):
        _traceback(error, session)
    failure = failure_of(error, session.database_url)
    shown = Failure(failure.code, session.redact(failure.message), failure.hint, failure.expected)
    session.out.failure(shown)
    return failure.code


def _traceback(error: BaseException, session: Session) -> None:
    """The whole traceback, redacted like everything else; locals stay out of it."""
    import io

    from rich.console import Console
    from rich.traceback import Traceback

    made = Traceback.from_exception(type(error), error, error.__traceback__, show_locals=False)
    page = io.StringIO()
    Console(file=page, markup=False, width=110).print(made)
    click.echo(clean(session.redact(page.getvalue())), err=True)


def _close_stdout() -> None:
    """Nobody reads any more: let the interpreter's own last flush go nowhere."""
    import os

    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"jobkit {version('jobkit-queue')}")
        ctx.exit()


@click.group(
    cls=Root,
    entries=COMMANDS,
    default=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """jobkit: a persistent job queue on SQLite or Postgres, built of plugins.

    Data goes to stdout, remarks and errors to stderr. On a terminal lists are tables; in a pipe they are
    tab-separated; --json works everywhere. Exit codes: jobkit help exit-codes.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
