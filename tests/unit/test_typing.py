"""The type checkers as users run them, over a good file and a file of mistakes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parent.parent / "typing"
GOOD = SAMPLES / "good.py"
BAD = SAMPLES / "bad.py"
ROOT = SAMPLES.parent.parent


def mypy(path: Path, cache: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False).stdout


def pyright(path: Path) -> str:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False).stdout


def refused(path: Path) -> set[int]:
    """The lines that say that they are refused."""
    lines = path.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# refused")}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_mypy_strict_accepts_what_users_write(cache: Path) -> None:
    assert "Success" in mypy(GOOD, cache)


def test_mypy_refuses_exactly_the_mistakes(cache: Path) -> None:
    found = {int(line) for line in re.findall(r"bad\.py:(\d+): error", mypy(BAD, cache))}
    assert found == refused(BAD)


def test_pyright_strict_accepts_what_users_write() -> None:
    assert "0 errors" in pyright(GOOD)


def test_pyright_refuses_exactly_the_mistakes() -> None:
    found = {int(line) for line in re.findall(r"bad\.py:(\d+):\d+ - error", pyright(BAD))}
    assert found == refused(BAD)
