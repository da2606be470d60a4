"""The dashboard's one table: sessions, one-time login links and API tokens.

Invariant: it holds hashes of secrets, never a secret.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Table

from jobkit.storage.schema import Tables, UTCDateTime

__all__ = ["NAME", "sessions_columns", "sessions_table"]

NAME: Final = "dashboard_sessions"


def sessions_columns() -> list[sa.Column[Any]]:
    """Fresh columns of the table."""
    return [
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("roles", sa.Text, nullable=False),
        sa.Column("created_at", UTCDateTime, nullable=False),
        sa.Column("seen_at", UTCDateTime, nullable=False),
        sa.Column("expires_at", UTCDateTime, nullable=False),
    ]


def sessions_table(tables: Tables) -> Table:
    """The table beside an app's other tables."""
    jobs = tables.jobs
    prefix = jobs.name.removesuffix("jobs")
    return Table(
        f"{prefix}{NAME}",
        sa.MetaData(schema=jobs.schema),
        *sessions_columns(),
    )
