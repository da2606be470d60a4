"""The one table of the dashboard's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobkit.storage.migrations import Step
from jobkit_dashboard.table import sessions_columns, sessions_table

if TYPE_CHECKING:
    from alembic.operations import Operations

    from jobkit.storage.schema import Tables

__all__ = ["STEPS"]


def _up_1(op: Operations, tables: Tables) -> None:
    table = sessions_table(tables)
    op.create_table(table.name, *sessions_columns(), schema=table.schema)


def _down_1(op: Operations, tables: Tables) -> None:
    table = sessions_table(tables)
    op.drop_table(table.name, schema=table.schema)


STEPS = (Step(1, "dashboard sessions, login links and tokens", _up_1, _down_1),)
