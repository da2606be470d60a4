"""Who a node is, and what it says of itself."""

from __future__ import annotations

import os
import platform
import secrets
import socket
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import metadata
from typing import Final

__all__ = ["memory_bytes", "node_id", "process_facts"]

_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4_096


def node_id(name: str | None) -> str:
    """`<hostname>:<pid>:<nonce>`, or `<name>:<nonce>`; never the same twice, whatever restarts under an old pid."""
    prefix = name if name is not None else f"{socket.gethostname()[:100]}:{os.getpid()}"
    return f"{prefix}:{secrets.token_hex(4)}"


def memory_bytes() -> int:
    """The process's resident memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return _peak_memory()


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@lru_cache(maxsize=1)
def process_facts() -> dict[str, object]:
    """What does not change while the process lives."""
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "jobkit": _version("jobkit-queue"),
        "sqlalchemy": _version("sqlalchemy"),
        "platform": platform.platform(terse=True),
    }


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def named(items: Iterable[object], limit: int = 5) -> str:
    """The first few of the items, in words."""
    shown = [repr(item) for item in items]
    more = f" and {len(shown) - limit} more" if len(shown) > limit else ""
    return ", ".join(shown[:limit]) + more
