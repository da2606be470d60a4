"""Fixtures of the dashboard's tests. Most run on SQLite; what touches the database in its own way runs on both."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobkit import Jobkit
from jobkit_dashboard import Dashboard
from tests.dashboard.support import Client, always, by_header, make_app, seed, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.dashboard.browsing import Site, Watched

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


# -- for those that need a browser; it is imported only there


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real one."""
    from tests.dashboard.browsing import chromium

    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def axe() -> str:
    """What looks for barriers."""
    from tests.dashboard.browsing import axe_source

    return axe_source()


@pytest.fixture
def site(app: Jobkit, ids: list[int]) -> Iterator[Site]:
    """A dashboard that is served, at the root."""
    from tests.dashboard.browsing import Site

    with serving(Dashboard(app, auth=always("admin"), label="prod", colour="red").asgi) as port:
        yield Site(app, ids, f"http://127.0.0.1:{port}")


@pytest.fixture
def tab(site: Site, browser: Browser) -> Iterator[Watched]:
    """A tab that notices misdeeds."""
    from tests.dashboard.browsing import Watched

    context = browser.new_context(viewport={"width": 1280, "height": 900})
    watched = Watched(context, site.base)
    yield watched
    watched.check()
    context.close()
