"""Annotations of workers and functions, resolved also under `from __future__ import annotations`.

Invariant: a name that cannot be resolved yet stays as it is, so that a worker may refer to a class that its
module defines further down; asking again later resolves it.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from types import FrameType

__all__ = ["annotations_of", "defining_frame", "resolve", "unresolved"]

_MAX_FRAMES = 12


def annotations_of(thing: type | Callable[..., object]) -> dict[str, object]:
    """The thing's own annotations, as written."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return dict(annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF))
    return dict(inspect.get_annotations(thing))


def resolve(
    annotations: Mapping[str, object], module: str, outer: Mapping[str, object], inner: Mapping[str, object]
) -> dict[str, object]:
    """Annotations with their text evaluated, where it can be.

    Names are looked up in `outer` (the function that the definition stands in), then in the module, then in
    `inner` (the class body): in this order a field may be called like its type.
    """
    names = {**vars(sys.modules.get(module, typing)), **outer}
    return {key: _resolved(hint, dict(inner), names) for key, hint in annotations.items()}


def _resolved(hint: object, globalns: dict[str, object], localns: dict[str, object]) -> object:
    holder = type("holder", (), {"__annotations__": {"hint": hint}})
    try:
        return typing.get_type_hints(holder, globalns, localns, include_extras=True)["hint"]
    except (NameError, AttributeError):
        return hint


def unresolved(hint: object) -> bool:
    """True if `resolve` left the hint as text."""
    return isinstance(hint, str | typing.ForwardRef)


def defining_frame(module: str) -> FrameType | None:
    """The innermost frame of `module` on the stack: where the definition that is running stands."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame is None or frame.f_globals.get("__name__") == module:
            return frame
        frame = frame.f_back
    return None
