"""What a shell completes: values from a file that is at most a minute old, else from a quick look at the database.

Invariant: completion is silent whatever is wrong, waits half a second at most, and never imports the app.
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
from typing import Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from jobkit.cli.session import Session, session_of

__all__ = ["complete", "complete_query"]

FRESH: Final = 60.0
SOON: Final = 5.0
"""Seconds for which an answer that came too late, or not at all, is believed."""
LIMIT: Final = timedelta(milliseconds=200)
PATIENCE: Final = 0.5
STATES: Final = ("available", "scheduled", "executing", "retryable", "completed", "discarded", "cancelled")

Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete(kind: str) -> Completer:
    """A completer of queues, workers, tags, cron keys, nodes, states or ids."""

    def found(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        values = STATES if kind == "states" else known(session_of(ctx)).get(kind, [])
        return [CompletionItem(value) for value in values if value.startswith(incomplete)]

    return found


def complete_query(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Qualifiers, then the values of the one that was typed."""
    name, colon, start = incomplete.partition(":")
    values = known(session_of(ctx))
    if not colon:
        return [CompletionItem(f"{word}:") for word in values.get("qualifiers", []) if word.startswith(name)]
    found = STATES if name == "state" else values.get(f"{name}s", [])
    return [CompletionItem(f"{name}:{value}") for value in found if value.startswith(start)]


def known(session: Session) -> dict[str, list[str]]:
    """All values by kind; empty where there is neither a fresh file nor an answer in time."""
    with contextlib.suppress(Exception):
        path = _file(session)
        found: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
        if time.time() - path.stat().st_mtime < (FRESH if "done" in found else SOON):
            return found
    found = {}
    with contextlib.suppress(Exception):
        _prepare(session, found)
        look = threading.Thread(target=_look, args=(session, found), daemon=True)
        look.start()
        look.join(PATIENCE)
        values = dict(found)
        _keep(_file(session), values)
        return values
    return found


def _file(session: Session) -> Path:
    """One file for each directory, environment and set of options that decide about the database."""
    chosen = {name: value for name, value in os.environ.items() if name.startswith("JOBKIT_")}
    given = [os.getcwd(), sorted(chosen.items()), repr(session.given.settings), session.given.config]
    key = hashlib.sha256(json.dumps(given).encode()).hexdigest()[:32]
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "jobkit" / f"completion-{key}.json"


def _keep(path: Path, values: dict[str, list[str]]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(values), encoding="utf-8")
    part.replace(path)


def _prepare(session: Session, found: dict[str, list[str]]) -> None:
    """What takes processor time alone: imports, and the words of the query language."""
    from jobkit.admin._fields import FIELDS

    found["qualifiers"] = [field.name for field in FIELDS]
    session.given.db_timeout = LIMIT
    if session.config.app is None or session.config.origin("database_url").kind != "default":
        session.reads.app.registry.load()


def _look(session: Session, found: dict[str, list[str]]) -> None:
    """Fill in what answers in time, cheapest first."""
    with contextlib.suppress(Exception):
        reads = session.__dict__.get("reads")
        if reads is None:
            return
        found["queues"] = [queue.name for queue in reads.queues()]
        found["workers"] = [worker.name for worker in reads.workers()]
        found["crons"] = [entry.key for entry in reads.cron()]
        found["nodes"] = [node.node for node in reads.nodes()]
        found["ids"] = [str(job.id) for job in reads.jobs("is:incomplete", limit=50).jobs]
        for facet in reads.facets(sample=1_000).facets:
            if facet.qualifier == "tag":
                found["tags"] = [value.value for value in facet.values]
        found["done"] = []
