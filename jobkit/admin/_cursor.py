"""Cursors: the place in a list, as a text for links.

Invariant: a cursor only moves within rows that its bearer may see; one that is malformed, or belongs to
another filter or order, is None, and the list starts at its top.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

__all__ = ["Cursor", "Key", "fingerprint"]

Key: TypeAlias = tuple[int | datetime, ...]
_VERSION: Final = 1
_MAX_LENGTH: Final = 512
_MAX_KEYS: Final = 3
_INT64: Final = 2**63


def fingerprint(*texts: str) -> str:
    """What tells two filters apart."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Cursor:
    """The rows after `key` in this order; `back`: those before it."""

    sort: str
    descending: bool
    key: Key
    filter: str
    back: bool = False

    def encode(self) -> str:
        """base64url of compact JSON."""
        keys = [at.isoformat() if isinstance(at, datetime) else at for at in self.key]
        body = {"v": _VERSION, "s": self.sort, "d": self.descending, "k": keys, "f": self.filter}
        text = json.dumps({**body, "b": True} if self.back else body, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Cursor | None:
        """The cursor that the text is; None if it is none."""
        if len(text) > _MAX_LENGTH or not text.isascii():
            return None
        try:
            body = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            if not isinstance(body, dict) or body.get("v") != _VERSION:
                return None
            return cls._checked(body)
        except (ValueError, TypeError, RecursionError, OverflowError):
            return None

    @classmethod
    def _checked(cls, body: dict[str, object]) -> Cursor | None:
        sort, down, keys, name, back = (body.get(part) for part in ("s", "d", "k", "f", "b"))
        if not (isinstance(sort, str) and isinstance(down, bool) and isinstance(name, str)):
            return None
        if not isinstance(keys, list) or not 1 <= len(keys) <= _MAX_KEYS:
            return None
        return cls(sort, down, tuple(map(_key, keys)), name, back is True)


def _key(value: object) -> int | datetime:
    if isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64:
        return value
    if isinstance(value, str):
        at = datetime.fromisoformat(value)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    raise ValueError("neither a number nor an instant")
