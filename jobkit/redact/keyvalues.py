"""Secrets that are recognised by the name before them: `key=value`, `key: value`, query parameters, headers, arguments.

Invariant: no value is read twice, so the time is linear in the text however often a name is repeated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from jobkit.redact.names import Names, words_of
from jobkit.redact.tokens import FAILED, REDACTED, Crowded, Span, matches

# A window with more distinct key names, or more secret ones, than this is nothing that anyone reads.
_DISTINCT: Final = 4096
_SECRET: Final = 512
# Nor is one with a pair in fewer characters than this, all over; minified JSON has six.
_SHORTEST_PAIR: Final = 5

# Read backwards: in a reversed text the separator comes first, and a separator is rare where a letter is not.
# An optional word before the name makes pairs such as "api key: ..." in prose.
_LONGEST_NAME: Final = 80
_NAMED: Final = (
    r"(?![:=]{2})=?+:?+[ \t]{0,40}+[\"'\\\])]{0,6}+((?:[A-Za-z0-9_.-]{3,64}+|di(?= ))(?: [A-Za-z]{3,10}+)?+)"
)
_KEY: Final = re.compile("[:=]" + _NAMED)
# The same, where the value is not redacted yet.
_DONE: Final = re.escape(REDACTED[::-1])
_FRESH: Final = re.compile(
    "[:=]" + "".join(rf"(?<!{_DONE}{gap}.)" for gap in ("", " ", "'", '"', "' ", '" ')) + _NAMED
)
_GAP: Final = re.compile(r">?[ \t]{0,40}+(?:[A-Za-z_][\w.\[\]|]{0,40} = )?+")
_OPENING: Final = re.compile(r"(?:[bBfFrRuU]{1,2}(?=[\"']))?+(\\*+)([\"'`])")
_TRIPLE: Final = {quote: re.compile(rf"{quote}{quote}([^{quote}]++)") for quote in "\"'`"}
_SCHEMES: Final = r"(?:(?:Bearer|Basic|Token|Digest|Negotiate|ApiKey|AWS4-HMAC-SHA256)[ \t]+)?+"
# A bare value goes on to the next blank, and ends earlier only where what follows is clearly something else. One of
# more pieces than anyone's secret has goes on to the next blank in any case.
_LONG: Final = 4096
_BARE: Final = re.compile(
    _SCHEMES + r"(?:[^\s&,;\"'<>)\]}`\\]++"
    r"|&(?!(?:amp;)?[\w.\[\]-]{1,64}=)"
    r"|[,;](?![\s,;]|\Z|[\"']?[A-Za-z_][\w.-]{0,64}[\"']?\s?[=:])"
    r"|[\"'`](?=[A-Za-z0-9])"
    r"|[)\]}>](?=[^\s&,;\"'<>()\[\]{}`\\.:])"
    r"|<(?![/!]|[A-Za-z][\w-]{0,20}[\s/>])"
    rf"|\\++(?![\"'nr])){{1,{_LONG}}}+",
    re.IGNORECASE,
)
_REST: Final = re.compile(r"\S*+")
_BRACKETS: Final = {
    opening: re.compile(rf"\{opening}(?:[^{both}]++|\{opening}[^{both}]*+\{closing})*+\{closing}|[^\r\n]++")
    for opening, closing, both in (("{", "}", "{}"), ("[", "]", r"\[\]"))
}
# JSON in JSON in JSON in JSON has seven backslashes before a quote.
_DEEPEST: Final = 7
_LINE: Final = {
    "": re.compile(r"[^\r\n]++"),
    **{quote: re.compile(rf"[^\r\n{quote}]++") for quote in "\"'`"},
}
_FAULT_WORDS: Final = """
    error exception warning failure failed fault expired invalid bad missing wrong unknown denied mismatch
    required revoked not
