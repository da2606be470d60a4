"""jobkit: a persistent job queue on SQLite or Postgres, built of plugins.

Invariant: every public name is here, and importing the package loads nothing that the names used do not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobkit.app import Jobkit, configure
    from jobkit.config import QueueConfig
    from jobkit.core import current_job
    from jobkit.hookspecs import PluginInfo, Service, hookimpl
    from jobkit.inserting import aenqueue, aenqueue_all, enqueue, enqueue_all
    from jobkit.jobs import Inserted, JobInfo, JobState, NewJob, Unique
    from jobkit.outcomes import Cancel, Discard, Done, Outcome, Snooze
    from jobkit.schedules import Recurring
    from jobkit.storage.engine import configure_sqlite
    from jobkit.workers import Worker, worker

__all__ = [
    "Cancel",
    "Discard",
    "Done",
    "Inserted",
    "JobInfo",
    "JobState",
    "Jobkit",
    "NewJob",
    "Outcome",
    "PluginInfo",
    "QueueConfig",
    "Recurring",
    "Service",
    "Snooze",
    "Unique",
    "Worker",
    "aenqueue",
    "aenqueue_all",
    "configure",
    "configure_sqlite",
    "current_job",
    "enqueue",
    "enqueue_all",
    "hookimpl",
    "worker",
]

_HOMES: Final = {
    "app": ("Jobkit", "configure"),
    "config": ("QueueConfig",),
    "core": ("current_job",),
    "hookspecs": ("PluginInfo", "Service", "hookimpl"),
    "inserting": ("aenqueue", "aenqueue_all", "enqueue", "enqueue_all"),
    "jobs": ("Inserted", "JobInfo", "JobState", "NewJob", "Unique"),
    "outcomes": ("Cancel", "Discard", "Done", "Outcome", "Snooze"),
    "schedules": ("Recurring",),
    "storage.engine": ("configure_sqlite",),
    "workers": ("Worker", "worker"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker would take it to mean that every name exists

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
