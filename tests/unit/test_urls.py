"""Database URLs: which driver jobkit uses, what is in memory, and what of them may be shown."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import make_url

from jobkit.config import Config, engine_url, is_memory_sqlite, mask_url


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("postgres://h/d", "postgresql+psycopg"),
        ("postgresql://h/d", "postgresql+psycopg"),
        ("postgresql+asyncpg://h/d", "postgresql+psycopg"),
        ("postgresql+psycopg2://h/d", "postgresql+psycopg"),
        ("sqlite:///a.db", "sqlite+pysqlite"),
        ("sqlite+aiosqlite:///a.db", "sqlite+pysqlite"),
        ("mysql+pymysql://h/d", "mysql+pymysql"),
    ],
)
def test_jobkits_own_engine_uses_its_own_driver_whatever_was_named(given: str, driver: str) -> None:
    assert Config(database_url=given).database_url == given
    assert engine_url(given).drivername == driver
    assert engine_url(make_url(given)).database == make_url(given).database


def test_parameters_of_asyncpg_are_translated_or_left_out() -> None:
    url = engine_url(
        "postgresql+asyncpg://u:p%40@h:1/d?ssl=require&prepared_statement_cache_size=0&timeout=3"
    )
    assert dict(url.query) == {"sslmode": "require", "connect_timeout": "3"}
    assert (url.password, url.port) == ("p@", 1)


@pytest.mark.parametrize(
    ("url", "memory"),
    [
        ("sqlite://", True),
        ("sqlite:///", True),
        ("sqlite:///:memory:", True),
        ("sqlite+aiosqlite:///:memory:", True),
        ("sqlite:///file:x?mode=memory&cache=shared&uri=true", True),
        ("sqlite:///file::memory:?uri=true", True),
        ("sqlite:///jobs.db", False),
        ("sqlite:///file:jobs.db?mode=ro&uri=true", False),
        ("postgresql:///", False),
    ],
)
def test_DB5_a_database_in_memory_is_recognised(url: str, memory: bool) -> None:
    assert is_memory_sqlite(url) is memory
    assert is_memory_sqlite(make_url(url)) is memory


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://u:pw@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql:///d?password=pw&x=1", "postgresql:///d?password=***&x=1"),
        ("postgresql://u:pw@pw@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:pw/pw@h:port/d", "postgresql://u:***@h:port/d"),
        ("ann:hunter2@host/jobs", "ann:***@host/jobs"),
        ("ann:hun://ter@2@host/jobs", "ann:***@host/jobs"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("not a url", "not a url"),
        ("", ""),
    ],
)
def test_a_masked_url_shows_all_but_its_secrets(url: str, masked: str) -> None:
    assert mask_url(url) == masked
