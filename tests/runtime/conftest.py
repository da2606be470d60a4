"""Apps on real databases for the tests of whole nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.runtime.acts import GATES, SEEN, WORKERS
from tests.runtime.nodes import App


@pytest.fixture(autouse=True)
def _fresh_acts() -> Iterator[None]:
    GATES.clear()
    SEEN.clear()
    yield
    for gate in GATES.values():
        gate.set()


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    made = App(database_url, WORKERS)
    yield made
    made.core.close()


@pytest.fixture
def make(database_url: str) -> Iterator[Callable[..., App]]:
    """Make apps with other settings on the same database."""
    made: list[App] = []

    def build(**settings: object) -> App:
        settings.setdefault("workers", WORKERS)
        made.append(App(database_url, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for one in made:
        one.core.close()
