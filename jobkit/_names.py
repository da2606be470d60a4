"""Names, tags and whole numbers as users give them: checked once, in one place.

Invariant: what passes here is accepted by both databases, by every page and by every command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from jobkit.errors import ArgsError, JobkitError

__all__ = ["MAX_TAGS", "MAX_TAG_LENGTH", "check_name", "check_tags", "clamped", "snake_case"]

MAX_TAGS: Final = 50
MAX_TAG_LENGTH: Final = 200

_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def check_name(value: object, what: str, error: type[JobkitError] = ArgsError) -> str:
    """`value` as the name of a queue, worker, cron key or plugin; else raises `error` with the rule."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise error(f"{what}: {value!r:.150} is no name (1 to 128 ASCII letters, digits, '_', '-', '.', '/')")


def check_tags(tags: object) -> tuple[str, ...]:
    """`tags` as a tuple, order kept. Raises ArgsError for one text, over 50 tags, or a tag that is no tag."""
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise ArgsError(f"tags: a list of texts is expected, not {type(tags).__name__}")
    checked = tuple(_check_tag(tag) for tag in tags)
    if len(checked) > MAX_TAGS:
        raise ArgsError(f"tags: {len(checked)} tags, at most {MAX_TAGS} are allowed")
    return checked


def _check_tag(tag: object) -> str:
    if not isinstance(tag, str):
        raise ArgsError(f"tags: a tag is text, not {type(tag).__name__}")
    if not 1 <= len(tag) <= MAX_TAG_LENGTH:
        raise ArgsError(f"tags: a tag has 1 to {MAX_TAG_LENGTH} characters, this one {len(tag)}")
    if _UNPRINTABLE.search(tag):
        raise ArgsError(f"tags: {tag!r} holds control characters")
    return str(tag)


def clamped(value: object, low: int, high: int, what: str, error: type[JobkitError] = ArgsError) -> int:
    """A whole number, brought into low..high; raises `error` for anything else (bool, float, text)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise error(f"{what}: a whole number is expected, not {type(value).__name__} {value!r:.50}")
    return int(min(max(value, low), high))


def snake_case(name: str) -> str:
    """`SendWelcomeEmail` -> `send_welcome_email`, `HTTPFetch` -> `http_fetch`."""
    return _WORD_START.sub("_", name).lower()
