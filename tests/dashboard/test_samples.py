"""Numbers shared between viewers: when they are taken anew, by whom, and when they are known to be the same."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from jobkit import Jobkit
from jobkit.admin.reads import Reads
from jobkit_dashboard.cache import Samples
from tests.dashboard.support import Client


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class AtOnce:
    def submit(self, function: Callable[..., object], *given: object) -> None:
        function(*given)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def samples(clock: Clock) -> Samples:
    made = Samples(clock)
    made._pool = AtOnce()  # type: ignore[assignment]
    made._resting.set()
    return made


def counted(clock: Clock, cost: float = 0.0) -> Callable[[], int]:
    made = iter(range(1, 100))

    def make() -> int:
        clock.now += cost
        return next(made)

    return make


def test_what_took_long_is_taken_seldom(samples: Samples, clock: Clock) -> None:
    make = counted(clock, 1.0)
    assert samples.get("a", make).value == 1
    clock.now += 19.0
    assert samples.get("a", make).value == 1
    clock.now += 2.0
    assert samples.get("a", make).value == 2


def test_a_costly_number_is_taken_behind_the_viewers_back(samples: Samples, clock: Clock) -> None:
    make = counted(clock, 0.5)
    samples.get("a", make)
    clock.now += 11.0
    assert samples.get("a", make, behind=0.1).value == 1  # the old one, at once
    assert samples.get("a", make, behind=0.1).value == 2
    clock.now += 1_000.0
    assert samples.get("a", make, behind=0.1).value == 3  # too old to be shown


def test_what_is_still_the_same_is_not_taken_anew(samples: Samples, clock: Clock) -> None:
    make = counted(clock)
    samples.get("a", make)
    clock.now += 2.0
    assert samples.get("a", make, still=lambda value: value == 1).value == 1
    assert samples.age(samples.get("a", make)) == 0.0
    clock.now += 2.0
    assert samples.get("a", make, still=lambda value: False).value == 2


def test_a_number_that_cannot_be_counted_behind_leaves_the_old_one(samples: Samples, clock: Clock) -> None:
    samples.get("a", counted(clock, 0.5))
    clock.now += 11.0

    def fails() -> int:
        raise RuntimeError("no")

    assert samples.get("a", fails, behind=0.1).value == 1
    assert samples.get("a", counted(clock, 0.5), behind=0.1).value == 1


def test_a_poll_looks_at_the_rows_and_makes_no_page(
    admin: Client, app: Jobkit, ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    dash = admin.http.app._dash  # type: ignore[attr-defined]
    token = admin.get("/-/live?page=/jobs&since=").headers["x-jobkit-token"]
    made: list[int] = []
    real = Reads.jobs
    monkeypatch.setattr(Reads, "jobs", lambda self, *a, **k: made.append(1) or real(self, *a, **k))

    def later() -> None:
        from dataclasses import replace

        dash.samples._samples = {k: replace(v, taken=v.taken - 2) for k, v in dash.samples._samples.items()}

    later()
    assert admin.get(f"/-/live?page=/jobs&since={token}").status_code == 204
    assert not made
    jobs = app.tables.jobs
    with app.engine.begin() as conn:
        conn.execute(sa.update(jobs).where(jobs.c.id == ids[0]).values(priority=7))
    deadline = time.monotonic() + 20  # where drawing was slow it is done behind the poll
    while admin.get(f"/-/live?page=/jobs&since={token}").status_code != 200:
        assert time.monotonic() < deadline
        later()
    assert made
