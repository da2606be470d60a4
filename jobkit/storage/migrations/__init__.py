"""Migrations: versioned steps for the core's tables and, by name, for each plugin's own.

Invariants: a step is applied once, however many processes start at once (a lock, then a second look at the
version table); what is applied stands in `<prefix>schema_versions(name, version)` of the same database.
Alembic is imported only where something is really migrated.

From a user's own Alembic migration:

    from jobkit.storage.migrations import downgrade, upgrade

    def upgrade_():
        upgrade(op.get_bind())
"""

from __future__ import annotations

from jobkit.storage.migrations.core import CORE
from jobkit.storage.migrations.runner import (
    Applied,
    Status,
    check,
    down,
    downgrade,
    migrate_if_empty,
    sql,
    status,
    up,
    upgrade,
)
from jobkit.storage.migrations.steps import Migrations, Step

__all__ = [
    "CORE",
    "Applied",
    "Migrations",
    "Status",
    "Step",
    "check",
    "down",
    "downgrade",
    "migrate_if_empty",
    "sql",
    "status",
    "up",
    "upgrade",
]
