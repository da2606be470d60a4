"""Fixtures that every test may use: real databases, one a test.

`backend` is `sqlite` or `postgres`; `arm` is `auto` (the native arm) or `portable`. A test that takes
`database_url` runs on both backends; one that also takes `arm` runs on all four arms. The databases are copies
of one that jobkit has migrated; tests that want none of its tables bear the marker `empty_database`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres import PostgresServer, migrate, stop_orphans

settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    """The controller starts the server once; xdist's workers are told where it is."""
    for name in [name for name in os.environ if name.startswith("JOBKIT_")]:
        del os.environ[name]
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is not None and "jobkit_pg" in worker:
        directory, port = worker["jobkit_pg"]
        config.stash[SERVER] = PostgresServer(Path(directory), port)


MAY_BE_SKIPPED = (
    "no such driver",
    "something listens on the dashboard's port",
    "no file system can be mounted",
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """In CI a test that is skipped for want of a backend, a browser or a package has failed."""
    report = yield
    if report.skipped and "CI" in os.environ and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not any(allowed in reason for allowed in MAY_BE_SKIPPED):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} must not be skipped in CI: {reason}"
    return report


SERVER: pytest.StashKey[PostgresServer] = pytest.StashKey()
OWNED: pytest.StashKey[bool] = pytest.StashKey()


def _server(config: pytest.Config) -> PostgresServer:
    if SERVER not in config.stash:
        stop_orphans()
        config.stash[SERVER] = PostgresServer.create()
        config.stash[OWNED] = True
    return config.stash[SERVER]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist: hand the one server over to each worker."""
    server = _server(node.config)
    node.workerinput["jobkit_pg"] = (str(server.directory), server.port)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server where it was started."""
    if config.stash.get(OWNED, False):
        config.stash[SERVER].destroy()


@pytest.fixture(autouse=True)
def as_found() -> Iterator[None]:
    """What a test makes importable, as `--import` does with the working directory, is not importable in the next."""
    before = list(sys.path)
    yield
    gone = set(sys.path) - set(before)
    sys.path[:] = before
    for name, module in list(sys.modules.items()):
        if gone and str(getattr(module, "__file__", "")).startswith(tuple(gone)):
            del sys.modules[name]


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> PostgresServer:
    """The session's shared Postgres server. Never stop it: tests that do make one of their own."""
    return _server(request.config)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    """The kind of database that the test runs on."""
    return str(request.param)


@pytest.fixture(params=["auto", "portable"])
def arm(request: pytest.FixtureRequest) -> str:
    """The storage's arm: the backend's own, or the portable one."""
    return str(request.param)


def wants_empty(request: pytest.FixtureRequest) -> bool:
    """Whether the test is about a database without tables."""
    return request.node.get_closest_marker("empty_database") is not None


@pytest.fixture
def postgres_url(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a Postgres database of the test's own."""
    template = {} if wants_empty(request) else {"template": postgres.make_template()}
    name = postgres.new_database(**template)
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with all tables and no rows; tests get copies of it."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a SQLite file of the test's own; with `empty_database`, of one that does not exist yet."""
    path = tmp_path / "jobkit-test.db"
    if not wants_empty(request):
        shutil.copy(request.getfixturevalue("migrated_file"), path)
    return f"sqlite:///{path}"


@pytest.fixture
def database_url(backend: str, request: pytest.FixtureRequest) -> str:
    """The URL of a database of the kind `backend`, with jobkit's tables unless the test bears `empty_database`."""
    return str(request.getfixturevalue(f"{backend}_url"))
