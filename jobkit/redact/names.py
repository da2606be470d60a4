"""Which key names stand before a secret: whole words and neighbouring words, never substrings.

`author`, `monkey` and `passenger` are no secrets, so a name is split into its words first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_KEY_WORDS: Final = """
    password passwords passwd pwd pass passphrase passcode secret secrets token apikey apikeys authorization
    auth cookie cookies csrf xsrf otp pin cvv cvc pan ssn iban sin dob credential credentials signature salt
    dsn accesskey privatekey secretkey sessionid sessid phpsessid jsessionid cardnumber databaseurl
    connectionstring webhookurl authtoken accesstoken refreshtoken csrftoken csrfmiddlewaretoken pgpassword
    dbpassword api-key api-keys access-key access-keys private-key private-keys client-secret session-id
    card-number database-url connection-string webhook-url account-key encryption-key signing-key master-key
"""

_WORD: Final = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+")


@lru_cache(maxsize=4096)
def words_of(name: str) -> tuple[str, ...]:
    """The lower-case words of a camelCase, snake_case, kebab-case or dotted name; digits separate words."""
    return tuple(word.lower() for word in _WORD.findall(name))


def normal(path: str) -> tuple[str, ...]:
    """A path's components without list positions, which no rule looks at: `items[0].pin`, `items.0.pin`."""
    parts = re.sub(r"\[[^\]]*\]", "", path).split(".")
    return tuple(part for part in parts if part and part != "*" and not part.isdecimal()) or tuple(parts)


class Names:
    """Tells secret key names from others: whole words and neighbouring words, never substrings."""

    __slots__ = ("_phrases", "_sizes", "verdict")

    def __init__(self, extra: Iterable[str]) -> None:
        phrases = {words_of(name) for name in (*_KEY_WORDS.split(), *extra)}
        if () in phrases:
            raise ValueError("redaction.keys: a key name needs at least one letter, found one without")
        self._phrases = frozenset(phrases)
        self._sizes = sorted({len(phrase) for phrase in phrases})
        self.verdict = lru_cache(maxsize=8192)(self._judge)

    def _judge(self, name: str) -> bool:
        words = words_of(name)
        return any(
            words[at : at + size] in self._phrases and words[at : at + 2] != ("token", "count")
            for size in self._sizes
            for at in range(len(words) - size + 1)
        )

    def joined(self, parent: str, name: str) -> bool:
        """Whether two names that stand side by side make a known pair: `card` holding `number`, "api key"."""
        return words_of(parent)[-1:] + words_of(name)[:1] in self._phrases if parent else False

    def prose(self, name: str) -> bool:
        """`verdict` for a name in running text, where the word before it may make the pair."""
        before, _, last = name.rpartition(" ")
        return self.verdict(last) or self.joined(before, last)
