"""`jobkit run`: a node in this process, or several in child processes.

Invariant: what is wrong with the configuration is found before the node registers; what is running is told on stderr.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Literal

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.session import Session, session_of
from jobkit.cli.sizes import SizeParam

if TYPE_CHECKING:
    from jobkit.config import QueueConfig
    from jobkit.core import Core
    from jobkit.runtime.options import NodeOptions

__all__ = ["run"]


@click.command(
    cls=Command,
    settings=True,
    examples=[
        ("jobkit run", "Work on the configured queues."),
        ("jobkit run --queues default:10,mail:5 --import jobs", "Two queues, workers of the module jobs."),
        ("jobkit run --processes 4 --max-memory 512MB", "Four nodes, each replaced when it has grown."),
        ("jobkit run --drain", "Do what is due, then exit."),
    ],
)
@click.option(
    "--node", "name", metavar="NAME", help="The node is NAME:<nonce> instead of <host>:<pid>:<nonce>."
)
@click.option(
    "--only-queues",
    is_flag=True,
    help="Run no services but the heartbeat: no staging, rescue, cron, pruning.",
)
@click.option("--no-cron", is_flag=True, help="Leave recurring jobs to other nodes.")
@click.option("--no-plugins", is_flag=True, help="Run the services of jobkit itself only.")
@click.option("--drain", is_flag=True, help="Exit once no job is due.")
@click.option(
    "--max-jobs", type=click.IntRange(1), metavar="N", help="Exit after N jobs; with --processes: replace."
)
@click.option(
    "--max-memory",
    type=SizeParam(),
    metavar="SIZE",
    help="Exit once the process is larger; with --processes: replace.",
)
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, metavar="N", help="So many node processes."
)
@click.option("--check", is_flag=True, help="Load and check everything, then exit.")
@click.option("--reload", is_flag=True, help="Restart when Python files change (for development).")
@click.option("--log", type=click.Choice(["text", "json"]), default="text", help="The form of log lines.")
@click.option("--health", metavar="HOST:PORT", help="Answer /live and /ready over HTTP.")
@click.option("--with-dashboard", is_flag=True, help="Serve the web pages too, as `jobkit dashboard` does.")
@click.pass_context
def run(
    ctx: click.Context,
    name: str | None,
    only_queues: bool,
    no_cron: bool,
    no_plugins: bool,
    drain: bool,
    max_jobs: int | None,
    max_memory: int | None,
    processes: int,
    check: bool,
    reload: bool,
    log: Literal["text", "json"],
    health: str | None,
    with_dashboard: bool,
) -> None:
    """Run a node: claim and perform jobs until SIGINT or SIGTERM.

    The first signal claims nothing further and gives running jobs the grace (--grace); the second ends at once.
    Jobs that the grace does not suffice for are given back and run again elsewhere (exit code 11).
    """
    session = session_of(ctx)
    from jobkit.cli import logs
    from jobkit.cli.health import split_address

    logs.set_up(log, session.given.verbose, session.given.output.quiet)
    address = split_address(health) if health else None
    if (processes > 1 or reload) and not check:
        from jobkit.cli.supervise import supervise

        code = supervise(session, processes=processes, reload=reload, drain=drain, health=address)
        raise click.exceptions.Exit(code)
    core = session.app
    queues = checked(session, core)
    check_tables(core, wait=not check)
    if check:
        session.out.note("\n".join(_banner(core, queues)))
        session.out.note("everything is in order")
        return
    options = _options(core, name, only_queues, no_cron, no_plugins, drain, max_jobs)
    from jobkit.cli.companion import is_first

    with _dashboard(session, core) if with_dashboard and is_first() else nullcontext():
        _serve(session, core, queues, options, address, max_memory)


@contextmanager
def _dashboard(session: Session, core: Core) -> Iterator[None]:
    """The web pages beside the node; they are a plugin, so nothing here knows more of them than where to ask."""
    import importlib

    try:
        beside = importlib.import_module("jobkit_dashboard.serve").beside
        served = beside(core)
        link = served.__enter__()
    except ImportError as error:
        hint = "install it with: pip install 'jobkit-queue[dashboard]'"
        raise CommandError(f"the dashboard needs {error.name}", ExitCode.CONFIG, hint=hint) from None
    session.out.note(f"Open {link}")
    try:
        yield
    finally:
        served.__exit__(None, None, None)


def checked(session: Session, core: Core) -> dict[str, QueueConfig]:
    """The queues to run; raises for whatever is wrong with plugins' settings, schedules, the tables."""
    registry = core.registry
    registry.load()
    registry.schedules()
    wanted = session.given.settings.get("queues")
    queues = dict(session.config.queues) if wanted is not None else registry.queues()
    if not queues:
        raise CommandError(
            "there is no queue to work on", ExitCode.CONFIG, hint="name some: --queues default:10"
        )
    return queues


def check_tables(core: Core, *, wait: bool) -> None:
    """Raise NotMigrated now rather than from the node; a database that is away, or read-only, the node waits for."""
    from jobkit.storage import migrations
    from jobkit.storage.engine import Fault, classify

    passing = {Fault.LOST, Fault.LOCKED, Fault.READONLY, Fault.FULL}
    try:
        core.ready()
        with core.engine.connect() as conn:
            migrations.check(conn, core.tables, core.migrations())
    except Exception as error:
        if not wait or classify(error) not in passing:
            raise


def _options(
    core: Core,
    name: str | None,
    only_queues: bool,
    no_cron: bool,
    no_plugins: bool,
    drain: bool,
    max_jobs: int | None,
) -> NodeOptions:
    from jobkit._names import check_name
    from jobkit.errors import ArgsError
    from jobkit.runtime.options import NodeOptions

    if name is not None:
        try:
            check_name(name, "node")
        except ArgsError as error:
            raise CommandError(f"--node: {error}", ExitCode.USAGE) from None
    foreign = {plugin.name for plugin in core.registry.plugins if plugin.kind != "built-in"}
    without = {"cron"} if no_cron else set()
    return NodeOptions(
        name=name,
        drain=drain,
        max_jobs=max_jobs,
        only=frozenset() if only_queues else None,
        without=frozenset(without | (foreign if no_plugins else set())),
    )


def _banner(core: Core, queues: dict[str, QueueConfig]) -> list[str]:
    from jobkit.cli.banner import banner

    return banner(core, queues)


def _serve(
    session: Session,
    core: Core,
    queues: dict[str, QueueConfig],
    options: NodeOptions,
    address: tuple[str, int] | None,
    max_memory: int | None,
) -> None:
    from jobkit.cli.companion import Companion, is_first
    from jobkit.core import set_current
    from jobkit.runtime.main import leave, run_node

    set_current(core)
    first = is_first()
    companion = Companion(core, session.out, max_memory=max_memory, health=address)
    if first:
        session.out.note("\n".join(_banner(core, queues)))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the node has its own handlers
    try:
        code = run_node(core, queues, options, started=companion.started)
    finally:
        companion.close()
    if code and session.own_process:
        session.close()
        leave(code)
    sys.exit(code)
