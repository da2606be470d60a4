"""The query's text cut into raw terms: where each stands, and which characters it holds.

Invariant: every character belongs to a term, a blank, or a problem; nothing is dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from jobkit.admin._ast import Op, quoted

__all__ = ["RawTerm", "RawValue", "Wrong", "scan", "unquoted"]

_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_NAME: Final = re.compile(rf'(?!")(?:[^\s:,"]|{_QUOTED})+(?=:)', re.DOTALL)
_STRING: Final = re.compile(_QUOTED, re.DOTALL)
_OPERATOR: Final = re.compile(r">=|<=|>|<|=")
_WORD: Final = re.compile(r'[^\s,"]*')
_BARE: Final = re.compile(r'[^\s"]+')
_BLANK: Final = re.compile(r"\s*")
_REST: Final = re.compile(r"\S*")


class Wrong(Exception):
    """A problem at a place; raised and caught within the parser only."""

    def __init__(self, message: str, start: int = 0, length: int = 0, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.length = length
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class RawValue:
    """One value as typed: an operator, and text without its quotes. Stars stand outside of quotes."""

    text: str
    start: int
    length: int
    op: Op | None = None
    quoted: bool = False
    star_before: bool = False
    star_after: bool = False


@dataclass(frozen=True, slots=True)
class RawTerm:
    """One term; `name` is None for a bare one."""

    name: str | None
    values: tuple[RawValue, ...]
    negated: bool
    start: int
    length: int


def unquoted(text: str) -> str:
    """The characters between the quotes."""
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def scan(text: str) -> Iterator[RawTerm | Wrong]:
    """The terms in order; one that cannot be read is a Wrong, and the next blank ends it."""
    at = _end(_BLANK, text, 0)
    while at < len(text):
        scanner = _Scanner(text, at)
        try:
            yield scanner.term()
            at = scanner.at
        except Wrong as wrong:
            yield wrong
            at = max(_end(_REST, text, max(scanner.at, wrong.start + wrong.length)), at + 1)
        at = _end(_BLANK, text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


class _Scanner:
    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at

    def term(self) -> RawTerm:
        start = self.at
        negated = self._next() == "-"
        if negated:
            self.at += 1
        name = _NAME.match(self.text, self.at)
        if name is None:
            values: tuple[RawValue, ...] = (self._bare(),)
        else:
            self.at = name.end() + 1
            values = tuple(self._values(name[0]))
        return RawTerm(name[0] if name else None, values, negated, start, self.at - start)

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _bare(self) -> RawValue:
        start = self.at
        if self._next() == '"':
            return RawValue(self._string(), start, self.at - start, quoted=True)
        self.at = _end(_BARE, self.text, start)
        word = self.text[start : self.at]
        if not word:
            raise Wrong("there is nothing after the minus sign", start - 1, 1)
        self._refuse_quote(start)
        return RawValue(word, start, len(word))

    def _values(self, name: str) -> Iterator[RawValue]:
        while True:
            yield self._value(name)
            if self._next() != ",":
                return
            self.at += 1

    def _value(self, name: str) -> RawValue:
        start = self.at
        op = _OPERATOR.match(self.text, start)
        self.at = op.end() if op else start
        before = self._star()
        is_quoted = self._next() == '"'
        if is_quoted:
            word = self._string()
        else:
            begin, self.at = self.at, _end(_WORD, self.text, self.at)
            word = self.text[begin : self.at]
        after = self._star() if is_quoted else False
        self._refuse_quote(start)
        if not word and not is_quoted and not before:
            raise Wrong(f"{name}: needs a value here", max(start - 1, 0), max(self.at - start, 1))
        if not is_quoted and word.endswith("*"):
            word, after = word[:-1], True
        return RawValue(
            word, start, self.at - start, cast("Op", op[0]) if op else None, is_quoted, before, after
        )

    def _star(self) -> bool:
        if self._next() != "*":
            return False
        self.at += 1
        return True

    def _string(self) -> str:
        found = _STRING.match(self.text, self.at)
        if found is None:
            start, self.at = self.at, len(self.text)
            raise Wrong("this quote is never closed", start, len(self.text) - start)
        self.at = found.end()
        if self._next() and not re.match(r"[\s,*]", self._next()):
            raise Wrong(
                "a blank is needed after the closing quote", found.start(), found.end() - found.start()
            )
        return unquoted(found[0])

    def _refuse_quote(self, start: int) -> None:
        if self._next() not in ("", ",") and not self._next().isspace():
            end = _end(_REST, self.text, self.at)
            word = self.text[start:end]
            raise Wrong(
                "a quote stands inside a word; put the whole value in quotes",
                start,
                end - start,
                quoted(word.replace('"', "")),
            )
