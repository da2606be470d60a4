from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import sqlalchemy as sa

from jobkit import Jobkit
from jobkit.jobs import JobState
from jobkit.testing import FrozenClock
from jobkit.wakeup import waker_of
from tests.plugins.conftest import Noop, services, tick
from tests.support.nodes import StillNode


def count(app: Jobkit, state: JobState | None = None) -> int:
    jobs = app.tables.jobs
    query = sa.select(sa.func.count()).select_from(jobs)
    with app.core.read_engine.connect() as conn:
        return int(conn.execute(query if state is None else query.where(jobs.c.state == state)).scalar_one())


def test_SC7_due_jobs_become_available_and_their_queues_are_woken(app: Jobkit, clock: FrozenClock) -> None:
    app.enqueue_all([Noop(n=n).job(queue=q, schedule_in=10) for n in range(5) for q in ("a", "b")])
    woken: list[frozenset[str]] = []
    waker_of(app.core).subscribe(woken.append)
    stager = services(app, StillNode())["stager"]
    assert tick(app, stager) == 0
    clock.advance(10)
    assert tick(app, stager) == 10
    assert count(app, JobState.AVAILABLE) == 10
    assert frozenset().union(*woken) == {"a", "b"}


def test_staging_goes_on_past_a_full_batch(make_app: Callable[..., Jobkit], clock: FrozenClock) -> None:
    app = make_app(plugins={"stager": {"batch": 3}})
    app.enqueue_all([Noop(n=n).job(schedule_in=1) for n in range(20)])
    clock.advance(2)
    assert tick(app, services(app, StillNode())["stager"]) == 20


def finished(app: Jobkit, number: int) -> None:
    app.enqueue_all([Noop(n=n) for n in range(number)])
    jobs = app.tables.jobs
    with app.engine.begin() as conn:
        done = {"state": JobState.COMPLETED, "completed_at": app.core.clock.now()}
        conn.execute(sa.update(jobs).values(done))


def test_PR3_only_what_became_final_long_enough_ago_is_pruned(app: Jobkit, clock: FrozenClock) -> None:
    finished(app, 4)
    clock.advance(timedelta(days=6))
    finished_later = app.enqueue(Noop()).id
    pruner = services(app, StillNode())["pruner"]
    assert tick(app, pruner) == 0
    clock.advance(timedelta(days=1, seconds=1))
    assert tick(app, pruner) == 4
    jobs = app.tables.jobs
    with app.core.read_engine.connect() as conn:
        assert list(conn.execute(sa.select(jobs.c.id)).scalars()) == [finished_later]


def test_PR1_a_round_is_made_of_bounded_batches(make_app: Callable[..., Jobkit], clock: FrozenClock) -> None:
    app = make_app(plugins={"pruner": {"batch": 10, "batches": 3, "pause": "0s"}})
    finished(app, 45)
    clock.advance(timedelta(days=8))
    pruner = services(app, StillNode())["pruner"]
    assert [tick(app, pruner), tick(app, pruner)] == [30, 15]


def test_PR2_a_stopping_node_ends_the_round_after_the_batch(
    make_app: Callable[..., Jobkit], clock: FrozenClock
) -> None:
    app = make_app(plugins={"pruner": {"batch": 5, "pause": "1h"}})
    finished(app, 20)
    clock.advance(timedelta(days=8))
    node = StillNode()
    pruner = services(app, node)["pruner"]
    counts: list[int] = []
    thread = threading.Thread(target=lambda: counts.append(tick(app, pruner)))
    thread.start()
    end = threading.Event()
    while count(app) == 20 and not end.wait(0.01):
        pass
    app.core.registry.observe("jobkit_node_stopping", node=node)
    thread.join(10)
    assert counts == [5]


def test_PR5_disabled_pruning_has_no_service(make_app: Callable[..., Jobkit]) -> None:
    assert "pruner" not in services(make_app(prune_after=None), StillNode())
