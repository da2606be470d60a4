"""A migrated database a test, on each arm: {sqlite, postgres} x {auto, portable}."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy import Connection, Engine

from jobkit.storage.base import Storage
from jobkit.storage.choice import make_storage
from jobkit.storage.engine import make_engine, node_connection
from jobkit.storage.schema import Tables, tables_for
from tests.storage.support import Database, Settings


@dataclass(frozen=True)
class _Names:
    prefix: str = "jobkit_"
    schema: str | None = None


@pytest.fixture
def tables() -> Tables:
    return tables_for()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on a migrated database."""
    engine = make_engine(Settings(database_url))
    yield engine
    engine.dispose()


@pytest.fixture
def storage(engine: Engine, tables: Tables, arm: str) -> Storage:
    return make_storage(engine.dialect.name, tables, arm=arm)  # type: ignore[arg-type]


@pytest.fixture(params=["autocommit", "transactions"])
def conn(engine: Engine, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """Both kinds of connection that a node may use."""
    with node_connection(engine, autocommit=request.param == "autocommit") as conn:
        yield conn


@pytest.fixture
def db(engine: Engine, tables: Tables, storage: Storage) -> Iterator[Database]:
    """Helpers to write and read rows past the storage."""
    with node_connection(engine, autocommit=True) as conn:
        yield Database(engine, tables, storage, conn)
