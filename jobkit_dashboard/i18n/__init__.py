"""The catalogue `en.json`, and which texts it has to have.

Invariant: what `texts` finds and what the file holds are the same; a test compares them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jobkit.jobs import JobState
from jobkit_dashboard.words import said_in, texts_of

__all__ = ["FILE", "texts"]

FILE: Final = Path(__file__).parent / "en.json"
NAMES: Final = frozenset(
    {
        *map(str, JobState), "running", "paused", "part paused", "no nodes", "stopping", "live", "stale", "lost",
        "draining", "active", "missed", "invalid", "attention", "broken", "denied", "conflict", "failed", "done", "ok",
        "disabled", "replaced", "skipped", "duplicate", "pending",
    }
)  # fmt: skip
"""What things are said to be: looked up by name where they are shown."""
_PACKAGE: Final = Path(__file__).parents[1]
_WORD: Final = re.compile(r"[A-Za-z]{2}")


def texts() -> set[str]:
    """Every text of our templates, and everything that templates, scripts and code give to `say`."""
    found: set[str] = {*NAMES, *(state.value.capitalize() for state in JobState)}
    for file in sorted((_PACKAGE / "templates").rglob("*.html")):
        source = file.read_text("utf-8")
        found.update(texts_of(source), said_in(source))
    for file in sorted((_PACKAGE / "static").glob("*.js")):
        found.update(said_in(file.read_text("utf-8")))
    for file in sorted(_PACKAGE.rglob("*.py")):
        found.update(_said(file.read_text("utf-8")))
    return {text for text in found if _WORD.search(text)}


def _said(source: str) -> Iterator[str]:
    """The first argument of each call of `say` in Python."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say"):
            continue
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value
