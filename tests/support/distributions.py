"""Distributions for tests: real metadata and modules in a folder of `sys.path`, found by real discovery."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class Site:
    """A folder of installed-looking distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def module(self, name: str, source: str) -> None:
        """Write a module; `name` may be dotted."""
        path = self.folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADER + textwrap.dedent(source))

    def install(
        self,
        distribution: str,
        version: str = "1.0",
        *,
        plugins: Mapping[str, str] = {},
        workers: Mapping[str, str] = {},
        modules: Mapping[str, str] = {},
        metadata: str | None = None,
    ) -> None:
        """Write a distribution: its entry points of both groups, and its modules."""
        for name, source in modules.items():
            self.module(name, source)
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        named = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        (info / "METADATA").write_text(named if metadata is None else metadata)
        groups = {"jobkit": plugins, "jobkit.workers": workers}
        (info / "entry_points.txt").write_text(
            "\n".join(
                f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
                for group, entries in groups.items()
                if entries
            )
        )


HEADER = """\
from datetime import timedelta
import jobkit
from jobkit import PluginInfo, Recurring, Service, Worker, hookimpl, worker

"""


@contextmanager
def visible(site: Site) -> Iterator[Site]:
    """Make a site part of `sys.path`; its modules are forgotten afterwards."""
    sys.path.append(str(site.folder))
    before = set(sys.modules)
    try:
        yield site
    finally:
        sys.path.remove(str(site.folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith(str(site.folder)):
                del sys.modules[name]
