"""The hourly clean-up job.

Invariant: a clean-up that fails keeps none of the others from running; what each did stands in the job's meta.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import cast

import sqlalchemy as sa

from jobkit.core import Core, current_core
from jobkit.jobs import JobInfo, JobState, Unique
from jobkit.workers import Worker
from jobkit_cleanup.tasks import CleanupSettings, CleanupTask, own_tasks

__all__ = ["Cleanup"]

log = logging.getLogger("jobkit.cleanup")


class Cleanup(Worker, name="jobkit_cleanup", unique=Unique.worker(), max_attempts=3):
    """Run every clean-up, jobkit's own and those of `jobkit_cleanups`."""

    def perform(self, job: JobInfo) -> None:
        """Fails if a clean-up failed, after all others have run."""
        app = current_core()
        settings = app.config.plugin("cleanup", CleanupSettings)
        deleted: dict[str, int] = {}
        failed: dict[str, Exception] = {}
        for name, task in _tasks(app, settings).items():
            try:
                deleted[name] = _run(app, task, settings, job)
            except Exception as error:
                log.exception("clean-up %s failed", name)
                failed[name] = error
            _note(app, job, deleted, failed)
        if failed:
            raise ExceptionGroup(
                f"{len(failed)} clean-ups failed: {', '.join(failed)}", list(failed.values())
            )


def _tasks(app: Core, settings: CleanupSettings) -> dict[str, CleanupTask]:
    tasks = {task.name: task for task in own_tasks(app, settings)}
    for plugin, given in reversed(app.registry.gather("jobkit_cleanups", app=app)):
        for task in _given(app, plugin, given):
            tasks[task.name if task.name not in tasks else f"{plugin}.{task.name}"] = task
    return tasks


def _given(app: Core, plugin: str, given: object) -> list[CleanupTask]:
    """A plugin's clean-ups; one that gives anything else is reported and left out."""
    try:
        tasks = list(cast("Iterable[object]", given))
        if wrong := [task for task in tasks if not isinstance(task, CleanupTask)]:
            raise TypeError(f"it gave {wrong[0]!r:.100}, expected a CleanupTask")
    except Exception as error:  # noqa: BLE001 - a generator may raise anything
        app.registry.failed(plugin, "jobkit_cleanups", error)
        return []
    return cast("list[CleanupTask]", tasks)


def _run(app: Core, task: CleanupTask, settings: CleanupSettings, job: JobInfo) -> int:
    """Batches, each in a short transaction, until one is not full, the bound is reached, or the job has to stop."""
    total = 0
    for _ in range(settings.batches):
        with app.engine.begin() as conn:
            count = task.clean(conn, app.clock.now(), settings.batch)
        total += count
        if count < settings.batch or job.should_stop():
            break
    return total


def _note(app: Core, job: JobInfo, deleted: dict[str, int], failed: dict[str, Exception]) -> None:
    """Keep the figures in the job's own row, as long as this run still holds it."""
    jobs = app.tables.jobs
    meta = {**job.meta, "cleaned": deleted}
    if failed:
        meta["failed"] = {
            name: app.redactor.text(f"{type(e).__name__}: {e}")[:500] for name, e in failed.items()
        }
    held = (jobs.c.id == job.id, jobs.c.state == JobState.EXECUTING, jobs.c.attempted_at == job.attempted_at)
    with app.engine.begin() as conn:
        conn.execute(sa.update(jobs).where(*held).values(meta=json.dumps(meta)))
