"""What the other tests start from."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from jobkit.storage.schema import tables_for


def found(database_url: str) -> list[str]:
    """The names of the tables; leaves another one behind."""
    engine = sa.create_engine(database_url)
    with engine.begin() as conn:
        names = sa.inspect(conn).get_table_names()
        conn.execute(sa.text("CREATE TABLE left_over (n integer)"))
        for table in tables_for().metadata.sorted_tables if "jobkit_jobs" in names else ():
            assert conn.execute(sa.select(sa.func.count()).select_from(table)).scalar() == 0
    engine.dispose()
    return names


@pytest.mark.parametrize("time", [1, 2])
def test_every_test_gets_a_database_of_its_own_with_empty_tables(database_url: str, time: int) -> None:
    names = found(database_url)
    assert "jobkit_jobs" in names
    assert "left_over" not in names


@pytest.mark.empty_database
@pytest.mark.parametrize("time", [1, 2])
def test_a_test_may_have_a_database_without_tables(database_url: str, time: int) -> None:
    assert found(database_url) == []
