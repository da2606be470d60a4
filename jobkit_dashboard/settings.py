"""`[plugins.dashboard]` of the configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["DashboardSettings"]


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """What an installation says once for all of its dashboards.

    - `label`, `colour`: shown in the top bar, so that nobody acts in the wrong place; the colour is one of
      grey, blue, green, amber, red.
    - `refresh`: the shortest interval of the live refresh in seconds.
    - `editor_url`: a pattern with `{file}` and `{line}` that makes links of traceback lines.
    - `api`: whether `R/api/v1/` answers (with tokens of `jobkit dashboard token`).
    """

    label: str = ""
    colour: str = "grey"
    refresh: int = 1
    editor_url: str = ""
    api: bool = False

    def __post_init__(self) -> None:
        """Check the values; raises ValueError."""
        if self.colour not in ("grey", "blue", "green", "amber", "red"):
            raise ValueError(f"colour must be grey, blue, green, amber or red, not {self.colour!r}")
        if not 1 <= self.refresh <= 3600:
            raise ValueError(f"refresh must lie between 1 and 3600 seconds, not {self.refresh}")
        if len(self.label) > 40:
            raise ValueError("label has at most 40 characters")
        if self.editor_url and not re.match(r"[a-z][a-z0-9+-]*:", self.editor_url):
            raise ValueError("editor_url must be a URL such as vscode://file/{file}:{line}")
        if self.editor_url.startswith(("javascript:", "data:")):
            raise ValueError("editor_url must not run code")
