"""Completion of queries: qualifiers first, then their values.

Invariant: it is bounded and quiet: a few index look-ups and a sample of the newest jobs, redacted before
anything is offered; whatever goes wrong, there are just no suggestions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from jobkit.admin._ast import BARE, Exact, Query, path_text, printed_name
from jobkit.admin._context import Context
from jobkit.admin._facts import Facts, error_class
from jobkit.admin._orders import walk_of
from jobkit.admin.access import vocabulary
from jobkit.admin.errors import AdminError
from jobkit.admin.query import SORTS
from jobkit.admin.views import Suggestion
from jobkit.errors import JobkitError
from jobkit.hookspecs import Resource
from jobkit.redact import REDACTED

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Suggester"]

log = logging.getLogger("jobkit.admin")

SAMPLE: Final = 500
BUDGET: Final = timedelta(milliseconds=100)
_WORD: Final = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*"?)*$')
_MAX_LEAF: Final = 60


class Suggester:
    """Completions for one place in one query."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def suggest(self, text: str, position: int | None, limit: int) -> tuple[Suggestion, ...]:
        """What may stand at the position."""
        self._context.require("view.jobs", Resource("job"))
        position = len(text) if position is None else max(0, min(position, len(text)))
        found = _WORD.search(text[:position])
        word = found[0] if found else ""
        start = position - len(word)
        if word.startswith("-"):
            word, start = word[1:], start + 1
        name, colon, typed = word.partition(":")
        if not colon:
            return tuple(self._qualifiers(word, start))[:limit]
        typed = typed.rpartition(",")[2]
        place = position - len(typed)
        return tuple(self._values(name, typed, place))[:limit]

    def _qualifiers(self, word: str, start: int) -> Iterator[Suggestion]:
        lower = word.lower()
        fields = vocabulary(self._context.app).fields
        for field in fields:
            if field.name.startswith(lower):
                yield Suggestion(f"{field.name}:", start, len(word), "qualifier", field.help)
        head = lower.partition(".")[0]
        if head in ("args", "meta") and "." in word:
            for name in self._paths(head):
                if name.lower().startswith(lower):
                    yield Suggestion(f"{name}:", start, len(word), "qualifier")

    def _values(self, name: str, typed: str, start: int) -> Iterator[Suggestion]:
        bare = typed.lstrip('"').lower()
        values = [value for value in self._known(name) if REDACTED not in value]
        ranked = sorted(
            {value for value in values if bare in value.lower()},
            key=lambda value: (not value.lower().startswith(bare), value),
        )
        for value in ranked:
            pathed = name.startswith(("args.", "meta.")) and not _is_literal(value)
            text = str(Exact(value, value)) if pathed else printed_name(value)
            yield Suggestion(text, start, len(typed), "value")

    def _known(self, name: str) -> Iterable[str]:
        field = vocabulary(self._context.app).field(name)
        head = field.name if field else name.partition(".")[0]
        if field is not None and field.choices:
            return field.choices
        if head == "sort":
            return SORTS
        try:
            return self._from_plugin(name) or self._from_database(head, name)
        except JobkitError as error:
            log.debug("no suggestions for %s: %s", name, error)
            return ()

    def _from_plugin(self, name: str) -> Iterable[str]:
        for plugin, given in self._context.app.registry.gather("jobkit_query_qualifiers"):
            for qualifier in given if isinstance(given, list | tuple) else ():
                if qualifier.name == name and qualifier.suggest is not None and not qualifier.redacted:
                    try:
                        return [str(value) for value in qualifier.suggest("")]
                    except Exception as error:  # noqa: BLE001 - a plugin's
                        self._context.app.registry.failed(plugin, "jobkit_query_qualifiers", error)
        return ()

    def _from_database(self, head: str, name: str) -> Iterable[str]:
        context = self._context
        with context.reading() as conn:
            if not context.scope.terms and (found := self._from_tables(conn, head)):
                return found
            return [value for job in self._sample(conn) for value in _values_of(job, head, name)]

    def _from_tables(self, conn: Connection, head: str) -> list[str]:
        tables = self._context.app.tables
        column = {
            "queue": tables.queues.c.name,
            "worker": tables.workers.c.name,
            "node": tables.nodes.c.node,
            "cron": tables.entries.c.key,
        }.get(head)
        return [] if column is None else list(conn.scalars(select(column).limit(1_000)))

    def _sample(self, conn: Connection) -> list[Facts]:
        searcher = self._context.searcher(conn, Query(), BUDGET)
        walk = walk_of(searcher.compiler, searcher.base, searcher.query, "id", True)
        assert walk is not None
        return searcher.walk(walk, SAMPLE).jobs

    def _paths(self, head: str) -> list[str]:
        """The paths that the newest jobs have, but for those whose values are hidden."""
        try:
            with self._context.reading() as conn:
                jobs = self._sample(conn)
        except AdminError:
            return []
        found: dict[str, None] = {}
        for job in jobs:
            root = job.args if head == "args" else job.meta
            found |= dict.fromkeys(_paths_in(root, head, 0))
        hidden = self._context.app.redactor.is_secret_path
        return sorted(path for path in found if not hidden(path))


def _paths_in(value: object, path: str, depth: int) -> Iterator[str]:
    if depth >= 8:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths_in(item, path + path_text((str(key),)), depth + 1)
    elif isinstance(value, list):
        for item in value[:20]:
            yield from _paths_in(item, f"{path}[]", depth + 1)
    elif value != REDACTED:
        yield path


def _values_of(job: Facts, head: str, name: str) -> Iterator[str]:
    plain: dict[str, tuple[str | None, ...]] = {
        "queue": (job.queue,),
        "worker": (job.worker,),
        "node": (job.node,),
        "cron": (job.cron,),
        "tag": job.tags,
        "error.class": (error_class(job.error),),
        "id": (str(job.id),),
        BARE: (),
    }
    if head in plain:
        yield from (value for value in plain[head] if value)
    elif head in ("args", "meta"):
        root = job.args if head == "args" else job.meta
        for path, leaf in _leaves(root, head, 0):
            if path == name and len(leaf) <= _MAX_LEAF:
                yield leaf


def _leaves(value: object, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth >= 8:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, path + path_text((str(key),)), depth + 1)
    elif isinstance(value, list):
        for item in value[:20]:
            yield from _leaves(item, f"{path}[]", depth + 1)
    elif isinstance(value, str):
        yield path, value
    else:
        yield path, str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def _is_literal(value: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?|true|false|null", value))
