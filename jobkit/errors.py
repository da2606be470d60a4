"""Every error that jobkit raises at its users.

Invariant: what a caller can do about an error is decided by its class, never by its text.
"""

from __future__ import annotations

__all__ = [
    "ArgsError",
    "ConfigError",
    "EnqueueConflict",
    "EnqueueLocked",
    "JobkitError",
    "NotMigrated",
    "ScheduleError",
    "WorkerDefinitionError",
]


class JobkitError(Exception):
    """Base of all errors that jobkit raises on purpose."""


class ConfigError(JobkitError):
    """A setting has a wrong name or value; the text names it and where it came from."""


class ArgsError(JobkitError):
    """A job's args or options were refused; nothing was written."""


class WorkerDefinitionError(JobkitError):
    """A worker is defined in a way that could never run; the text names the place."""


class ScheduleError(JobkitError):
    """A recurring entry is wrong; the text names its key and the field."""


class NotMigrated(JobkitError):
    """jobkit's tables are missing or outdated; the text names the remedy."""


class EnqueueConflict(JobkitError):
    """The database aborted the caller's transaction (deadlock, serialization failure): run it again."""


class EnqueueLocked(EnqueueConflict):
    """SQLite stayed locked; the text says how to configure the engine (`configure_sqlite`)."""
