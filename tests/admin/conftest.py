"""Fixtures: an app on a fresh database of each kind, with tables and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobkit.config import Config
from jobkit.core import Core
from tests.admin.support import FixedClock


def make_app(url: str, **options: object) -> Core:
    config = Config(database_url=url, disable=["cleanup"])
    return Core(config, clock=FixedClock(), **options)  # type: ignore[arg-type]


@pytest.fixture
def app(database_url: str) -> Iterator[Core]:
    """On both backends."""
    made = make_app(database_url)
    yield made
    made.close()


@pytest.fixture
def lite(sqlite_url: str) -> Iterator[Core]:
    """On SQLite only, where the database makes no difference."""
    made = make_app(sqlite_url)
    yield made
    made.close()
