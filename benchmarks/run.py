"""Run the comparison: `python benchmarks/run.py [options]`, or `make bench`.

Any Python 3 may start this file: it finds the one interpreter that all environments share, builds the
harness's own environment with it and goes on there.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.harness.environments import HARNESS, Environments  # noqa: E402


def main() -> None:
    environments = Environments(ROOT)
    python = environments.ensure(HARNESS)
    os.environ["PYTHONPATH"] = str(environments.path)
    os.chdir(ROOT)
    os.execv(python, [str(python), "-m", "benchmarks.harness", *sys.argv[1:]])


if __name__ == "__main__":
    main()
