"""Commands that plugins add through `jobkit_commands(group)`.

Invariant: a plugin that raises, or that takes a name of jobkit's own, breaks no other command.
"""

from __future__ import annotations

import copy
import logging

import click

from jobkit.cli.root import Root
from jobkit.cli.session import Session

__all__ = ["add_plugin_commands"]

log = logging.getLogger("jobkit.plugins")


def add_plugin_commands(root: Root, session: Session) -> None:
    """Ask the plugins of this configuration; where it is wrong there are none, and the command will say why.

    The options after the command are not read yet, so what is looked at here is forgotten again.
    """
    looking = Session()
    looking.given = copy.deepcopy(session.given)
    try:
        registry = looking.core.registry
        registry.load()
    except Exception as error:  # noqa: BLE001 - help must work with the worst configuration
        log.debug("no commands of plugins: %s", error)
        return
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
