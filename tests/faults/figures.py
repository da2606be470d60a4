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
HEAD = ("| what was done | on | what happened | how it is tested |", "|---|---|---|---|")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


NAMES = {"sqlite": "SQLite", "postgresql": "Postgres"}


def record(on: str, what: str, done: str, happened: str) -> None:
    """Note one row of the table, where somebody collects them; `on` is the database."""
    if path := os.environ.get("FAULTS_FIGURES"):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
        with open(path, "a") as file:
            file.write(json.dumps([what, done, NAMES.get(on, on), happened, test]) + "\n")


def table(lines: list[str]) -> str:
    """The rows as Markdown; of rows about the same thing the last one counts."""
    rows = {(what, on): (done, happened, test) for what, done, on, happened, test in map(json.loads, lines)}
    told = [
        f"| {what}: {done} | {on} | {happened} | `{test}` |"
        for (what, on), (done, happened, test) in sorted(rows.items())
    ]
    return "\n".join([*HEAD, *told])


def main() -> None:
    """Put the table into the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = table(Path(sys.argv[1]).read_text().splitlines())
    PAGE.write_text(f"{before}{BEGIN}\n{rows}\n{END}{after}")


if __name__ == "__main__":
    main()
