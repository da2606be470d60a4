"""The hourly schedule, as a plugin of jobkit like any other."""

from __future__ import annotations

from jobkit.config import Config
from jobkit.hookspecs import PluginInfo, hookimpl
from jobkit.schedules import Recurring
from jobkit_cleanup.tasks import CleanupSettings
from jobkit_cleanup.worker import Cleanup

jobkit_plugin = PluginInfo(api=1, settings=CleanupSettings, hookspecs="jobkit_cleanup.hookspecs")


@hookimpl
def jobkit_schedules(config: Config) -> list[Recurring]:
    """At the full hour; a run that is still waiting or running is not doubled."""
    return [Recurring("jobkit_cleanup", "0 * * * *", Cleanup())]
