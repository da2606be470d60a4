"""Text on its way to people: without control characters, in colour only where that is wanted.

Invariant: no text that came from a job, a log or an error reaches a terminal before `clean` or `line` has gone over it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, Literal, TextIO, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ColorChoice", "clean", "console", "json_safe", "line", "wants_color"]

ColorChoice: TypeAlias = Literal["auto", "always", "never"]

# C0 but tab and newline, DEL, C1, the marks that reorder text, separators that some terminals obey, lone surrogates.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def clean(text: str) -> str:
    """The text with everything that a terminal might obey written out; lines and tabs stay."""
    return _UNSAFE.sub(_escape, text)


def line(text: str) -> str:
    """The text as one line that is safe anywhere."""
    return clean(text.replace("\n", "\\n").replace("\t", "\\t"))


def json_safe(text: str) -> str:
    """JSON text in which unsafe characters are escaped, so that it may be shown on a terminal."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def wants_color(stream: TextIO, choice: ColorChoice) -> bool:
    """Whether colours are wanted there: `--color`, then NO_COLOR, then what the stream is."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def console(stream: TextIO, choice: ColorChoice, *, width: int | None = None) -> Console:
    """A rich console on that stream; text given to it as `Text` is never read as markup."""
    from rich.console import Console

    color = wants_color(stream, choice)
    return Console(
        file=stream,
        force_terminal=True if color else None,
        no_color=not color,
        color_system="auto" if color else None,
        markup=False,
        highlight=False,
        emoji=False,
        width=width,
    )
