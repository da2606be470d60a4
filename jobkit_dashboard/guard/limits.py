"""Bounds on what a request may bring.

Invariant: nothing larger than its limit is ever held in memory, whatever length the client claims.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl

__all__ = [
    "MAX_ARGS_BODY", "MAX_BODY", "MAX_FIELDS", "MAX_JSON_DEPTH", "MAX_URL", "Disconnected", "Refused", "parse_form",
    "parse_json", "read_body",
]  # fmt: skip

MAX_BODY: Final = 256 * 1024
MAX_ARGS_BODY: Final = 1024 * 1024
MAX_URL: Final = 8 * 1024
MAX_FIELDS: Final = 2_000
MAX_JSON_DEPTH: Final = 32
BODY_SECONDS: Final = 15.0

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Refused(Exception):
    """The request is refused with this status; the text is for people."""

    def __init__(self, status: int, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after = retry_after


class Disconnected(Exception):
    """The client went away while it was sending."""


async def read_body(receive: Receive, *, limit: int, declared: str | None) -> bytes:
    """The body, counted while it streams in. Raises Refused (413, 408, 400), Disconnected."""
    if declared is not None and not declared.isdecimal():
        raise Refused(400, "the Content-Length is no number")
    if declared is not None and int(declared) > limit:
        raise Refused(413, f"a request's body has at most {limit // 1024} KiB")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _stream(receive, limit)
    except TimeoutError:
        raise Refused(408, "the body did not arrive in time") from None


async def _stream(receive: Receive, limit: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body += message.get("body", b"")
        if len(body) > limit:
            raise Refused(413, f"a request's body has at most {limit // 1024} KiB")
        if not message.get("more_body", False):
            return bytes(body)


def parse_form(body: bytes) -> list[tuple[str, str]]:
    """The fields of a form in order; invalid UTF-8 is replaced. Raises Refused."""
    try:
        return parse_qsl(
            body.decode("utf-8", "replace"),
            keep_blank_values=True,
            max_num_fields=MAX_FIELDS,
            encoding="utf-8",
            errors="replace",
        )
    except ValueError:
        raise Refused(400, f"a form has at most {MAX_FIELDS:,} fields") from None


def parse_json(body: bytes) -> object:
    """A JSON document of bounded depth. Raises Refused."""
    if _depth(body) > MAX_JSON_DEPTH:
        raise Refused(400, f"JSON may be nested at most {MAX_JSON_DEPTH} deep")
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON: {error}") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _depth(body: Iterable[int]) -> int:
    """How deep brackets are nested, those in strings left out."""
    deepest = depth = 0
    in_string = escaped = False
    for byte in body:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x5B, 0x7B):
            depth += 1
            deepest = max(deepest, depth)
        elif byte in (0x5D, 0x7D):
            depth -= 1
    return deepest
