"""Redaction: nothing that looks like a credential leaves through an error, a page, a search or an export.

Four rules, in order: paths that a worker declared secret, key names, a plugin's hook, and text patterns
inside every string. The invariants: no method raises, what cannot be judged is hidden (`FAILED`), and
redacting twice gives what redacting once gives, because a text is only returned once another round would
leave it alone.

Redact the whole text first and cut it afterwards: the first half of a token is one that no pattern knows.
Every pattern here takes time linear in its input: possessive quantifiers, bounded look-arounds, and no value
is read twice. Texts over 64 KB are searched in windows that overlap; a match that touches its window's end is
taken again from the whole text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from jobkit.redact import tokens
from jobkit.redact.keyvalues import Arguments, KeyValues
from jobkit.redact.names import Names, normal
from jobkit.redact.tokens import FAILED, REDACTED, Crowded, Finder, Span, matches

__all__ = ["FAILED", "REDACTED", "Hook", "RedactionRules", "Redactor"]

Hook = Callable[[object, str, str | None, str], object | None]
"""`(value, path, worker, kind)` to a replacement, or None to leave the value to the built-in rules.

Asked for every value that neither its path nor its name hides, containers before what they hold; list positions
are no part of a path. The built-in rules judge the answer like any other value; a hook that raises hides the value.
"""

_WINDOW: Final = 64 * 1024
_OVERLAP: Final = 4 * 1024
_ROUNDS: Final = 4
_MAX_DEPTH: Final = 64
_MAX_NODES: Final = 200_000
_MARKER: Final = re.compile(r"\[redact(?:ed|ion failed)\]")


@dataclass(frozen=True, slots=True)
class RedactionRules:
    """What a site adds to the built-in rules, or takes away (settings `redaction.*`).

    `keys` are key names, in any spelling of one or more words; `patterns` are regular expressions whose whole
    match is hidden; `allow` are full paths (`args.token_count`) that are shown as they stand unless a worker
    declared them secret; `off` turns everything off, declared paths and hooks included.
    """

    keys: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    off: bool = False


def _windows(length: int) -> Iterator[Span]:
    lo = 0
    while lo + _WINDOW < length:
        yield lo, lo + _WINDOW
        lo += _WINDOW - _OVERLAP
    yield lo, length


def search(text: str, finders: Iterable[Finder]) -> list[Span]:
    """Where the finders see secrets, window by window; a crowded window is one secret as a whole."""
    spans: list[Span] = []
    covered = 0
    for lo, hi in _windows(len(text)):
        if hi <= covered and hi < len(text):
            continue
        try:
            found = [span for find in finders for span in find(text, lo, hi)]
        except Crowded:
            found = [(lo, hi)]
        spans += found
        covered = max((end for _, end in found), default=covered)
    return spans


def _cover(text: str, spans: list[Span]) -> str:
    """The text with every span replaced; a marker that is already there is never cut nor nested."""
    parts: list[str] = []
    copied = 0
    for lo, hi in _merged(wide for span in spans if (wide := _widened(text, *span))):
        parts += [text[copied:lo], REDACTED]
        copied = hi
    return "".join((*parts, text[copied:]))


def _widened(text: str, lo: int, hi: int) -> Span | None:
    """The span with the markers that it cuts; None where it lies within one."""
    for marker in _MARKER.finditer(text, max(0, lo - len(FAILED)), hi + len(FAILED)):
        start, end = marker.span()
        if start <= lo and hi <= end:
            return None
        if start < lo < end:
            lo = start
        if start < hi < end:
            hi = end
    return lo, hi


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for lo, hi in sorted(spans):
        if merged and lo < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
        else:
            merged.append((lo, hi))
    return merged


def _extra(pattern: str) -> Finder:
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"redaction.patterns: {pattern!r} is no regular expression: {error}") from error
    # A site's own pattern may be slower than linear: it never gets more than two windows at once.
    return lambda text, lo, hi: [
        found.span()
        for found in matches(compiled, text, lo, hi, reach=_WINDOW)
        if found.end() > found.start()
    ]


def finders(names: Names) -> dict[str, Finder]:
    """The built-in pattern sets by name, in no order that matters."""
    return {
        "user info": tokens.find_user_info,
        "keys and values": KeyValues(names),
        "arguments": Arguments(names),
        "schemes": tokens.find_schemes,
        "jwt": tokens.find_jwts,
        "private keys": tokens.find_private_keys,
        "vendor tokens": tokens.find_vendor_tokens,
        "cards": tokens.find_cards,
    }


class Redactor:
    """Hides credentials in texts and JSON values. Thread-safe; no method but the constructor raises.

    Raises ValueError when a key name holds no letter or a pattern does not compile.
    """

    __slots__ = ("_allow", "_extra", "_finders", "_hook", "_names", "_off")

    def __init__(self, rules: RedactionRules = RedactionRules(), hook: Hook | None = None) -> None:
        self._names = Names(rules.keys)
        self._extra = tuple(_extra(pattern) for pattern in rules.patterns)
        self._finders = (*finders(self._names).values(), *self._extra)
        self._allow = frozenset(map(normal, rules.allow))
        self._off = rules.off
        self._hook = hook

    def text(self, text: str, *, worker: str | None = None, kind: str = "error") -> str:
        """The whole text without its secrets; cut it afterwards, never before. A hook sees `kind` as path."""
        if self._off:
            return text
        try:
            plain = text if isinstance(text, str) else str(text)
            found = _Walk(self, worker, kind, frozenset()).node(plain, kind)
        except Exception:  # noqa: BLE001 - fails closed, whatever went wrong
            return FAILED
        return found if isinstance(found, str) else FAILED

    def value(
        self,
        value: object,
        *,
        path: str = "args",
        worker: str | None = None,
        kind: str = "args",
        secret_paths: Iterable[str] = (),
    ) -> object:
        """A copy of a JSON value without its secrets.

        `path` says where the value stands (`args`, `args.card`), `secret_paths` what its worker declared,
        relative to the args. What is no JSON value is shown as its redacted `str()`.
        """
        if self._off:
            return value
        try:
            declared = frozenset(map(normal, secret_paths))
            if self._secret_path(path, declared):
                return REDACTED
            return _Walk(self, worker, kind, declared).node(value, path)
        except Exception:  # noqa: BLE001 - fails closed, whatever went wrong
            return FAILED

    def is_secret_key(self, name: str) -> bool:
        """Whether a value under this key name is hidden."""
        return not self._off and self._guarded(lambda: self._names.verdict(name))

    def is_secret_path(self, path: str, secret_paths: Iterable[str] = ()) -> bool:
        """Whether the value at a path such as `args.user.password`, or one that holds it, is hidden."""
        return not self._off and self._guarded(
            lambda: self._secret_path(path, frozenset(map(normal, secret_paths)))
        )

    @staticmethod
    def _guarded(judge: Callable[[], bool]) -> bool:
        try:
            return judge()
        except Exception:  # noqa: BLE001 - fails closed, whatever went wrong
            return True

    def _secret_path(self, path: str, declared: frozenset[tuple[str, ...]]) -> bool:
        parts = normal(path)
        return any(
            self._hidden(".".join(parts[:end]), parts[end - 2] if end > 1 else "", parts[end - 1], declared)
            for end in range(1, len(parts) + 1)
        )

    def _hidden(self, path: str, parent: str, name: str, declared: frozenset[tuple[str, ...]]) -> bool:
        """Rules 1 and 2, for a value whose path is that of its parent and its own name."""
        if declared:
            parts = normal(path)
            if parts in declared or (parts[0] == "args" and parts[1:] in declared):
                return True
        if not (self._names.verdict(name) or self._names.joined(parent, name)):
            return False
        return not self._allowed(path)

    def _allowed(self, path: str) -> bool:
        return bool(self._allow) and normal(path) in self._allow

    def _settle(self, text: str) -> str:
        """Rule 3, until another round changes nothing; a text that never settles is hidden whole."""
        if len(text) < 13 and not self._extra and text.isalnum():
            return text
        for _ in range(_ROUNDS):
            spans = search(text, self._finders)
            if not spans or (covered := _cover(text, spans)) == text:
                return text
            text = covered
        return REDACTED


class _TooMuch(Exception):
    """The value holds more than any job's: all of it is hidden, not only the part that came last."""


