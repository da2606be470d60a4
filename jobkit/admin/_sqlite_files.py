"""SQLite files that cannot be read just so: missing, no database, or in a place where nothing may be written.

Invariant: nothing here writes a byte or makes a file; a file is read as unchanging only while no writer has it open, as
far as its companions `-wal` and `-shm` tell.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.pool import NullPool

from jobkit.admin.errors import DatabaseMissing, DatabaseUnreachable
from jobkit.storage.sqlite_engine import real_begin

__all__ = ["explained", "file_of", "is_unchanging", "unchanging_engine"]

_FORMAT: Final = slice(18, 20)
"""Where a file's header says whether it is in WAL mode (2) or not (1)."""


def file_of(url: URL) -> Path | None:
    """The file of a SQLite URL; None for another database."""
    if url.get_backend_name() != "sqlite" or not url.database:
        return None
    name = url.database.removeprefix("file:").partition("?")[0]
    return Path(unquote(name) if url.database.startswith("file:") else name).absolute()


# -- where nothing may be written


def is_unchanging(file: Path) -> bool:
    """Whether the file is to be read as one that nobody changes: in WAL mode, where its shared memory cannot be made.

    Raises DatabaseUnreachable where it holds changes that cannot be read without.
    """
    shared, log = (file.with_name(f"{file.name}-{end}") for end in ("shm", "wal"))
    if _may(file.parent, os.W_OK) or not file.is_file() or not _in_wal_mode(file) or _may(shared, os.R_OK):
        return False
    if log.exists() and log.stat().st_size:
        raise DatabaseUnreachable(
            f"{file} cannot be read here: {log.name} holds changes, and {shared.name}, by which they are found, "
            "cannot be made; make its folder writable, or copy the three files elsewhere"
        )
    return True


def unchanging_engine(file: Path) -> Engine:
    """An engine that reads the file without any lock and without its companions."""
    name = f"file:{quote(str(file))}?mode=ro&immutable=1"

    def opened() -> sqlite3.Connection:
        return sqlite3.connect(name, uri=True, check_same_thread=False, isolation_level=None)

    engine = create_engine("sqlite://", creator=opened, poolclass=NullPool)
    real_begin(engine, default="DEFERRED")
    return engine


def _may(path: Path, what: int) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, what, effective_ids=effective)


def _in_wal_mode(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return 2 in opened.read(20)[_FORMAT]
    except OSError:
        return False


# -- what SQLite says, in words that help


def explained(url: URL, error: BaseException) -> DatabaseUnreachable | None:
    """What is wrong with the file, where the error tells of that; None for other errors and databases."""
    file, code = file_of(url), _code(error)
    if file is None or code is None:
        return None
    if code == sqlite3.SQLITE_NOTADB:
        return DatabaseUnreachable(f"{file} is no SQLite database")
    if code == sqlite3.SQLITE_CORRUPT:
        return DatabaseUnreachable(f"{file} is damaged: SQLite cannot read it any more")
    return _unopened(file) if code == sqlite3.SQLITE_CANTOPEN else None


def _unopened(file: Path) -> DatabaseUnreachable | None:
    if file.is_dir():
        return DatabaseUnreachable(f"{file} is a folder, not a SQLite file")
    if not file.parent.is_dir():
        return DatabaseUnreachable(f"the folder {file.parent}, in which {file.name} should lie, is missing")
    if not file.exists():
        return DatabaseMissing(f"the SQLite file {file} is missing; `jobkit migrate up` makes it")
    if not _may(file, os.R_OK):
        return DatabaseUnreachable(f"{file} may not be read by this user")
    return None


def _code(error: BaseException) -> int | None:
    """SQLite's primary result code, wherever the error holds it."""
    for found in (error, getattr(error, "orig", None), error.__cause__):
        code = getattr(found, "sqlite_errorcode", None)
        if isinstance(code, int):
            return code & 0xFF
    return None
