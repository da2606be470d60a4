"""What happened to jobs since an instant: each job's last change, the oldest first, page by page.

Invariant: a job has exactly one last change, which its state tells; each kind of change is read in the order of an
index from where the page before ended, and none is handed out while another kind may still hold an older one. So pages,
put one after the other, leave out no job, however many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Text, and_, cast, func, literal_column, or_, select

from jobkit.admin._facts import Facts, columns_of
from jobkit.admin._match import matches
from jobkit.admin._orders import few, state_condition
from jobkit.admin.views import ChangeCursor
from jobkit.jobs import FINAL, JobState

if TYPE_CHECKING:
    from jobkit.admin._search import Searcher

__all__ = ["Changes", "changes_of"]

_DISORDER: Final = timedelta(minutes=1)
"""How far the ids of those who insert at once may lie apart from the order of their times."""
_INSERTED: Final = (JobState.AVAILABLE.value, JobState.SCHEDULED.value)
_RETRYABLE: Final = frozenset({JobState.RETRYABLE})
NOT_FOLLOWED: Final = (
    "so many jobs are scheduled or retryable that failures which will be tried again are not followed"
)


@dataclass(frozen=True, slots=True)
class Changes:
    """One page. `next`: where each kind goes on; None: there was nothing more when this was read."""

    jobs: tuple[tuple[datetime, Facts], ...]
    next: ChangeCursor | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of change: its rows, when each happened, and what they are ordered by."""

    name: str
    rows: ColumnElement[bool]
    at: ColumnElement[Any]
    since: object
    by_id: bool = False

    def behind(self, place: tuple[datetime, int] | None, key: object, c: Any) -> ColumnElement[bool]:
        """The rows of this page."""
        if place is None:
            return self.at >= self.since
        if self.by_id:
            return and_(self.at >= self.since, c.id > place[1])
        return or_(self.at > key, and_(self.at == key, c.id > place[1]))


@dataclass(slots=True)
class _Read:
    """What was read of one kind: rows in its order, and whether there are more."""

    kind: _Kind
    rows: list[tuple[datetime, int, Facts | None]]
    more: bool


def changes_of(searcher: Searcher, since: datetime, limit: int, cursor: ChangeCursor | None) -> Changes:
    """The next changes, up to `limit` of each kind."""
    kinds, note = _kinds(searcher, since)
    reads = [_read(searcher, kind, limit, (cursor or {}).get(kind.name)) for kind in kinds]
    horizon = min((max(at for at, _, _ in read.rows) for read in reads if read.more), default=None)
    told: list[tuple[datetime, Facts]] = []
    places = dict(cursor or {})
    for read in reads:
        for at, job_id, job in read.rows:
            if horizon is not None and at > horizon:
                break
            places[read.kind.name] = (at, job_id)
            if job is not None:
                told.append((at, job))
    told.sort(key=lambda change: (change[0], change[1].id))
    return Changes(tuple(told), None if horizon is None else places, note)


def _kinds(searcher: Searcher, since: datetime) -> tuple[list[_Kind], str]:
    c, compiler = searcher.compiler.c, searcher.compiler
    recent = and_(c.id > (searcher.id_at(since - _DISORDER) or 0), c.state.in_(_INSERTED))
    running = state_condition(compiler, frozenset({JobState.EXECUTING}))
    kinds = [
        _Kind("inserted", recent, c.inserted_at, since, by_id=True),
        _Kind("started", running, c.attempted_at, since),
    ]
    for state in sorted(FINAL):
        rows = state_condition(compiler, frozenset({state}))
        kinds.append(_Kind(state.value, rows, c[f"{state.value}_at"], since))
    if not few(searcher.conn, compiler, _RETRYABLE):
        return kinds, NOT_FOLLOWED
    kinds.append(_Kind("failed", state_condition(compiler, _RETRYABLE), _failed_at(searcher), _stamp(since)))
    return kinds, ""


def _failed_at(searcher: Searcher) -> ColumnElement[Any]:
    """When the last stored failure happened, as the text that the errors hold."""
    errors = searcher.compiler.c.errors
    if searcher.compiler.postgres:
        return errors.op("->")(literal_column("-1")).op("->>", return_type=Text())(literal_column("'at'"))
    return func.json_extract(cast(errors, Text()), "$[#-1].at")


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _read(searcher: Searcher, kind: _Kind, limit: int, place: tuple[datetime, int] | None) -> _Read:
    c = searcher.compiler.c
    key = None if place is None else (_stamp(place[0]) if isinstance(kind.since, str) else place[0])
    order = (c.id,) if kind.by_id else (kind.at, c.id)
    found = searcher.conn.execute(
        select(*columns_of(searcher.app.tables), kind.at.label("changed_at"))
        .where(kind.rows, searcher.condition, kind.behind(place, key, c))
        .order_by(*order)
        .limit(limit + 1)
    ).all()
    return _Read(kind, [_row(searcher, row._mapping) for row in found[:limit]], len(found) > limit)


def _row(searcher: Searcher, row: Any) -> tuple[datetime, int, Facts | None]:
    """When it happened, to which job, and the job where it matches in its redacted form."""
    at = row["changed_at"]
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    job = Facts(dict(row), searcher.app.redactor, searcher.around.now)
    matching = searcher.exact or matches(searcher.query, job, searcher.around)
    return at, job.id, job if matching else None
