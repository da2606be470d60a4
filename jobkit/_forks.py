"""What a process made by fork forgets of its parent.

Invariant: a child neither uses nor ends what belongs to its parent. Connections come first: ending one in the
child, even by garbage collection, would say good-bye to the server on the parent's line.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

__all__ = ["in_children", "leave_to_parent"]

T = TypeVar("T")


class HasDescriptor(Protocol):
    """A driver's connection."""

    def fileno(self) -> int:
        """The descriptor of its socket."""
        ...


_lines: Final[weakref.WeakSet[HasDescriptor]] = weakref.WeakSet()
_forgetful: Final[weakref.WeakKeyDictionary[Any, Callable[[Any], object]]] = weakref.WeakKeyDictionary()


def in_children(thing: T, forget: Callable[[T], object]) -> None:
    """Call `forget(thing)` in each forked child, as long as `thing` lives; `forget` must not refer to it."""
    _forgetful[thing] = forget


def leave_to_parent(line: HasDescriptor) -> None:
    """In each forked child this connection's descriptor leads nowhere: nothing done there reaches the server."""
    _lines.add(line)


def _after_fork() -> None:
    for line in list(_lines):
        with suppress(Exception):  # closed already
            _lead_nowhere(line.fileno())
    _lines.clear()
    for thing in list(_forgetful):
        _forgetful[thing](thing)


def _lead_nowhere(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
