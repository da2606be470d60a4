"""JSON values as a tree to unfold.

Invariant: bounded: at most `MOST` nodes are made, whatever the value; what is left out is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from jobkit.admin._ast import Part, path_text, quoted

__all__ = ["MOST", "Node", "tree_of"]

MOST: Final = 400
_DEEP: Final = 20
_LONG: Final = 2_000


@dataclass(slots=True)
class Node:
    """One value. Leaves have `text`; `term` is the query that finds jobs with the same value here."""

    key: str
    kind: str
    text: str = ""
    term: str = ""
    kids: list[Node] = field(default_factory=list)
    size: int = 0
    left_out: int = 0


class _Budget:
    def __init__(self) -> None:
        self.left = MOST


def tree_of(value: object, name: str) -> Node:
    """The tree of a redacted value; `name` is `args` or `meta`."""
    return _node("", value, name, (), _Budget(), 0)


def _node(key: str, value: object, name: str, path: tuple[Part, ...], budget: _Budget, depth: int) -> Node:
    budget.left -= 1
    if isinstance(value, Mapping):
        pairs = [(str(k), v, (*path, str(k))) for k, v in value.items()]
        return _branch(key, "object", pairs, name, budget, depth)
    if isinstance(value, (list, tuple)):
        items = [(str(i), v, (*path, i)) for i, v in enumerate(value)]
        return _branch(key, "list", items, name, budget, depth)
    text, kind = _leaf(value)
    hidden = text.startswith("[redact") or len(text) > 200
    term = "" if hidden or not path else f"{name}{path_text(path)}:{quoted(text) if kind == 'text' else text}"
    cut = len(text) - _LONG
    return Node(key, kind, text[:_LONG] + (f"… {cut:,} more characters" if cut > 0 else ""), term)


def _branch(
    key: str,
    kind: str,
    items: list[tuple[str, object, tuple[Part, ...]]],
    name: str,
    budget: _Budget,
    depth: int,
) -> Node:
    node = Node(key, kind, size=len(items))
    for at, (child, value, path) in enumerate(items):
        if budget.left <= 0 or depth >= _DEEP:
            node.left_out = len(items) - at
            break
        node.kids.append(_node(child, value, name, path, budget, depth + 1))
    return node


def _leaf(value: object) -> tuple[str, str]:
    if value is None:
        return "null", "null"
    if isinstance(value, bool):
        return ("true" if value else "false"), "bool"
    if isinstance(value, (int, float)):
        return str(value), "number"
    return str(value), "text"
