"""Reads of workers, plugins and bulk operations.

Invariant: a worker of another process is known by what its nodes published; nothing here imports one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select

from jobkit.admin._ast import Query
from jobkit.admin._context import Context
from jobkit.admin._operation_rows import operation_rows
from jobkit.admin._orders import state_condition
from jobkit.admin.errors import NotFound
from jobkit.admin.views import Count, OperationView, PluginView, WorkerFigures, WorkerView
from jobkit.hookspecs import Resource
from jobkit.jobs import FINAL, JobState

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.registry import WorkerEntry

__all__ = ["LIVE_FOR", "SystemReads", "missing_workers"]

LIVE_FOR: Final = timedelta(minutes=2)
"""Nodes publish their workers each minute at least."""
SAMPLE: Final = 20_000
FIGURED: Final = 20_000
"""Finished jobs of each final state that figures by worker are made of."""


def missing_workers(context: Context, conn: Connection, seen: Mapping[str, datetime]) -> dict[str, int]:
    """Workers that available jobs name and no node has published lately, with how many of the oldest
    20,000 available jobs are theirs.
    """
    searcher = context.searcher(conn, Query())
    c = searcher.compiler.c
    names = (
        select(c.worker)
        .where(state_condition(searcher.compiler, frozenset({JobState.AVAILABLE})), searcher.condition)
        .limit(SAMPLE)
        .subquery()
    )
    counted = conn.execute(select(names.c.worker, func.count()).group_by(names.c.worker))
    fresh = context.now - LIVE_FOR
    return {name: n for name, n in counted if name not in seen or seen[name] < fresh}


class SystemReads:
    """See `Reads`, whose methods these are."""

    def __init__(self, context: Context) -> None:
        self._context = context

    # -- workers

    def workers(self) -> tuple[WorkerView, ...]:
        """All that anything speaks of."""
        context = self._context
        context.require("view.jobs", Resource("worker"))
        workers = context.app.tables.workers.c
        with context.reading() as conn:
            rows = conn.execute(select(workers.name, workers.last_seen_at, workers.config)).all()
            seen = {row.name: row.last_seen_at for row in rows}
            missing = missing_workers(context, conn, seen)
        published = {row.name: (row.last_seen_at, row.config) for row in rows}
        registered = context.app.registry.workers
        names = sorted({*published, *registered, *missing})
        return tuple(
            self._worker(name, published.get(name), registered.get(name), name in missing) for name in names
        )

    def _worker(
        self, name: str, row: tuple[datetime, str] | None, entry: WorkerEntry | None, missing: bool
    ) -> WorkerView:
        seen_at = None if row is None else row[0]
        return WorkerView(
            name=name,
            seen_at=seen_at,
            live=seen_at is not None and seen_at >= self._context.now - LIVE_FOR,
            registered=entry is not None,
            config=_config(row[1] if row else None),
            missing=missing,
            error=self._context.app.redactor.text(entry.error, kind="log") if entry else "",
        )

    def worker(self, name: str) -> WorkerView:
        """One."""
        for view in self.workers():
            if view.name == name:
                return view
        raise NotFound(f"no node has published a worker {name!r}, and no job waits for one")

    def worker_figures(self, since: timedelta) -> dict[str, WorkerFigures]:
        """By worker name; from the newest `FIGURED` jobs that ended in each way."""
        context = self._context
        context.require("view.jobs", Resource("worker"))
        with context.reading() as conn:
            counted = {state: self._ended(conn, state, context.now - since) for state in sorted(FINAL)}
        names = {name for counts, _ in counted.values() for name in counts}
        return {
            name: WorkerFigures(
                **{
                    state.value: Count(counts.get(name, 0), "exact" if whole else "at_least")
                    for state, (counts, whole) in counted.items()
                }
            )
            for name in sorted(names)
        }

    def _ended(self, conn: Connection, state: JobState, since: datetime) -> tuple[dict[str, int], bool]:
        """How many of each worker, and whether all were looked at."""
        searcher = self._context.searcher(conn, Query())
        c = searcher.compiler.c
        ended = c[f"{state.value}_at"]
        newest = (
            select(c.worker)
            .where(state_condition(searcher.compiler, frozenset({state})), ended >= since, searcher.condition)
            .order_by(ended.desc(), c.id.desc())
            .limit(FIGURED + 1)
            .subquery()
        )
        rows = conn.execute(select(newest.c.worker, func.count()).group_by(newest.c.worker))
        counts = {name: int(count) for name, count in rows}
        return counts, sum(counts.values()) <= FIGURED

    # -- plugins

    def plugins(self) -> tuple[PluginView, ...]:
        """All that this process found."""
        context = self._context
        context.require("view.plugins", Resource("plugin"))
        with context.reading() as conn:
            nodes = context.app.storage.live_nodes(conn)
        ticks = {node.node: node.info.get("services") for node in nodes}
        return tuple(
            PluginView(
                name=state.name,
                distribution=state.distribution,
                version=state.version,
                status=state.status,
                error=state.error or state.last_failure,
                hooks=state.hooks,
                settings=self._settings(state.name, state.settings),
                ticks=_ticks(state.name, ticks),
            )
            for state in context.app.registry.plugins
        )

    def _settings(self, name: str, settings: object) -> Mapping[str, object]:
        if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
            values: dict[str, object] = {
                field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)
            }
        else:
            values = dict(self._context.app.config.plugins.get(name, {}))
        plain = {
            key: value if isinstance(value, bool | int | float) else str(value)
            for key, value in values.items()
        }
        shown = self._context.app.redactor.value(plain, path=f"plugins.{name}", kind="log")
        return shown if isinstance(shown, dict) else {}

    # -- operations

    def operations(self, limit: int) -> tuple[OperationView, ...]:
        """Newest first."""
        self._context.require("view.jobs", Resource("operation"))
        with self._context.reading() as conn:
            return tuple(operation_rows(self._context.app, conn, limit=limit))

    def operation(self, operation_id: int) -> OperationView:
        """One."""
        self._context.require("view.jobs", Resource("operation", str(operation_id)))
        with self._context.reading() as conn:
            for view in operation_rows(self._context.app, conn, operation_id=operation_id):
                return view
        raise NotFound(f"there is no operation {operation_id}")


def _config(text: str | None) -> Mapping[str, object]:
    try:
        found: Any = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _ticks(plugin: str, nodes: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    """What each node says of the services of one plugin."""
    found: dict[str, Mapping[str, object]] = {}
    for node, services in nodes.items():
        if not isinstance(services, dict):
            continue
        mine = {label: told for label, told in services.items() if label.partition(".")[0] == plugin}
        if mine:
            found[node] = mine
    return found
