from __future__ import annotations

import logging
from datetime import timedelta

import pytest
import sqlalchemy as sa

from jobkit import Jobkit
from jobkit.admin.actions import Actions
from jobkit.events import JobGivenBack, LoopBlocked
from jobkit.hookspecs import Actor, Service
from jobkit.jobs import JobState, Lease
from jobkit.testing import FrozenClock
from tests.plugins.conftest import Noop, Witness, services, tick
from tests.support.nodes import StillNode


@pytest.fixture
def node(app: Jobkit) -> StillNode:
    node = StillNode()
    with app.engine.connect() as conn:
        app.core.storage.register_node(
            conn, node.id, now=app.core.clock.now(), queues=dict(node.queues), info={}
        )
    return node


@pytest.fixture
def heart(app: Jobkit, node: StillNode) -> Service:
    return services(app, node)["heartbeat"]


def claim(app: Jobkit, node: StillNode) -> Lease:
    app.enqueue(Noop())
    with app.engine.connect() as conn:
        (job,) = app.core.storage.claim(conn, "default", 1, node=node.id, at=app.core.clock.now())
    return job.lease


def state(app: Jobkit, lease: Lease) -> tuple[str, int]:
    jobs = app.tables.jobs
    with app.core.read_engine.connect() as conn:
        row = conn.execute(sa.select(jobs.c.state, jobs.c.attempt).where(jobs.c.id == lease.id)).one()
        return (row[0], row[1])


def test_a_lease_without_its_row_is_aborted_so_a_cancel_crosses_nodes(
    app: Jobkit, node: StillNode, heart: Service
) -> None:
    lease = claim(app, node)
    node.held.add(lease)
    tick(app, heart)
    assert node.aborted == []
    Actions(app.core, Actor("tester@host")).cancel([lease.id])
    tick(app, heart)
    assert node.aborted == [lease]


def test_a_claim_whose_reply_was_lost_is_given_back_at_the_second_beat(
    app: Jobkit, node: StillNode, heart: Service, witness: Witness
) -> None:
    lease = claim(app, node)
    assert tick(app, heart) == 0
    assert state(app, lease) == (JobState.EXECUTING, 1)
    assert tick(app, heart) == 1
    assert state(app, lease) == (JobState.AVAILABLE, 0)
    assert witness.seen(JobGivenBack)[0].why == "stray"  # type: ignore[attr-defined]


def test_a_claim_in_flight_is_left_alone(app: Jobkit, node: StillNode, heart: Service) -> None:
    lease = claim(app, node)
    node.flying.add(lease.at)
    for _ in range(3):
        assert tick(app, heart) == 0
    assert state(app, lease) == (JobState.EXECUTING, 1)


def test_a_node_that_was_declared_dead_starts_anew(app: Jobkit, node: StillNode, heart: Service) -> None:
    with app.engine.connect() as conn:
        app.core.storage.remove_node(conn, node.id)
    tick(app, heart)
    assert node.renewals == 1
    assert node.beats == []


def test_a_failed_beat_is_told_to_the_node(app: Jobkit, node: StillNode, heart: Service) -> None:
    with app.engine.connect() as conn:
        conn.close()
        with pytest.raises(sa.exc.ResourceClosedError):
            heart.tick(conn, app.core.clock.now())
    assert node.beats == [False]


def test_QU1_pauses_and_limits_reach_the_node_and_go_back_when_taken_away(
    app: Jobkit, node: StillNode, heart: Service
) -> None:
    actions = Actions(app.core, Actor("tester@host"))
    with app.engine.begin() as conn:
        app.core.storage.ensure_queues(conn, app.config.queues, now=app.core.clock.now())
    actions.pause_queue("default")
    actions.scale_queue("default", 3)
    tick(app, heart)
    assert node.settings["default"] == (True, 3)
    node.queues = {"default": 3}
    actions.resume_queue("default")
    actions.scale_queue("default", None)
    tick(app, heart)
    assert node.settings["default"] == (False, 10)


def test_a_node_whose_loop_has_ended_stops_beating(app: Jobkit, node: StillNode, heart: Service) -> None:
    node.end_loop()
    tick(app, heart)
    assert node.beats == []


def test_CW7_a_blocked_loop_beats_on_and_its_job_is_named_once(
    app: Jobkit, node: StillNode, heart: Service, witness: Witness, caplog: pytest.LogCaptureFixture
) -> None:
    node.lag, node.blocker = 40.0, "job 7 (crunch)"
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            tick(app, heart)
    assert node.beats == [True] * 5
    assert [r.message for r in caplog.records if "job 7 (crunch)" in r.message].__len__() == 1
    assert len(witness.seen(LoopBlocked)) == 1


def test_known_workers_are_published_often_enough_for_the_grace(
    app: Jobkit, heart: Service, clock: FrozenClock
) -> None:
    tick(app, heart)
    first = clock.now()
    clock.advance(30)
    tick(app, heart)

    def seen() -> object:
        with app.core.read_engine.connect() as conn:
            return app.core.storage.known_workers(conn)["noop"]

    assert seen() == first
    clock.advance(timedelta(seconds=30))
    tick(app, heart)
    assert seen() == clock.now()
