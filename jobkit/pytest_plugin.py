"""Fixtures for the tests of programs that enqueue jobs; pytest finds them by jobkit's entry point.

Invariant: a test that uses none of them pays for none: everything is imported inside the fixtures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from jobkit.app import Jobkit
    from jobkit.testing import FrozenClock


@pytest.fixture
def jobkit_clock() -> FrozenClock:
    """The test's clock. It stands still at the machine's present until `advance`."""
    from jobkit.testing import FrozenClock

    return FrozenClock()


@pytest.fixture
def jobkit_workers() -> Iterable[object]:
    """The workers of `jobkit_app`; override it in your conftest.py."""
    return ()


@pytest.fixture
def jobkit_url(tmp_path: Path) -> str:
    """The database of `jobkit_app`: a SQLite file of the test's own; override it for Postgres."""
    return f"sqlite:///{tmp_path / 'jobkit-test.db'}"


@pytest.fixture
def jobkit_app(
    jobkit_url: str, jobkit_clock: FrozenClock, jobkit_workers: Iterable[object]
) -> Iterator[Jobkit]:
    """An app on a database of the test's own, with the test's clock; it is the current app while the test runs.

    The settings of jobkit.toml and of the environment apply, but for the database.
    """
    from jobkit.app import Jobkit, configure
    from jobkit.testing import reset

    app = Jobkit(jobkit_url, workers=jobkit_workers, clock=jobkit_clock)  # type: ignore[arg-type]
    app.migrate()
    configure(app)
    try:
        yield app
    finally:
        reset()
        app.close()
