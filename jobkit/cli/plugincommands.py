"""Commands that plugins add through `jobkit_commands(group)`.

Invariant: a plugin that raises, or that takes a name of jobkit's own, breaks no other command; why commands are missing
is told to whoever asks for one of them, and to nobody else.
"""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.root import Root
from jobkit.cli.session import Session

if TYPE_CHECKING:
    from jobkit.registry import Registry

__all__ = ["add_plugin_commands"]

log = logging.getLogger("jobkit.plugins")


def add_plugin_commands(root: Root, session: Session) -> None:
    """Ask the plugins of this configuration; where it is wrong there are none, and `root.missing` says why.

    The options after the command are not read yet, so what is looked at here is forgotten again.
    """
    looking = Session()
    looking.given = copy.deepcopy(session.given)
    try:
        registry = looking.core.registry
        registry.load()
    except Exception as error:  # noqa: BLE001 - help must work with the worst configuration
        log.debug("no commands of plugins: %s", error)
        reason = error
        root.missing = lambda name: reason
        return
    root.missing = lambda name: _skipped(registry, name)
    for found in reversed(registry.implementations("jobkit_commands")):
        group = click.Group("jobkit")
        try:
            found.call({"group": group})
        except Exception as error:  # noqa: BLE001 - isolated: whatever a plugin raises
            registry.failed(found.plugin, "jobkit_commands", error)
            continue
        for name, command in group.commands.items():
            if name in root.entries or name in root.commands:
                log.warning("plugin %s: the command %r is taken and left as it is", found.plugin, name)
            else:
                root.commands[name] = command


def _skipped(registry: Registry, name: str) -> Exception | None:
    """Why the plugin that is called like the command takes no part."""
    for plugin in registry.plugins:
        if plugin.name == name and plugin.status != "active":
            return CommandError(
                f"the plugin {plugin.source}, which may have this command, is {plugin.status}: {plugin.error}",
                ExitCode.CONFIG,
                hint=f"jobkit plugins show {name}",
            )
    return None