"""
_PLACE: Final = re.compile(r"[0-9]{1,5}(?![\w-])")
_SHORT_NUMBERS: Final = frozenset({"pin", "otp", "cvv", "cvc", "pan", "ssn", "sin", "dob"})
_WHOLE_LINE: Final = frozenset({"authorization", "cookie", "cookies", "passphrase"})
_FAULTS: Final = frozenset(_FAULT_WORDS.split())


@lru_cache(maxsize=32)
def _until(escape: int, quote: str) -> re.Pattern[str]:
    """What a quoted value holds: to its closing quote, behind as many backslashes as the opening one, or line end."""
    if escape > _DEEPEST:
        return _LINE[""]
    if escape:
        return re.compile(rf"(?:[^\\\r\n]++|(?!(?<!\\)\\{{{escape}}}{quote})\\)*+")
    return re.compile(rf"(?:[^{quote}\\\r\n]++|\\[^\r\n]|\\)*+")


def _holds_no_value(text: str, name: Span, glue: str, at: int, words: tuple[str, ...]) -> bool:
    """`InvalidTokenError: why`, `auth.py:12`, `http://auth:8080`, `auth://`, `Auth::login`, `if valid(token):`.

    User info in a URL has a finder of its own.
    """
    if "::" in glue or ")" in glue or text.startswith((":", "//"), at) or text.endswith("://", 0, name[0]):
        return True
    last = text.rfind(".", *name) + 1 or name[0]
    if text[last : last + 1].isupper() and not _FAULTS.isdisjoint(words):
        return True
    compound = text[max(0, name[0] - 1) : name[0]] in ("/", "@") or not text[slice(*name)].isalnum()
    return compound and glue == ":" and bool(_PLACE.match(text, at)) and _SHORT_NUMBERS.isdisjoint(words)


def _begins_line(text: str, at: int) -> bool:
    before = text[max(0, at - 32) : at].rstrip(" \t>*#|-\"'")
    return not before or before[-1] in "\r\n"


def _quoted(text: str, opening: re.Match[str]) -> Span | None:
    inner = _until(min(len(opening[1]), _DEEPEST + 1), opening[2]).match(text, opening.end())
    if inner and not inner[0] and (triple := _TRIPLE[opening[2]].match(text, inner.end())):
        return triple.span(1)
    if not inner or inner[0] in ("", REDACTED, FAILED):
        return None
    return inner.span()


def _value(text: str, name: Span, at: int, first: int) -> Span | None:
    """Where the value lies whose secret name is followed by a separator up to `at`; None: nothing to hide.

    `first` is where the name begins with the word of prose that may belong to it.
    """
    glue, words = text[name[1] : at], words_of(text[slice(*name)])
    colon = glue.endswith(":")
    if colon and _holds_no_value(text, name, glue, at, words):
        return None
    gap = _GAP.match(text, at)
    start = gap.end() if gap else at
    if text.startswith((REDACTED, FAILED), start):
        return None
    if opening := _OPENING.match(text, start):
        return _quoted(text, opening)
    pattern = _BRACKETS.get(text[start : start + 1], _BARE)
    whole_line = colon and (not _WHOLE_LINE.isdisjoint(words) or (start > at and _begins_line(text, first)))
    if pattern is _BARE and whole_line:
        before = text[max(0, first - 1) : first]
        pattern = _LINE.get(before if glue == ":" else "", _LINE[""])
    found = pattern.match(text, start)
    if found and pattern is _BARE and len(found[0]) >= _LONG and (rest := _REST.match(text, found.end())):
        return start, rest.end()
    return found.span() if found else None


def _dense(text: str, lo: int, hi: int) -> bool:
    """Whether a large window is full of separators that are no rules such as `=====`."""
    lone = sum(text.count(sign, lo, hi) - 2 * text.count(2 * sign, lo, hi) for sign in "=:")
    return lone > 2 * _DISTINCT and lone * _SHORTEST_PAIR > hi - lo


@dataclass(frozen=True, slots=True)
class KeyValues:
    """`key=value`, `key: value`, query parameters and header lines, by the names of their keys."""

    names: Names

    def __call__(self, text: str, lo: int, hi: int) -> list[Span]:
        if _dense(text, lo, hi):
            raise Crowded
        base = max(0, lo - _LONGEST_NAME)
        backwards = text[base:hi][::-1]
        keys = _KEY.findall(backwards)
        distinct = set(keys)
        if len(distinct) > _DISTINCT:
            raise Crowded
        secret = {key for key in distinct if self.names.prose(key[::-1])}
        if not secret:
            return []
        fresh = sum(map(secret.__contains__, keys)) - backwards.count(REDACTED[::-1])
        if len(keys) > 2 * _DISTINCT or fresh > _SECRET:
            raise Crowded
        found = [found for found in _FRESH.finditer(backwards) if found[1] in secret]
        return self._values(text, found, base + len(backwards))

    def _values(self, text: str, found: list[re.Match[str]], end: int) -> list[Span]:
        spans: list[Span] = []
        done = 0
        for key in reversed(found):
            first, stop = end - key.end(1), end - key.start(1)
            if first < done:
                continue
            name = (text.rfind(" ", first, stop) + 1 or first, stop)
            if span := _value(text, name, end - key.start(), first):
                spans.append(span)
                done = span[1]
        return spans


# Only as a list of arguments shows it: in prose, "--token is required" holds no value.
_ARGUMENT: Final = re.compile(r"--([A-Za-z][\w-]{1,60}+)(['\"]), ?\2([^'\"\r\n]++)")


@dataclass(frozen=True, slots=True)
class Arguments:
    """`['login', '--password', 'value']`: the command line that a failed subprocess names in its error."""

    names: Names

    def __call__(self, text: str, lo: int, hi: int) -> list[Span]:
        return [
            found.span(3)
            for found in matches(_ARGUMENT, text, lo, hi)
            if found[3] != REDACTED and self.names.verdict(found[1])
        ]
