"""Secrets that are recognised by their own form, whatever stands before them.

A finder takes a text and a window and returns where secrets lie, in time linear in the window: possessive
quantifiers, bounded look-arounds, and a search for a rare letter first.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Final

REDACTED: Final = "[redacted]"
FAILED: Final = "[redaction failed]"

Span = tuple[int, int]
Finder = Callable[[str, int, int], list[Span]]


class Crowded(Exception):
    """A window holds more of what looks like secrets than anyone reads: hide it whole, and save the time."""


def matches(
    pattern: re.Pattern[str], text: str, lo: int, hi: int, *, reach: int | None = None, most: int = 1024
) -> Iterator[re.Match[str]]:
    """The matches in a window; one that touches the window's end is taken again from the text beyond it.

    Raises `Crowded` after `most` matches.
    """
    for count, found in enumerate(pattern.finditer(text, lo, hi)):
        if count == most:
            raise Crowded
        if found.end() < hi or hi == len(text):
            yield found
        elif whole := pattern.match(text, found.start(), found.start() + (reach or len(text))):
            yield whole


# Up to the last `@` before the path; or, with a password that holds `/`, `?` or `#`, up to the first.
_USER_INFO: Final = re.compile(
    r"://(?:[^\s/?#@\"'<>`]*+@|[^\s/?#@:\"'<>`]++:(?![0-9]*+[/?#])[^\s@:\"'<>`]++@)(?:[^\s/?#@\"'<>`]*+@)*+"
)


def find_user_info(text: str, lo: int, hi: int) -> list[Span]:
    """`scheme://user:password@host`, also where the password holds an unescaped `@`, `/`, `?` or `#`."""
    if text.find("@", lo, hi) < 0 or text.find("://", lo, hi) < 0:
        return []
    return [
        (found.start() + 3, found.end() - 1)
        for found in matches(_USER_INFO, text, lo, hi)
        if found[0] not in ("://@", "://git@", f"://{REDACTED}@")
    ]


_SCHEME: Final = re.compile(
    r"[Bb](?<![\w-][Bb])(?:earer|EARER|asic|ASIC)[ \t]+([A-Za-z0-9._~+/-]{4,}+=*+)(?![\w\"'])"
)
_AFTER_BEARER: Final = """
    token tokens auth authentication authorization credential credentials scheme header headers format
    required prefix type method missing invalid expired challenge error
