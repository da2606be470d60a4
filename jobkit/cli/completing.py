"""What a shell completes: values from a file that is at most a minute old, else from a quick look at the database.

Invariant: completion is silent whatever is wrong, waits a second for the database at most, and never imports the app.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from jobkit.cli.session import Session, session_of

if TYPE_CHECKING:
    from jobkit.admin.reads import Reads

__all__ = ["complete", "complete_query"]

FRESH: Final = 60.0
SOON: Final = 5.0
"""Seconds for which an answer that came too late, or not at all, is believed."""
LIMIT: Final = timedelta(milliseconds=200)
PATIENCE: Final = 1.0
STATES: Final = ("available", "scheduled", "executing", "retryable", "completed", "discarded", "cancelled")

Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete(kind: str) -> Completer:
    """A completer of queues, workers, tags, crons, nodes, states or ids."""

    def found(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        values = known(session_of(ctx), kind)
        return [CompletionItem(value) for value in values if value.startswith(incomplete)]

    return found


def complete_query(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Qualifiers, then the values of the one that was typed."""
    name, colon, start = incomplete.partition(":")
    session = session_of(ctx)
    if not colon:
        return [CompletionItem(f"{word}:") for word in known(session, "qualifiers") if word.startswith(name)]
    values = known(session, f"{name}s")
    return [CompletionItem(f"{name}:{value}") for value in values if value.startswith(start)]


def known(session: Session, kind: str) -> list[str]:
    """All values of a kind; empty where there is neither a fresh file nor an answer in time."""
    if kind == "states":
        return list(STATES)
    if kind not in SOURCES:
        return []
    with contextlib.suppress(Exception):
        path = _file(session, kind)
        with contextlib.suppress(OSError, ValueError):
            answered, values = json.loads(path.read_text(encoding="utf-8"))
            if time.time() - path.stat().st_mtime < (FRESH if answered else SOON):
                return [str(value) for value in values]
        found = _asked(session, kind)
        _keep(path, [found is not None, found or []])
        return found or []
    return []


def _file(session: Session, kind: str) -> Path:
    """One file for each kind, directory, environment and set of options that decide about the database."""
    chosen = {name: value for name, value in os.environ.items() if name.startswith("JOBKIT_")}
    given = [kind, os.getcwd(), sorted(chosen.items()), repr(session.given.settings), session.given.config]
    key = hashlib.sha256(json.dumps(given).encode()).hexdigest()[:32]
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "jobkit" / f"{kind}-{key}.json"


def _keep(path: Path, values: object) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(values), encoding="utf-8")
    part.replace(path)


def _asked(session: Session, kind: str) -> list[str] | None:
    """The values, or None where the database did not answer in time."""
    if kind == "qualifiers":
        from jobkit.admin._fields import FIELDS

        return [field.name for field in FIELDS]
    if session.config.app is not None and session.config.origin("database_url").kind == "default":
        return None  # only the app itself knows the database
    session.given.db_timeout = LIMIT
    reads = session.reads  # the imports and plugins that it takes are not the database's fault
    reads.app.registry.load()
    _ = reads.app.read_engine, reads.app.storage
    found: list[list[str]] = []

    def look() -> None:
        with contextlib.suppress(Exception):
            found.append(SOURCES[kind](reads))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return found[0] if found else None


def _tags(reads: Reads) -> list[str]:
    facets = {facet.qualifier: facet.values for facet in reads.facets(sample=1_000).facets}
    return [value.value for value in facets.get("tag", ())]


SOURCES: Final[dict[str, Callable[[Reads], list[str]]]] = {
    "qualifiers": lambda reads: [],
    "queues": lambda reads: [queue.name for queue in reads.queues()],
    "workers": lambda reads: [worker.name for worker in reads.workers()],
    "crons": lambda reads: [entry.key for entry in reads.cron()],
    "nodes": lambda reads: [node.node for node in reads.nodes()],
    "ids": lambda reads: [str(job.id) for job in reads.jobs("is:incomplete", limit=50).jobs],
    "tags": _tags,
}
