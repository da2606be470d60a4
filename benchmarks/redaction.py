"""How long redaction takes: each pattern set, and the whole redactor, over 1 MB of hostile text; and usual errors.

    python benchmarks/redaction.py [--runs 3] [--all]

Prints the worst inputs of each pattern set (with `--all`: every input) in milliseconds of processor time, the
best of `--runs` runs. The goal is 50 ms a pattern set and megabyte.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobkit.redact import Redactor, finders, search
from jobkit.redact.names import Names
from tests.unit.redaction_corpus import HOSTILE

GOAL_MS = 50


def best(run: Callable[[], object], runs: int) -> float:
    """The shortest of `runs` runs, in milliseconds of processor time."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times) * 1000


def pattern_sets() -> Iterator[tuple[str, Callable[[str], object]]]:
    for name, find in finders(Names(())).items():
        yield name, partial(search, finders=[find])
    yield "the whole redactor, both rounds", Redactor().text


def usual_error() -> str:
    try:
        int("https://deploy:not-a-password@api.example.com/v1/charges?token=not-a-token")
    except ValueError:
        text = traceback.format_exc()
    return text * 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="every input, not only the worst three")
    options = parser.parse_args()
    for name, run in pattern_sets():
        times = sorted(
            ((best(partial(run, text), options.runs), at) for at, text in HOSTILE.items()),
            reverse=True,
        )
        print(f"{name}: {'over the goal' if times[0][0] > GOAL_MS else 'within the goal'}")
        for milliseconds, at in times if options.all else times[:3]:
            print(f"  {milliseconds:8.1f} ms  {at}")
    error, redactor = usual_error(), Redactor()
    clean = error.replace("://deploy:not-a-password@", "://").replace("?token=not-a-token", "")
    for name, text in (
        ("an error with secrets", error),
        ("an error without", clean),
        ("a short value", "user-17 is here"),
    ):
        print(
            f"{name} ({len(text)} characters): {best(partial(redactor.text, text), 200) * 1000:.0f} microseconds"
        )


if __name__ == "__main__":
    main()
