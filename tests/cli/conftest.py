"""Fixtures of the command line's tests: every test that takes `cli` runs on both databases."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Cli, Seeded, seed


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory of its own, and neither variables nor log handlers left behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = dict(os.environ)
    level = logging.getLogger("jobkit").level
    yield
    for name in [name for name in os.environ if name.startswith("JOBKIT_") and name not in before]:
        del os.environ[name]
    logging.getLogger("jobkit").setLevel(level)
    root = logging.getLogger()
    for handler in [h for h in root.handlers if getattr(h, "jobkit_cli", False)]:
        root.removeHandler(handler)


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Iterator[Cli]:
    """The command line against an empty database, on both backends."""
    cli = Cli(database_url, tmp_path)
    yield cli
    cli.end_what_runs()


@pytest.fixture
def lite(sqlite_url: str, tmp_path: Path) -> Iterator[Cli]:
    """The command line against a SQLite file, for what has nothing to do with the database."""
    cli = Cli(sqlite_url, tmp_path)
    yield cli
    cli.end_what_runs()


@pytest.fixture
def seeded(cli: Cli) -> Iterator[Seeded]:
    """A job in every state, in the database of `cli`."""
    app = cli.app()
    yield seed(app)
    app.close()
