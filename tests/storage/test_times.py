"""Times: what goes in is an instant, what comes out is that instant, aware and in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from jobkit.jobs import JobState
from jobkit.storage.base import Change, ErrorEntry
from jobkit.storage.engine import configure_sqlite
from tests.storage.support import NOW, SECOND, Database, job_row

HALF_HOURS = timezone(timedelta(hours=5, minutes=30))
MOMENTS = [
    datetime(2026, 6, 1, 12, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 6, 1, 17, 29, 59, 999_999, tzinfo=HALF_HOURS),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=0),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1),
    datetime(2126, 1, 1, tzinfo=UTC),
]


def exact(found: object, given: datetime) -> bool:
    """The same instant, to the microsecond, as an aware UTC value."""
    return (
        isinstance(found, datetime) and found.utcoffset() == timedelta(0) and found == given.astimezone(UTC)
    )


@pytest.fixture(params=["UTC", "Asia/Kolkata", "America/New_York"])
def foreign(db: Database, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A user's own connection, whose session has a zone of its own where the database knows such a thing."""
    engine = sa.create_engine(db.engine.url)
    if engine.dialect.name == "sqlite":
        configure_sqlite(engine)
    with engine.connect() as conn:
        if engine.dialect.name == "postgresql":
            conn.execute(sa.text(f"SET TIME ZONE '{request.param}'"))
            conn.commit()
        yield conn
    engine.dispose()


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_DB12_a_stored_time_is_the_exact_instant_and_reads_as_aware_utc(
    db: Database, foreign: Connection, moment: datetime
) -> None:
    rows = [job_row(inserted_at=moment, scheduled_at=moment) for _ in range(2)]
    first, second = db.storage.insert(foreign, rows)
    [single] = db.storage.insert(foreign, [job_row(inserted_at=moment, scheduled_at=moment)])
    own = (
        foreign.execute(sa.select(db.tables.jobs.c.scheduled_at).order_by(db.tables.jobs.c.id))
        .scalars()
        .all()
    )
    foreign.commit()

    assert all(exact(found, moment) for found in own)
    for inserted in (first, second, single):
        row = db.row(inserted.id)
        assert exact(row.inserted_at, moment)
        assert exact(row.scheduled_at, moment)


def test_DB12_a_claim_and_a_record_carry_exact_instants(db: Database, foreign: Connection) -> None:
    node = db.node()
    moment = datetime(2026, 6, 1, 9, 15, 0, 7, tzinfo=HALF_HOURS)
    job_id = db.add(inserted_at=moment, scheduled_at=moment)
    at = (NOW + SECOND).astimezone(HALF_HOURS)

    [job] = db.storage.claim(foreign, "default", 5, node=node, at=at)
    foreign.commit()
    assert exact(job.inserted_at, moment)
    assert exact(job.scheduled_at, moment)
    assert exact(db.row(job_id).attempted_at, at)

    retry = Change(
        JobState.RETRYABLE, at, job.lease, scheduled_at=at + SECOND, error=ErrorEntry(1, at, "it failed")
    )
    assert db.storage.transition(foreign, [retry]) == [retry]
    foreign.commit()
    row = db.row(job_id)
    assert exact(row.scheduled_at, at + SECOND)
    assert '"2026-06-01T12:00:01.123456Z"' in row.errors


def test_DB12_a_beat_returns_the_leases_as_they_were_given(db: Database, conn: Connection) -> None:
    lease = db.claimed(node=db.node())

    beat = db.storage.beat(conn, "a", now=NOW + SECOND, queues={}, info={})

    assert beat is not None
    assert beat.executing == [lease]
    [row] = db.storage.nodes(conn)
    assert exact(row.heartbeat_at, NOW + SECOND)


def test_DB12_a_naive_time_is_never_stored(db: Database, conn: Connection) -> None:
    naive = NOW.replace(tzinfo=None)

    with pytest.raises((ValueError, sa.exc.StatementError)):
        db.storage.register_node(conn, "n", now=naive, queues={}, info={})
    if conn.in_transaction():
        conn.rollback()

    assert db.storage.nodes(db.conn) == []
