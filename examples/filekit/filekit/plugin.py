"""The nightly re-scan, as a jobkit plugin."""

from __future__ import annotations

from dataclasses import dataclass

from filekit.workers import ScanFolder
from jobkit import PluginInfo, Recurring, hookimpl
from jobkit.config import Config


@dataclass(frozen=True, slots=True)
class FilekitSettings:
    """`[plugins.filekit]`: the folder of the nightly scan and where its results go."""

    folder: str = ""
    output: str = "filekit-output"


jobkit_plugin = PluginInfo(api=1, settings=FilekitSettings)


@hookimpl
def jobkit_schedules(config: Config) -> list[Recurring]:
    """A scan each night at 03:00, once a folder is configured; without one there is nothing to run."""
    settings = config.plugin("filekit", FilekitSettings)
    if not settings.folder:
        return []
    scan = ScanFolder(folder=settings.folder, output=settings.output)
    return [Recurring("filekit_nightly_scan", "0 3 * * *", scan)]
