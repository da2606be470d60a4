"""Python tracebacks taken apart: frames of the application open, frames of libraries folded.

Invariant: text that is no traceback, or a cut one, comes out as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Block", "Frame", "parse_traceback"]

_FRAME: Final = re.compile(
    r'  File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9})(?:, in (?P<name>[^\n]{1,300}))?'
)
_LIBRARY: Final = re.compile(
    r"[/\\](site-packages|dist-packages|lib[/\\]python\d[\d.]*)[/\\]|^<frozen |[/\\]jobkit[/\\]runtime[/\\]"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame with its lines of source."""

    file: str
    line: int
    name: str
    code: str
    library: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Frames in a row that are shown alike, or plain text between them."""

    kind: str
    frames: tuple[Frame, ...] = ()
    text: str = ""


def parse_traceback(text: str) -> list[Block]:
    """The text in blocks of kind `app`, `library` and `text`, in order."""
    blocks: list[Block] = []
    plain: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        found = _FRAME.match(lines[at])
        if found is None:
            plain.append(lines[at])
            at += 1
            continue
        _flush(blocks, plain)
        code = []
        at += 1
        while at < len(lines) and lines[at].startswith("    "):
            code.append(lines[at].strip())
            at += 1
        shown = "\n".join(line for line in code if line.strip("^~ "))
        library = _LIBRARY.search(found["file"]) is not None
        _add(blocks, Frame(found["file"], int(found["line"]), found["name"] or "", shown, library))
    _flush(blocks, plain)
    return blocks


def _flush(blocks: list[Block], plain: list[str]) -> None:
    text = "\n".join(plain).strip("\n")
    if text and text != "Traceback (most recent call last):":
        blocks.append(Block("text", text=text))
    plain.clear()


def _add(blocks: list[Block], frame: Frame) -> None:
    kind = "library" if frame.library else "app"
    if blocks and blocks[-1].kind == kind:
        blocks[-1] = Block(kind, (*blocks[-1].frames, frame))
    else:
        blocks.append(Block(kind, (frame,)))
