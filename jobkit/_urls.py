"""Database URLs: any driver or none may be named; jobkit's own engine always uses psycopg 3 or sqlite3.

Invariant: no text made here contains a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from jobkit.errors import ConfigError

__all__ = ["check_url", "engine_url", "is_memory_sqlite", "mask_setting", "mask_url"]

_MASK: Final = "***"
_POSTGRES: Final = frozenset({"postgres", "postgresql", "pgsql"})
_SECRET: Final = "pass|secret|token|credential|api[_-]?key|private[_-]?key|signing"
_SECRET_NAME: Final = re.compile(f"(?i){_SECRET}")
_SECRET_PAIR: Final = re.compile(rf"(?i)([?&;][^=&;?]*(?:{_SECRET})[^=&;?]*=)[^&;]*")
_USERINFO: Final = re.compile(r"(?s)((?:://|\A(?![\w+.-]+://))[^:/?#@]*:).*@")
"""Also where the scheme was forgotten."""
_RENAMED: Final = {"ssl": "sslmode", "timeout": "connect_timeout"}
_ASYNCPG_ONLY: Final = frozenset(
    {
        "async_fallback",
        "command_timeout",
        "max_cacheable_statement_size",
        "max_cached_statement_lifetime",
        "prepared_statement_cache_size",
        "statement_cache_size",
    }
)


def check_url(value: object) -> str:
    """Return a database URL as text, as it was given. Raises ConfigError where it cannot be read as one."""
    text = value.render_as_string(hide_password=False) if isinstance(value, URL) else value
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(
            f"found {type(value).__name__}, expected a URL such as sqlite:///jobkit.db or postgresql://host/database"
        )
    _parse(text.strip())
    return text.strip()


def _parse(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(
            f"{mask_url(text)!r} is no database URL; expected one such as "
            "sqlite:///jobkit.db or postgresql://host:5432/database"
        ) from None


def engine_url(url: str | URL) -> URL:
    """Return the URL for jobkit's own engine: psycopg 3 for Postgres, sqlite3 for SQLite, others unchanged.

    Parameters that only asyncpg understands are translated to libpq's or left out. Raises ConfigError.
    """
    parsed = url if isinstance(url, URL) else _parse(url)
    backend, _, driver = parsed.drivername.partition("+")
    if backend in _POSTGRES:
        query = _libpq(parsed.query) if driver == "asyncpg" else dict(parsed.query)
        return parsed.set(drivername="postgresql+psycopg", query=query)
    if backend == "sqlite":
        return parsed.set(drivername="sqlite+pysqlite")
    return parsed


def _libpq(query: Mapping[str, str | tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    return {_RENAMED.get(key, key): value for key, value in query.items() if key not in _ASYNCPG_ONLY}


def is_memory_sqlite(url: str | URL) -> bool:
    """Tell whether a URL names a SQLite database in memory, which no other process can see."""
    parsed = url if isinstance(url, URL) else _parse(url)
    if parsed.drivername.partition("+")[0] != "sqlite":
        return False
    name = parsed.database or ""
    return (
        name in ("", ":memory:") or ":memory:" in name or "mode=memory" in name or _mode(parsed) == "memory"
    )


def _mode(url: URL) -> str:
    mode = url.query.get("mode", "")
    return mode if isinstance(mode, str) else mode[-1]


def mask_url(url: str | URL) -> str:
    """Return a URL for display: its password and parameters that look secret as `***`. Never raises."""
    text = url.render_as_string(hide_password=False) if isinstance(url, URL) else str(url)
    try:
        parsed = make_url(text)
    except Exception:  # noqa: BLE001 - text that is no URL may still carry a password, and must not raise here
        return _mask_text(text)
    if "@" in (
        parsed.host or ""
    ):  # an unescaped @ in the password: what was taken for the host is part of it
        return _mask_text(text)
    shown = text if parsed.password is None else parsed.render_as_string(hide_password=True)
    return _SECRET_PAIR.sub(rf"\g<1>{_MASK}", shown)


def mask_setting(name: str, value: object) -> object:
    """Return a plugin's setting for display: what its name or its URL marks as secret, as `***`."""
    if _SECRET_NAME.search(name) and isinstance(value, (str, bytes, list, tuple, Mapping)) and value:
        return _MASK
    if isinstance(value, Mapping):
        return {key: mask_setting(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mask_setting("", item) for item in value]
    return mask_url(value) if isinstance(value, str) and ("://" in value or "=" in value) else value


def _mask_text(text: str) -> str:
    return _SECRET_PAIR.sub(rf"\g<1>{_MASK}", _USERINFO.sub(rf"\g<1>{_MASK}@", text))
