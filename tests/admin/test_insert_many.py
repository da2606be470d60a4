"""Inserting many jobs at once: all are checked first, chunks commit one by one, each with its audit row."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import func, select

from jobkit import worker
from jobkit.admin import _insert
from jobkit.admin.actions import Actions
from jobkit.admin.errors import InvalidRequests
from jobkit.admin.results import InsertRequest, InsertResult
from jobkit.core import Core
from tests.admin.support import ADMIN


@worker
def greet(who: str, loud: bool = False) -> None:
    """Greet somebody."""


@pytest.fixture
def actions(app: Core) -> Actions:
    app.registry.add_worker(greet)
    return Actions(app, ADMIN)


def requests(*whom: object) -> list[InsertRequest]:
    return [InsertRequest("greet", f'{{"who": {who}}}') for who in whom]


def rows(app: Core, table: str) -> int:
    with app.engine.connect() as conn:
        return conn.scalar(select(func.count()).select_from(getattr(app.tables, table))) or 0


def test_nothing_is_written_where_one_is_wrong_and_each_wrong_one_is_named(
    app: Core, actions: Actions
) -> None:
    with pytest.raises(InvalidRequests) as caught:
        actions.insert_many(requests('"ann"', "7", '"bob"', "[]"))
    assert set(caught.value.problems) == {1, 3}
    assert rows(app, "jobs") == rows(app, "audit") == 0


def test_each_chunk_commits_with_one_audit_row_and_is_reported(
    app: Core, actions: Actions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_insert, "CHUNK", 2)
    told: list[int] = []

    def done(results: Sequence[InsertResult]) -> None:
        told.append(len(results))
        assert rows(app, "jobs") == sum(told), "what is reported has committed"

    made = actions.insert_many(requests(*(f'"{n}"' for n in range(5))), done=done)
    assert told == [2, 2, 1]
    assert [result.id for result in made] == sorted({result.id for result in made})
    assert rows(app, "audit") == 3


def test_no_requests_are_no_row(app: Core, actions: Actions) -> None:
    assert actions.insert_many([]) == ()
    assert rows(app, "audit") == 0
