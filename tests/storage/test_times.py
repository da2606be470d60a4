"""Times in and out of the database: exact instants, to the microsecond, aware and UTC."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, insert, select, text

from jobkit.storage.base import Storage
from jobkit.storage.schema import from_text, to_text
from tests.storage.support import NOW, Database, job_row

INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(2400, 1, 1), timezones=st.timezones())
EXACT = [
    NOW,
    NOW.replace(microsecond=1),
    NOW.replace(microsecond=0),
    datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2030, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"), fold=0),
    datetime(2030, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"), fold=1),
    datetime(2030, 1, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Kathmandu")),
]


@pytest.mark.parametrize("moment", EXACT, ids=str)
def test_DB12_a_stored_time_comes_back_as_the_same_instant_in_utc(db: Database, moment: datetime) -> None:
    row = db.row(db.add(scheduled_at=moment))
    assert row.scheduled_at == moment.astimezone(UTC)
    assert row.scheduled_at.utcoffset() == timedelta(0)


def test_DB12_what_the_session_takes_for_its_zone_changes_nothing(
    db: Database, storage: Storage, conn: Connection, backend: str
) -> None:
    if backend == "postgres":
        conn.execute(text("SET TIME ZONE 'Asia/Tokyo'"))
    storage.insert(conn, [job_row(scheduled_at=NOW)])
    (read,) = conn.execute(select(db.tables.jobs.c.scheduled_at)).scalars()
    conn.rollback()
    assert read == NOW
    assert read.utcoffset() == timedelta(0)


def test_DB12_a_time_without_a_zone_is_never_stored(db: Database) -> None:
    naive = {"state": "available", "worker": "echo", "args": "{}", "inserted_at": NOW}
    with pytest.raises(Exception, match="without a zone"):
        db.conn.execute(insert(db.tables.jobs).values(**naive, scheduled_at=datetime(2030, 1, 1)))


@given(moment=INSTANTS, later=st.timedeltas(timedelta(microseconds=1), timedelta(days=9)))
def test_DB12_times_as_text_sort_as_they_pass(moment: datetime, later: timedelta) -> None:
    utc = moment.astimezone(UTC)
    assert from_text(to_text(moment)) == utc
    assert to_text(utc) < to_text(utc + later)
    assert len(to_text(utc)) == len(to_text(utc + later))
