"""The numbers behind docs/reliability.md: each fault test notes what it did and what happened.

    FAULTS_FIGURES=figures.jsonl pytest -m "slow or not slow" tests/faults tests/processes
    python -m tests.faults.figures figures.jsonl

The second command writes the table between the markers of docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

BEGIN, END = "<!-- faults:begin -->", "<!-- faults:end -->"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


def record(what: str, done: str, happened: str) -> None:
    """Note one row of the table, where somebody collects them."""
    if path := os.environ.get("FAULTS_FIGURES"):
        with open(path, "a") as file:
            file.write(json.dumps([what, done, happened]) + "\n")


def table(lines: list[str]) -> str:
    """The rows as Markdown; of rows about the same thing the last one counts."""
    rows = {(what, done): happened for what, done, happened in map(json.loads, lines)}
    told = [f"| {what} | {done} | {happened} |" for (what, done), happened in rows.items()]
    return "\n".join(["| what | how | what happened |", "|---|---|---|", *sorted(told)])


def main() -> None:
    """Put the table into the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = table(Path(sys.argv[1]).read_text().splitlines())
    PAGE.write_text(f"{before}{BEGIN}\n\n{rows}\n\n{END}{after}")


if __name__ == "__main__":
    main()
