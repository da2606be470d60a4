"""`key=value` and `key:=json` as people type them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode

__all__ = ["parse_pairs"]


def parse_pairs(
    words: Iterable[str], where: str, types: Mapping[str, object] | None = None
) -> dict[str, object]:
    """A mapping; `key=value` is text, unless `types` say that the key holds none. Raises CommandError."""
    found: dict[str, object] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.rstrip(":"):
            raise CommandError(f"{where}: {word!r}: expected KEY=VALUE or KEY:=JSON", ExitCode.USAGE)
        if key.endswith(":"):
            found[key[:-1]] = _json(text, where, key[:-1])
        else:
            found[key] = _by_type(text, (types or {}).get(key, str))
    return found


def _json(text: str, where: str, key: str) -> object:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{where}: {key}: no valid JSON: {error}", ExitCode.USAGE) from None
    return found


def _by_type(text: str, kind: object) -> object:
    """Text where the type takes text; else what JSON reads, or the text, which the worker will judge."""
    if kind is str or "str" in str(kind):
        return text
    try:
        found: object = json.loads(text)
    except ValueError:
        return text
    return found
