"""Which storage serves which database."""

from __future__ import annotations

from jobkit.storage.base import NO_OBSERVERS, Arm, Observers, Storage
from jobkit.storage.portable import PortableStorage
from jobkit.storage.postgres import PostgresStorage
from jobkit.storage.schema import Tables
from jobkit.storage.sqlite import SQLiteStorage, has_returning

__all__ = ["make_storage"]


def make_storage(
    dialect_name: str, tables: Tables, *, arm: Arm = "auto", observers: Observers = NO_OBSERVERS
) -> Storage:
    """The arm for a dialect: Postgres' or SQLite's own, or the portable one (any other dialect, or by
    `arm`).
    """
    if arm == "auto" and dialect_name == "postgresql":
        return PostgresStorage(tables, observers)
    if arm == "auto" and dialect_name == "sqlite" and has_returning():
        return SQLiteStorage(tables, observers)
    return PortableStorage(tables, observers)
