"""Fixtures of the dashboard's tests. Most run on SQLite; what touches the database in its own way runs on both."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jobkit import Jobkit
from jobkit_dashboard import Dashboard
from tests.dashboard.support import Client, by_header, make_app, seed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all tables, made once and copied for each test."""
    path = tmp_path_factory.mktemp("dashboard") / "migrated.db"
    make_app(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def app(tmp_path: Path, migrated: Path) -> Iterator[Jobkit]:
    """The sample app on a fresh file."""
    path = tmp_path / "jobkit.db"
    with closing(sqlite3.connect(migrated)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    made = make_app(f"sqlite:///{path}", migrate=False)
    yield made
    made.close()


@pytest.fixture
def ids(app: Jobkit) -> list[int]:
    """One job in each state: available, scheduled, executing, retryable, completed, discarded, cancelled."""
    return seed(app)


@pytest.fixture
def dash(app: Jobkit) -> Dashboard:
    """A mounted dashboard whose actor a header names."""
    return Dashboard(app, auth=by_header)


@pytest.fixture
def admin(dash: Dashboard, ids: list[int]) -> Client:
    """An admin's browser, without scripts."""
    return Client(dash)
