"""An app a test, on each arm: {sqlite, postgres} x {auto, portable}."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobkit import Jobkit
from jobkit.config import Config
from jobkit.testing import FrozenClock, reset
from tests.testing import guide_workers
from tests.testing.support import START, Kit


@pytest.fixture(autouse=True)
def _fresh_workers() -> Iterator[None]:
    guide_workers.journal.clear()
    guide_workers.started.clear()
    guide_workers.dropped.clear()
    yield
    reset()


@pytest.fixture
def config(database_url: str, arm: str) -> Config:
    """A configuration that nothing outside of the test decides."""
    return Config(
        database_url=database_url,
        arm=arm,  # type: ignore[arg-type]
        sqlite_synchronous="off",
        disable=["cleanup"],
    )


@pytest.fixture
def kit(config: Config) -> Iterator[Kit]:
    """A migrated app with the workers of the guide and a clock that stands still."""
    clock = FrozenClock(START)
    app = Jobkit(config=config, workers=guide_workers.KNOWN, clock=clock)
    app.migrate()
    yield Kit(app, clock)
    app.close()
