"""The words of the pages, by one catalogue.

English stands where it is used: in the templates as text, in Python as `say("...")`. `i18n/en.json` lists every one of
these texts with what is shown for it; another language is another file with the same keys. Invariant: a text that the
catalogue does not know is shown as it is, and what a value of a job says is never looked up.

Texts of templates are looked up once, when a template is compiled. A sentence with values in it is one text:
`Type {{ typed }} to go on` is looked up as `Type {1} to go on`, and a translation may put the places in another order.

Scripts call `say("...")` too; the few texts that they need go to the browser as a module of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Final

from jinja2 import Environment
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

__all__ = ["TemplateWords", "catalogue", "said_in", "say", "texts_of"]

SHOWN: Final = frozenset({"title", "placeholder", "aria-label", "alt"})
"""Attributes whose values people read or hear."""
QUIET: Final = frozenset({"code", "pre", "kbd", "svg", "style", "script"})
"""Elements whose text is no language: commands, keys, pictures."""
_TAG: Final = re.compile(r"<(/?)([a-zA-Z][\w-]*)|<!--.*?-->|<![^>]*>", re.S)
_ATTRIBUTE: Final = re.compile(r"""([\w:-]+)\s*=\s*(["'])|(/?>)""")
_SAID: Final = re.compile(r"""\bsay\(\s*"((?:[^"\\]|\\.)*)\"""")
_PLACE: Final = re.compile(r"\{(\d+)\}")
_WORD: Final = re.compile(r"[A-Za-z]{2}")


@cache
def catalogue(language: str = "en") -> Mapping[str, str]:
    """The texts of a language, by the English text."""
    file = resources.files("jobkit_dashboard") / "i18n" / f"{language}.json"
    found: dict[str, str] = json.loads(file.read_text("utf-8"))
    return found


def say(text: str, /, **values: object) -> str:
    """A text of the catalogue, its places `{name}` filled in."""
    return catalogue().get(text, text).format(**values) if values else catalogue().get(text, text)


def said_in(source: str) -> list[str]:
    """What a template or a script gives to `say`, in order."""
    return _SAID.findall(source)


class TemplateWords(Extension):
    """Looks up the texts of templates as they are compiled."""

    words: Mapping[str, str] | None = None

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        """The stream with every text in the catalogue's words; templates of plugins keep theirs."""
        if stream.name is not None and stream.name.startswith("plugin:"):
            return stream
        words = catalogue() if self.words is None else self.words
        return _Reader(words).read(stream)


def texts_of(source: str) -> list[str]:
    """Every text of a template, in order, as the catalogue has them."""
    seen = _Seen()
    environment = Environment(trim_blocks=True, lstrip_blocks=True)
    tokens = environment._tokenize(source, "template", None, None)
    for _ in _Reader(seen).read(tokens):
        pass
    return seen.texts


class _Seen(dict[str, str]):
    """A catalogue that notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def get(self, key: str, default: object = None) -> str:
        self.texts.append(key)
        return key


class _Reader:
    """Walks through a template's tokens with an eye on where in the HTML they stand."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words
        self._parts: list[str | list[Token]] = []
        self._line = 1
        self._where = "text"  # text, tag, or the quote that ends an attribute's value
        self._shown = True
        self._quiet = 0

    def read(self, stream: Iterable[Token]) -> Iterator[Token]:
        """The tokens again, texts looked up."""
        expression: list[Token] | None = None
        for token in stream:
            if expression is not None:
                expression.append(token)
                if token.type == "variable_end":
                    yield from self._value(expression)
                    expression = None
            elif token.type == "variable_begin":
                expression = [token]
            elif token.type == "data":
                yield from self._data(token)
            else:
                yield from self._flush()
                yield token
        yield from self._flush()

    def _value(self, expression: list[Token]) -> Iterator[Token]:
        if self._reads:
            self._parts.append(expression)
        else:
            yield from expression

    @property
    def _reads(self) -> bool:
        """Whether people read what stands here."""
        return self._shown if self._where != "text" else not self._quiet

    def _data(self, token: Token) -> Iterator[Token]:
        text, at, self._line = token.value, 0, token.lineno
        while at < len(text):
            end = self._ahead(text, at)
            piece = text[at:end]
            if self._where != "tag" and self._reads:
                self._parts.append(piece)
            elif piece:
                yield Token(token.lineno, "data", piece)
            if end < len(text):
                yield from self._flush()
                at = self._turn(text, end)
                yield Token(token.lineno, "data", text[end:at])
            else:
                at = end

    def _ahead(self, text: str, at: int) -> int:
        """Where what stands here ends: at a tag, at an attribute's value, at its closing quote."""
        if self._where == "text":
            found = _TAG.search(text, at)
        elif self._where == "tag":
            found = _ATTRIBUTE.search(text, at)
        else:
            end = text.find(self._where, at)
            return len(text) if end < 0 else end
        return len(text) if found is None else found.start()

    def _turn(self, text: str, at: int) -> int:
        """Goes past what ends here; returns where the next begins."""
        if self._where == "text":
            found = _TAG.match(text, at)
            assert found is not None
            if found[2]:
                self._where, name = "tag", found[2].lower()
                if name in QUIET:
                    self._quiet += -1 if found[1] else 1
            return found.end()
        if self._where == "tag":
            found = _ATTRIBUTE.match(text, at)
            assert found is not None
            if found[3]:
                self._where = "text"
            else:
                self._where, self._shown = found[2], found[1].lower() in SHOWN
            return found.end()
        self._where = "tag"
        return at + 1

    def _flush(self) -> Iterator[Token]:
        """What was gathered, looked up."""
        parts, self._parts = self._parts, []
        if not parts:
            return
        values = [part for part in parts if not isinstance(part, str)]
        key, number = "", 0
        for part in parts:
            if isinstance(part, str):
                key += part
            else:
                number += 1
                key += f"{{{number}}}"
        bare = " ".join(key.split())
        if not _WORD.search(_PLACE.sub("", bare)):
            said = key
        else:
            before, after = key[: len(key) - len(key.lstrip())], key[len(key.rstrip()) :]
            said = before + self._words.get(bare, bare) + after
        yield from self._said(said, values)

    def _said(self, text: str, values: list[list[Token]]) -> Iterator[Token]:
        at = 0
        for place in _PLACE.finditer(text):
            if place.start() > at:
                yield Token(self._line, "data", text[at : place.start()])
            number = int(place[1])
            if 1 <= number <= len(values):
                yield from values[number - 1]
            at = place.end()
        if at < len(text):
            yield Token(self._line, "data", text[at:])
