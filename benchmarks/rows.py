"""Very many plain rows, made by the database itself: finished ones, or ones that wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from jobkit import Jobkit
from jobkit.storage.schema import to_text

CHUNK = 250_000
_COLUMNS = (
    "state, queue, worker, args, priority, attempt, attempted_by, inserted_at, scheduled_at, attempted_at"
)


def fill(app: Jobkit, rows: int) -> None:
    """Completed rows, a minute and more old."""
    ended = datetime.now(UTC) - timedelta(minutes=1)
    values = "'completed', 'default', 'bench_noop', {json}, 0, 1, 'host:1:nonce', {t}, {t}, {t}, {t}"
    _insert(app, f"{_COLUMNS}, completed_at", values, rows, ended)
    tidy(app)


def spread(app: Jobkit, rows: int, queues: Sequence[str]) -> None:
    """Available rows, spread over these queues and ten priorities."""
    name = "'" + queues[0].rstrip("0123456789") + "' || {two}"
    two = f"substr('0' || (n % {len(queues)}), -2)"
    if app.core.dialect == "postgresql":
        two = f"lpad(CAST(n % {len(queues)} AS text), 2, '0')"
    values = (
        f"'available', {name.format(two=two)}, 'bench_noop', {{json}}, (n / {len(queues)}) % 10, 0, NULL, "
    )
    _insert(app, _COLUMNS, values + "{t}, {t}, NULL", rows, datetime.now(UTC) - timedelta(minutes=1))


def _insert(app: Jobkit, columns: str, values: str, rows: int, at: datetime) -> None:
    jobs = app.engine.dialect.identifier_preparer.format_table(app.tables.jobs)
    if app.core.dialect == "postgresql":
        numbers = "FROM generate_series(:first, :last) AS n"
        select = values.format(
            json="CAST('{{\"number\"\\:' || n || '}}' AS jsonb)", t="CAST(:at AS timestamptz)"
        )
        statement = f"INSERT INTO {jobs} ({columns}) SELECT {select} {numbers}"
    else:
        numbers = (
            "WITH RECURSIVE count(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM count WHERE n < :last)"
        )
        select = values.format(json="'{{\"number\"\\:' || n || '}}'", t=":at")
        statement = f"INSERT INTO {jobs} ({columns}) {numbers} SELECT {select} FROM count"
    statement = statement.replace("{{", "{").replace("}}", "}")
    for first in range(1, rows + 1, CHUNK):
        with app.engine.begin() as conn:
            last = min(first + CHUNK - 1, rows)
            conn.execute(text(statement), {"first": first, "last": last, "at": to_text(at)})


def tidy(app: Jobkit) -> None:
    """What a server does by itself in quiet hours."""
    with app.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        if app.core.dialect == "postgresql":
            conn.exec_driver_sql(f"VACUUM ANALYZE {app.tables.jobs.name}")
            conn.exec_driver_sql("CHECKPOINT")
        else:
            conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
