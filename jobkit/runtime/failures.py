"""Exceptions as text that can always be stored.

Invariant: describing an exception takes bounded time and memory whatever was raised (huge messages, long
chains, vast groups, deep stacks, a `__str__` that fails), never raises, and yields text that both databases
accept.
"""

from __future__ import annotations

import linecache
import re
import reprlib
from collections.abc import Callable
from types import TracebackType
from typing import Final

from jobkit import _functions

__all__ = ["MAX_STORED", "Failure", "brief", "clean", "cut", "describe", "headline", "stored_text"]

MAX_STORED: Final = 4_096
"""Bytes of an error that are stored; the start is kept."""

_MESSAGE: Final = 8_000
"""Characters of one message: so many that what is left out lies behind what is stored, whatever is redacted."""
_DESCRIBED: Final = 32_000
_BRIEF: Final = 300
_FRAMES_FIRST: Final = 4
_FRAMES_LAST: Final = 12
_CHAIN: Final = 6
_MEMBERS: Final = 5
_DEPTH: Final = 3
_WALK: Final = 20_000
"""Frames that are walked before the innermost ones of a stack are given up."""


class Failure(Exception):
    """An error that happened elsewhere (in a child process), as its text; stands in for the exception
    itself.
    """

    def __init__(self, text: str, kind: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.kind = kind or text.partition(":")[0]

    def __str__(self) -> str:
        return self.text.partition("\n")[0].partition(": ")[2]


def headline(exc: BaseException) -> str:
    """`Class: message`, on one line or several; not redacted."""
    if isinstance(exc, Failure):
        return shortened(exc.text.partition("\n")[0], _MESSAGE)
    name = _name(exc)
    message = _message(exc)
    return f"{name}: {message}" if message else name


def describe(exc: BaseException) -> str:
    """`Class: message`, a newline, then the traceback with causes and group members; at most 32,000 characters."""
    if isinstance(exc, Failure):
        return clean(shortened(exc.text, _DESCRIBED))
    try:
        return clean(shortened("\n".join(_lines(exc)), _DESCRIBED))
    except Exception:  # noqa: BLE001 - an exception may be hostile
        return f"{_name(exc)}: <could not be described>"


def brief(exc: BaseException) -> str:
    """One short line for the log about trouble with the database: the driver's words, never a statement's values."""
    original = getattr(exc, "orig", None)
    told = original if isinstance(original, BaseException) else exc
    line = _message(told).strip().partition("\n")[0][:_BRIEF]
    return f"{_name(told)}: {line}" if line else _name(told)


def shortened(text: str, limit: int) -> str:
    """The start of `text`, cut where no token can be: half a secret is one that no pattern knows."""
    if len(text) <= limit:
        return text
    kept = _TOKEN.sub("", text[:limit])
    return f"{kept}… ({len(text)} characters)"


_TOKEN: Final = re.compile(r"[A-Za-z0-9+/=._~%@:-]*+$")


def stored_text(text: str, redact: Callable[[str], str]) -> str:
    """`text` as an error is stored: redacted first, then cut to 4 KB. A redactor that fails hides
    everything.
    """
    try:
        redacted = redact(text)
    except Exception:  # noqa: BLE001 - fails closed
        redacted = "[redaction failed]"
    return cut(clean(redacted), MAX_STORED)


def clean(text: str) -> str:
    """`text` without NUL characters and lone surrogates, which a database would refuse."""
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def cut(text: str, limit: int) -> str:
    """The start of `text`, at most `limit` bytes of UTF-8, cut between characters."""
    if len(text) * 4 <= limit:
        return text
    raw = text[:limit].encode("utf-8")
    if len(raw) <= limit and len(text) <= limit:
        return text
    return raw[: limit - 3].decode("utf-8", "ignore") + "…"


class _Shortened(reprlib.Repr):
    """A `repr` that looks at no more than the beginning of large values."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 8_000
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = self.maxdeque = 20
        self.maxlevel = 4

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > 4_000:
            return f"<int of {x.bit_length()} bits>"
        return repr(x)

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x[:8_000])

    def repr_bytearray(self, x: bytearray, level: int) -> str:
        return repr(x[:8_000])


_shortened: Final = _Shortened()


def _name(exc: BaseException) -> str:
    try:
        return clean(str(type(exc).__name__)[:200])
    except Exception:  # noqa: BLE001 - a metaclass may be hostile
        return "Exception"


def _message(exc: BaseException) -> str:
    try:
        return clean(shortened(_own_message(exc), _MESSAGE))
    except BaseException:  # noqa: BLE001 - job code runs in __str__, and may raise anything
        return "<no text: str() of the exception failed>"


def _own_message(exc: BaseException) -> str:
    """`str(exc)`, without building the text of huge arguments where the class leaves that to Python."""
    if type(exc).__str__ in (BaseException.__str__, KeyError.__str__):
        args = exc.args
        if not args:
            return ""
        if len(args) > 1:
            return _shortened.repr(args)
        if isinstance(args[0], str) and type(exc).__str__ is BaseException.__str__:
            return str.__str__(args[0])
        return _shortened.repr(args[0])
    text = str(exc)
    return str.__str__(text)


def _lines(exc: BaseException) -> list[str]:
    lines = [headline(exc)]
    _stack(exc, lines, "")
    seen = {id(exc)}
    _related(exc, lines, seen, "", _DEPTH)
    return lines


def _related(exc: BaseException, lines: list[str], seen: set[int], indent: str, depth: int) -> None:
    """Append the members of a group, then the causes, each exception once."""
    if isinstance(exc, BaseExceptionGroup) and depth > 0:
        _members(exc, lines, seen, indent, depth)
    current: BaseException | None = exc
    for _ in range(_CHAIN):
        word, current = _next(current)
        if current is None or id(current) in seen:
            return
        seen.add(id(current))
        lines.append(f"{indent}{word} {headline(current)}")
        _stack(current, lines, indent)
        if isinstance(current, BaseExceptionGroup) and depth > 0:
            _members(current, lines, seen, indent, depth)
    if current is not None and _next(current)[1] is not None:
        lines.append(f"{indent}... further causes left out")


def _members(
    group: BaseExceptionGroup[BaseException], lines: list[str], seen: set[int], indent: str, depth: int
) -> None:
    members = group.exceptions
    for number, member in enumerate(members[:_MEMBERS], 1):
        if id(member) in seen:
            continue
        seen.add(id(member))
        lines.append(f"{indent}  [{number}] {headline(member)}")
        _stack(member, lines, indent + "  ")
        _related(member, lines, seen, indent + "  ", depth - 1)
    if len(members) > _MEMBERS:
        lines.append(f"{indent}  ... {len(members) - _MEMBERS} more in the group")


def _next(exc: BaseException | None) -> tuple[str, BaseException | None]:
    if exc is None:
        return "", None
    if exc.__cause__ is not None:
        return "caused by", exc.__cause__
    if exc.__context__ is not None and not exc.__suppress_context__:
        return "while handling", exc.__context__
    return "", None


def _stack(exc: BaseException, lines: list[str], indent: str) -> None:
    """Append the outermost and the innermost frames of the exception's traceback."""
    first: list[TracebackType] = []
    last: list[TracebackType] = []
    skipped = 0
    tb = exc.__traceback__
    for _ in range(_WALK):
        if tb is None:
            break
        if len(first) < _FRAMES_FIRST:
            first.append(tb)
        else:
            last.append(tb)
            if len(last) > _FRAMES_LAST:
                del last[0]
                skipped += 1
        tb = tb.tb_next
    for entry in first:
        _frame(entry, lines, indent)
    if skipped:
        lines.append(f"{indent}  ... {skipped} frames left out")
    for entry in last:
        _frame(entry, lines, indent)


def _frame(tb: TracebackType, lines: list[str], indent: str) -> None:
    code = tb.tb_frame.f_code
    if code.co_filename.startswith(_OWN):
        return
    lines.append(f'{indent}  File "{code.co_filename[-300:]}", line {tb.tb_lineno}, in {code.co_name[:100]}')
    source = linecache.getline(code.co_filename, tb.tb_lineno or 0, tb.tb_frame.f_globals)[:400].strip()
    if source:
        lines.append(f"{indent}    {source[:200]}")


_RUNTIME: Final = __file__.rpartition("failures.py")[0]
_OWN: Final = (_RUNTIME, _functions.__file__)
"""Frames of jobkit's own way to job code say nothing about the job."""
