"""Reading the documentation: its pages, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NO_RUN = "<!-- no-run -->"
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*) *$")
HIDDEN = re.compile(r"^<!-- setup *$")


@dataclass(frozen=True)
class Block:
    """One block: its language, its text, the line on which the text begins, and whether it is to be run."""

    language: str
    text: str
    line: int
    runs: bool


def pages() -> list[Path]:
    """All pages, the README first."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page in order. What stands in a comment `<!-- setup` is a python block nobody sees."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        fence, hidden = FENCE.match(lines[number]), HIDDEN.match(lines[number])
        if not fence and not hidden:
            number += 1
            continue
        end = number + 1
        while lines[end].strip() != ("-->" if hidden else "```"):
            end += 1
        runs = hidden is not None or lines[max(number - 1, 0)].strip() != NO_RUN
        indent = len(fence["indent"]) if fence else 0
        text = "\n".join(line[indent:] for line in lines[number + 1 : end])
        yield Block("python" if hidden else fence["language"] if fence else "", text, number + 2, runs)
        number = end + 1


def between(page: Path, name: str) -> str:
    """What stands between the markers `<!-- name:begin -->` and `<!-- name:end -->`."""
    text = page.read_text()
    start, stop = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    assert start in text, f"{page.name} lacks {start!r}"
    assert stop in text, f"{page.name} lacks {stop!r}"
    return text.partition(start)[2].partition(stop)[0]


def replace_between(page: Path, name: str, content: str) -> None:
    """Write the generated text between the two markers."""
    old = between(page, name)
    begin = f"<!-- {name}:begin -->\n"
    page.write_text(page.read_text().replace(begin + old, begin + content))
