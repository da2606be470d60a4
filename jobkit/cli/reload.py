"""`jobkit run --reload`: notices that Python files have changed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobkit.config import Config

__all__ = ["Changes", "folders"]

PAUSE: Final = 0.5
MOST: Final = 20_000
_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


def folders(config: Config) -> list[Path]:
    """Where to look: the working directory, and that of the configuration file."""
    found = [Path.cwd()]
    if config.file is not None and not config.file.is_relative_to(Path.cwd()):
        found.append(config.file.parent)
    return found


class Changes(Iterator[str]):
    """`next()` gives a file that has changed since the last call, or an empty text; looks twice a second at most."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._seen = self._stamps()
        self._next = 0.0

    def __next__(self) -> str:
        if time.monotonic() < self._next:
            return ""
        self._next = time.monotonic() + PAUSE
        before, self._seen = self._seen, self._stamps()
        changed = {path for path, stamp in self._seen.items() if before.get(path) != stamp}
        return min(changed | (before.keys() - self._seen.keys()), default="")

    def _stamps(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for root in self._roots:
            for path in _files(root):
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except OSError:
                    continue
                if len(found) >= MOST:
                    return found
        return found


def _files(root: Path) -> Iterator[str]:
    prefix = os.path.realpath(sys.prefix)
    for folder, below, names in os.walk(root):
        below[:] = [
            name
            for name in below
            if name not in _LEFT_OUT
            and not name.startswith(".")
            and os.path.realpath(os.path.join(folder, name)) != prefix
        ]
        for name in names:
            if name.endswith(".py") or name in ("jobkit.toml", "pyproject.toml"):
                yield os.path.join(folder, name)
