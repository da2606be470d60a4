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


def matches(
    pattern: re.Pattern[str], text: str, lo: int, hi: int, reach: int | None = None
) -> Iterator[re.Match[str]]:
    """The matches in a window; one that touches the window's end is taken again from the text beyond it."""
    for found in pattern.finditer(text, lo, hi):
        if found.end() < hi or hi == len(text):
            yield found
        elif whole := pattern.match(text, found.start(), found.start() + (reach or len(text))):
            yield whole


_USER_INFO: Final = re.compile(r"://([^\s@\"'<>`]*+)@(?:[^\s/?#@\"'<>`]*+@)*+")
_PASSWORD_WITH_SLASH: Final = re.compile(r"[^/?#:]+:(?!\d*(?:[/?#]|$))")


def find_user_info(text: str, lo: int, hi: int) -> list[Span]:
    """`scheme://user:password@host`, also where the password holds an unescaped `@`, `/`, `?` or `#`."""
    if "@" not in text or text.find("://", lo, hi) < 0:
        return []
    spans = []
    for found in matches(_USER_INFO, text, lo, hi):
        start = text.rfind("://", found.start(), found.end(1)) + 3
        info = text[start : found.end(1)]
        if info in ("", "git", REDACTED) or (
            re.search("[/?#]", info) and not _PASSWORD_WITH_SLASH.match(info)
        ):
            continue
        spans.append((start, found.end() - 1))
    return spans


_SCHEME: Final = re.compile(
    r"[Bb](?<![\w-][Bb])(?:earer|EARER|asic|ASIC)[ \t]+([A-Za-z0-9._~+/-]{4,}+=*+)(?![\w\"'])"
)
_AFTER_BEARER: Final = """
    token tokens auth authentication authorization credential credentials scheme header headers format
    required prefix type method missing invalid expired challenge error
"""


def _is_basic(value: str) -> bool:
    body = value.rstrip("=")
    try:
        decoded = base64.b64decode(body[: len(body) // 4 * 4], validate=True).decode()
    except ValueError:
        return False
    return ":" in decoded and decoded.isprintable()


def _is_bearer(scheme: str, value: str) -> bool:
    if value.rstrip(".=").lower() in _AFTER_BEARER.split():
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


_JWT: Final = re.compile(r"e(?:y[JA]|wo)(?<![\w-]e..)([\w-]*+)((?:\.[\w-]*+){1,4})", re.ASCII)


def find_jwts(text: str, lo: int, hi: int) -> list[Span]:
    """Base64url parts whose first is a JSON object; two parts are enough where it names an algorithm."""
    if not any(text.find(start, lo, hi) >= 0 for start in ("eyJ", "eyA", "ewo")):
        return []
    return [found.span() for found in matches(_JWT, text, lo, hi) if _is_jwt(found)]


def _is_jwt(found: re.Match[str]) -> bool:
    head = found[0].partition(".")[0]
    if len(head) > 8192:
        return True
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and (found[2].count(".") >= 2 or "alg" in header)


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


_UNDERSCORED: Final = re.compile(r"_[A-Za-z0-9]{16,}+")
_PREFIXES: Final = {
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), 20),
    **dict.fromkeys(("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_", "shpat_", "dop_v1_"), 16),
    **dict.fromkeys(("npm_", "hf_"), 30),
}
_TAIL: Final = re.compile(r"[A-Za-z0-9_-]*+")
_VENDOR: Final = tuple(
    (literal, re.compile(pattern, re.ASCII))
    for literal, pattern in (
        ("A", r"A(?<![A-Za-z0-9]A)(?:[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])|Iza[\w-]{30,}+)"),
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
    spans = []
    for found in matches(_UNDERSCORED, text, lo, hi):
        if text.endswith(tuple(_PREFIXES), max(0, found.start() - 10), found.start() + 1):
            spans += _prefixed(text, found)
    for literal, pattern in _VENDOR:
        if text.find(literal, lo, hi) >= 0:
            spans += [found.span() for found in matches(pattern, text, lo, hi)]
    return spans


def _prefixed(text: str, found: re.Match[str]) -> list[Span]:
    body = found.start() + 1
    prefix = next(p for p in _PREFIXES if text.endswith(p, 0, body))
    start = body - len(prefix)
    if len(found[0]) <= _PREFIXES[prefix] or text[max(0, start - 1) : start].isalnum():
        return []
    tail = _TAIL.match(text, found.end())
    return [(start, tail.end() if tail else found.end())]


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
