"""Rigs that may be broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import DURABLE_OPTIONS, PostgresServer
from tests.support.processes import Rig


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    made = PostgresServer.create(options=DURABLE_OPTIONS)
    yield made
    made.destroy()


@pytest.fixture
def own_rig(tmp_path: Path, server: PostgresServer) -> Iterator[Rig]:
    """A rig on a server of its own."""
    made = Rig(tmp_path, server.url(server.new_database()))
    yield made
    made.close()


@pytest.fixture
def pg_rig(tmp_path: Path, postgres_url: str) -> Iterator[Rig]:
    """A rig on the shared server."""
    made = Rig(tmp_path, postgres_url)
    yield made
    made.close()


@pytest.fixture
def lite_rig(tmp_path: Path, sqlite_url: str) -> Iterator[Rig]:
    """A rig on a SQLite file."""
    made = Rig(tmp_path, sqlite_url)
    yield made
    made.close()


@pytest.fixture
def rig(tmp_path: Path, database_url: str) -> Iterator[Rig]:
    """A rig on either backend."""
    made = Rig(tmp_path, database_url)
    yield made
    made.close()
