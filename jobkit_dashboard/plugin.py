"""The dashboard as a plugin of jobkit like any other; imports no web framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobkit.hookspecs import PluginInfo, hookimpl
from jobkit_dashboard.settings import DashboardSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

    from jobkit.storage.migrations import Step

jobkit_plugin = PluginInfo(api=1, settings=DashboardSettings, hookspecs="jobkit_dashboard.hookspecs")


@hookimpl
def jobkit_migrations() -> Sequence[Step]:
    """The table of sessions, links and tokens."""
    from jobkit_dashboard.migrations import STEPS

    return STEPS


@hookimpl
def jobkit_commands(group: click.Group) -> None:
    """`jobkit dashboard`."""
    from jobkit_dashboard.commands import dashboard

    group.add_command(dashboard)