@dataclass(slots=True)
class _Walk:
    """One walk through one value: what it may still visit, and the containers that it stands in."""

    redactor: Redactor
    worker: str | None
    kind: str
    declared: frozenset[tuple[str, ...]]
    left: int = _MAX_NODES
    within: set[int] = field(default_factory=set)

    def node(self, value: object, path: str, in_json: bool = False) -> object:
        self.left -= 1
        if self.left < 0:
            raise _TooMuch
        try:
            hook = self.redactor._hook
            answer = hook(value, path, self.worker, self.kind) if hook else None
            return self.built_in(value if answer is None else answer, path, in_json)
        except _TooMuch:
            raise
        except Exception:  # noqa: BLE001 - fails closed, whatever went wrong
            return FAILED

    def built_in(self, value: object, path: str, in_json: bool) -> object:
        if isinstance(value, (dict, list, tuple)):
            return self.container(value, path, in_json)
        if value is None or isinstance(value, (bool, float)):
            return value
        allowed = self.redactor._allowed(path)
        if isinstance(value, int):
            card = not allowed and 10**12 <= value < 10**19 and tokens.is_card(str(value))
            return REDACTED if card else value
        # An own class of strings may answer anything; only its characters are asked.
        text = str.__str__(value) if isinstance(value, str) else str(value)
        return text if allowed else self.string(text, path, in_json)

    def container(
        self, value: dict[object, object] | list[object] | tuple[object, ...], path: str, in_json: bool
    ) -> object:
        if id(value) in self.within or len(self.within) >= _MAX_DEPTH:
            return FAILED
        self.within.add(id(value))
        try:
            if not isinstance(value, dict):
                return [self.node(item, path, in_json) for item in value]
            parent = path.rpartition(".")[2]
            return dict(self.entry(key, item, path, parent, in_json) for key, item in value.items())
        finally:
            self.within.discard(id(value))

    def entry(
        self, key: object, item: object, path: str, parent: str, in_json: bool
    ) -> tuple[object, object]:
        name = key if isinstance(key, str) else str(key)
        below = f"{path}.{name}"
        hidden = self.redactor._hidden(below, parent, name, self.declared)
        shown = key if key is None or isinstance(key, (bool, int, float)) else self.redactor._settle(name)
        return shown, REDACTED if hidden else self.node(item, below, in_json)

    def string(self, text: str, path: str, in_json: bool) -> str:
        if not in_json and text.lstrip()[:1] in ("{", "["):
            try:
                parsed = json.loads(text, object_pairs_hook=_without_twins)
            except (ValueError, RecursionError):
                return self.redactor._settle(text)
            shown = self.node(parsed, path, in_json=True)
            return text if shown == parsed else json.dumps(shown, ensure_ascii=False)
        return self.redactor._settle(text)


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object; a second value under one key would hide the first from the walk: such a text is no JSON."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found
