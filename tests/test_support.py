from __future__ import annotations

import sqlalchemy as sa


def test_every_test_gets_an_empty_database_of_its_own(database_url: str) -> None:
    engine = sa.create_engine(database_url)
    with engine.begin() as conn:
        assert sa.inspect(conn).get_table_names() == []
        conn.execute(sa.text("CREATE TABLE left_over (n integer)"))
    engine.dispose()