"""
_PROSE: Final = frozenset(_AFTER_BEARER.split())


def _is_basic(value: str) -> bool:
    body = value.rstrip("=")
    try:
        decoded = base64.b64decode(body[: len(body) // 4 * 4], validate=True).decode()
    except ValueError:
        return False
    return ":" in decoded and decoded.isprintable()


def _is_bearer(scheme: str, value: str) -> bool:
    if value.rstrip(".=").lower() in _PROSE:
        return False
    return len(value) >= 20 or any(c.isdecimal() for c in value) or (scheme != "bearer" and len(value) >= 6)


def find_schemes(text: str, lo: int, hi: int) -> list[Span]:
    """`Bearer ...` and `Basic ...` outside an Authorization header; prose about either stays."""
    low = text[lo:hi].lower()
    if "bearer" not in low and "basic" not in low:
        return []
    spans = []
    for found in matches(_SCHEME, text, lo, hi):
        scheme, value = found[0].split(None, 1)
        if _is_basic(value) if scheme.lower() == "basic" else _is_bearer(scheme, value):
            spans.append(found.span(1))
    return spans


_JWT: Final = re.compile(r"e(?:y[JA]|wo)(?<![\w-]e..)[\w-]{7,}+((?:\.[\w-]*+){1,4})", re.ASCII)


def find_jwts(text: str, lo: int, hi: int) -> list[Span]:
    """Base64url parts whose first is a JSON object; two parts are enough where it names an algorithm."""
    if not any(text.find(start, lo, hi) >= 0 for start in ("eyJ", "eyA", "ewo")):
        return []
    return [found.span() for found in matches(_JWT, text, lo, hi, most=256) if _is_jwt(found)]


def _is_jwt(found: re.Match[str]) -> bool:
    head = found[0].partition(".")[0]
    if len(head) > 8192:
        return True
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and (found[1].count(".") >= 2 or "alg" in header)


_BREAK: Final = r"(?:\s|\\+[nr]|[\"',>|])*+"
_PEM: Final = re.compile(
    rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?={_BREAK}(?:[A-Za-z0-9+/=]{{16}}|Proc-Type|Version|Comment))"
    rf"(?:(?:[^-]++|-(?!----))*+-----END [A-Z0-9 ]{{0,40}}-----"
    # Without its end line, as far as lines of base64 go.
    rf"|(?:{_BREAK}(?:[A-Za-z-]+: [^\n\\]*+|[A-Za-z0-9+/=]{{16,}}+))*+"
    rf"(?:{_BREAK}[A-Za-z0-9+/=]++(?=\s*\Z))?+)"
)


def find_private_keys(text: str, lo: int, hi: int) -> list[Span]:
    if text.find("-----BEGIN ", lo, hi) < 0:
        return []
    return [found.span() for found in matches(_PEM, text, lo, hi)]


_UNDERSCORED: Final = re.compile(r"_(?<=[poursetc1mf]_)[A-Za-z0-9]{16,}+")
# By the shortest body that counts: 20, 16 and 30 characters.
_PREFIX: Final = re.compile(
    r"(?<![A-Za-z0-9])"
    r"(?:(gh[pousr]_|github_pat_)|((?:[sr]k_(?:live|test)|whsec|shpat|dop_v1)_)|((?:npm|hf)_))\Z"
)
_SHORTEST: Final = (0, 20, 16, 30)
_TAIL: Final = re.compile(r"[A-Za-z0-9_-]*+")
_VENDOR: Final = tuple(
    (literal, re.compile(pattern, re.ASCII))
    for literal, pattern in (
        ("AKIA", r"AKIA(?<![A-Za-z0-9]AKIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("ASIA", r"ASIA(?<![A-Za-z0-9]ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("AIza", r"AIza(?<![A-Za-z0-9]AIza)[\w-]{30,}+"),
        ("xox", r"xox[a-z](?<![A-Za-z0-9]xox[a-z])-[A-Za-z0-9.-]{8,}+"),
        ("xapp-", r"xapp-(?<![A-Za-z0-9]xapp-)[A-Za-z0-9-]{16,}+"),
        ("glpat-", r"glpat-(?<![A-Za-z0-9]glpat-)[\w-]{16,}+"),
        ("pypi-AgE", r"pypi-AgE[\w-]{16,}+"),
        ("sk-", r"sk-(?<![A-Za-z0-9]sk-)(?:(?:proj|ant|svcacct)-[\w-]{10,}+|[A-Za-z0-9]{32,}+)"),
        ("SG.", r"SG\.(?<![A-Za-z0-9]SG\.)[\w-]{16,}+\.[\w-]{16,}+"),
    )
)


def find_vendor_tokens(text: str, lo: int, hi: int) -> list[Span]:
    """AWS, GitHub, Slack, Stripe, Google, npm, PyPI and their like, each by its prefix."""
    spans = [span for found in matches(_UNDERSCORED, text, lo, hi) if (span := _prefixed(text, found))]
    for literal, pattern in _VENDOR:
        if text.find(literal, lo, hi) >= 0:
            spans += [found.span() for found in matches(pattern, text, lo, hi)]
    return spans


def _prefixed(text: str, found: re.Match[str]) -> Span | None:
    body = found.start() + 1
    prefix = _PREFIX.search(text, max(0, body - 12), body)
    if not prefix or found.end() - body < _SHORTEST[prefix.lastindex or 0]:
        return None
    tail = _TAIL.match(text, found.end())
    return prefix.start(), tail.end() if tail else found.end()


_CARD: Final = re.compile(
    r"[2-6](?<![0-9A-Za-z][2-6])(?<![0-9]\.[2-6])[0-9]{3}"
    r"(?:[0-9]{9,15}|([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{1,7}|([ -])[0-9]{6}\2[0-9]{4,5})(?![0-9A-Za-z]|\.[0-9])"
)
_BRAND: Final = re.compile(
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})|5[0-9]{15,18}|6[0-9]{15,18}|35[0-9]{14,17}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[689][0-9])[0-9]{11}|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{12}"
)
_DOUBLED: Final = bytes.maketrans(b"0123456789", b"0246813579")


def is_card(digits: str) -> bool:
    """Whether a known brand's length and first digits fit, and the Luhn sum is right."""
    if not _BRAND.fullmatch(digits):
        return False
    raw = digits.encode("ascii")
    return (sum(raw[-1::-2]) + sum(raw[-2::-2].translate(_DOUBLED)) - 48 * len(raw)) % 10 == 0


def find_cards(text: str, lo: int, hi: int) -> list[Span]:
    return [
        found.span()
        for found in matches(_CARD, text, lo, hi)
        if is_card(found[0].replace(" ", "").replace("-", ""))
    ]
