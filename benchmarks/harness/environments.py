"""One virtual environment a peer, all of one interpreter, under `.bench/envs`.

An environment is rebuilt when its requirements or the interpreter change; one that holds this checkout
also when the checkout does. Standard library only: this file runs before any environment exists.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 12)
PACKAGES = ("jobkit", "jobkit_dashboard", "jobkit_cleanup")


@dataclass(frozen=True)
class Environment:
    """A name and its file of pinned requirements, relative to `benchmarks/`."""

    name: str
    requirements: str


HARNESS = Environment("harness", "harness/requirements.txt")


class Environments:
    """The environments of one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = root / ".bench"
        self.path = self._import_path()
        self.interpreter = find_interpreter()

    def ensure(self, environment: Environment) -> Path:
        """The environment's Python, built first where it is missing or out of date."""
        home = self.base / "envs" / environment.name
        python, stamp = home / "bin" / "python", home / "bench-stamp"
        wanted = self._fingerprint(environment)
        if python.exists() and stamp.exists() and stamp.read_text() == wanted:
            return python
        print(f"building the environment {environment.name}", file=sys.stderr)
        shutil.rmtree(home, ignore_errors=True)
        run([self.interpreter, "-m", "venv", str(home)], self.root)
        requirements = str(self.root / "benchmarks" / environment.requirements)
        run([str(python), "-m", "pip", "install", "--quiet", "-r", requirements], self.root)
        stamp.write_text(wanted)
        return python

    def _import_path(self) -> Path:
        """A directory that holds `benchmarks` and nothing else, so that no environment sees the checkout's jobkit."""
        path = self.base / "path"
        path.mkdir(parents=True, exist_ok=True)
        link = path / "benchmarks"
        if not link.is_symlink():
            link.symlink_to(self.root / "benchmarks")
        return path

    def _fingerprint(self, environment: Environment) -> str:
        requirements = (self.root / "benchmarks" / environment.requirements).read_text()
        digest = hashlib.sha256(f"{self.interpreter}\n{requirements}".encode())
        if any(line.startswith(".") for line in requirements.splitlines()):
            for file in self._sources():
                digest.update(file.read_bytes())
        return digest.hexdigest()

    def _sources(self) -> list[Path]:
        found = [self.root / "pyproject.toml"]
        for package in PACKAGES:
            found += sorted(
                file
                for file in (self.root / package).rglob("*")
                if file.is_file() and "__pycache__" not in file.parts
            )
        return found


def find_interpreter() -> str:
    """BENCH_PYTHON, else the newest Python of PATH and of pyenv that is new enough for every peer."""
    if chosen := os.environ.get("BENCH_PYTHON"):
        return chosen
    names = [f"python3.{minor}" for minor in range(14, OLDEST[1] - 1, -1)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [str(path) for path in pyenv.glob("3.*/bin/python")]
    candidates += [found for name in [*names, "python3"] if (found := shutil.which(name))]
    usable = [
        (version, path) for path in [*candidates, sys.executable] if (version := version_of(path)) >= OLDEST
    ]
    if not usable:
        raise SystemExit("no Python 3.12 or newer in PATH or pyenv; name one in BENCH_PYTHON")
    return max(usable)[1]


def version_of(python: str) -> tuple[int, ...]:
    """The version that an interpreter reports, (0,) if it does not run."""
    try:
        code = "import sys; print(*sys.version_info[:3])"
        out = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return (0,)
    return tuple(int(part) for part in out.split())


def run(command: list[str], cwd: Path) -> None:
    """Run a command; its output is shown only when it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
