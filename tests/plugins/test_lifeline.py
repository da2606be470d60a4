from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from jobkit import Jobkit
from jobkit.events import JobsRescued, NodeLost
from jobkit.jobs import JobState
from jobkit.plugins.lifeline import Lifeline, LifelineSettings
from jobkit.testing import FrozenClock
from tests.plugins.conftest import Noop, Witness
from tests.support.nodes import StillNode

OTHER = "host:2:bbbbbbbb"
DEAD_AFTER = 15.0


class Watch:
    """One node's lifeline, and the beats of both nodes."""

    def __init__(self, app: Jobkit, clock: FrozenClock) -> None:
        self.app, self.clock = app, clock
        self.node = StillNode()
        self.lifeline = Lifeline(app.core, self.node, LifelineSettings())
        for name in (self.node.id, OTHER):
            with app.engine.connect() as conn:
                app.core.storage.register_node(conn, name, now=clock.now(), queues={"default": 5}, info={})

    def own_beat(self) -> None:
        self.beat(self.node.id)
        self.node.last_beat = self.clock.monotonic()

    def beat(self, node: str) -> None:
        with self.app.engine.connect() as conn:
            assert (
                self.app.core.storage.beat(conn, node, now=self.clock.now(), queues={}, info={}) is not None
            )

    def round(self, *, after: float = 5.0, own: bool = True, other: bool = False) -> int:
        """Let time pass beat by beat, then one round."""
        for _ in range(int(after)):
            self.clock.advance(1)
            if own:
                self.own_beat()
            if other:
                self.beat(OTHER)
        with self.app.engine.connect() as conn:
            return self.lifeline.tick(conn, self.clock.now())


@pytest.fixture
def watch(app: Jobkit, clock: FrozenClock) -> Watch:
    watch = Watch(app, clock)
    watch.own_beat()
    return watch


def run_on(app: Jobkit, node: str, count: int = 1, **options: object) -> list[int]:
    """Enqueue jobs and let a node claim them."""
    app.enqueue_all([Noop(n=n).job(**options) for n in range(count)])  # type: ignore[arg-type]
    with app.engine.connect() as conn:
        claimed = app.core.storage.claim(conn, "default", count, node=node, at=app.core.clock.now())
    return [job.id for job in claimed]


def states(app: Jobkit) -> dict[int, tuple[str, int]]:
    jobs = app.tables.jobs
    with app.core.read_engine.connect() as conn:
        return {id: (s, n) for id, s, n in conn.execute(sa.select(jobs.c.id, jobs.c.state, jobs.c.attempt))}


def test_CW1_a_silent_node_s_jobs_are_taken_back_in_time(app: Jobkit, watch: Watch, witness: Witness) -> None:
    (job,) = run_on(app, OTHER)
    rounds = 0
    while not watch.round():
        rounds += 1
        assert rounds * 5 <= 25
    assert states(app)[job] == (JobState.AVAILABLE, 1)
    assert witness.seen(NodeLost)[0].node == OTHER  # type: ignore[attr-defined]
    assert witness.seen(JobsRescued)[0].available == 1  # type: ignore[attr-defined]


def test_CW6_a_crash_counts_as_an_attempt(app: Jobkit, watch: Watch) -> None:
    (job,) = run_on(app, OTHER, max_attempts=1)
    for _ in range(5):
        watch.round()
    assert states(app)[job] == (JobState.DISCARDED, 1)


def test_a_node_that_beats_is_left_alone(app: Jobkit, watch: Watch) -> None:
    (job,) = run_on(app, OTHER)
    for _ in range(10):
        assert watch.round(other=True) == 0
    assert states(app)[job][0] == JobState.EXECUTING


@pytest.mark.parametrize("skew", [timedelta(seconds=90), timedelta(seconds=-90), timedelta(days=400)])
def test_CW9_no_two_clocks_are_compared(
    app: Jobkit, watch: Watch, clock: FrozenClock, skew: timedelta
) -> None:
    (job,) = run_on(app, OTHER)
    for _ in range(6):
        clock.set(clock.now() + skew)
        watch.beat(OTHER)
        clock.set(clock.now() - skew)
        assert watch.round() == 0
    assert states(app)[job][0] == JobState.EXECUTING


def test_an_own_beat_that_came_late_starts_all_observations_anew(app: Jobkit, watch: Watch) -> None:
    run_on(app, OTHER)
    watch.round()
    watch.round()
    assert watch.round(own=False) == 0
    assert watch.round(own=False) == 0, "this node was as silent as the other"
    for _ in range(2):
        assert watch.round() == 0
    assert watch.round() == 1, "fifteen seconds of unbroken observation"


def test_a_suspended_machine_rescues_nobody_when_it_wakes(
    app: Jobkit, watch: Watch, clock: FrozenClock
) -> None:
    (job,) = run_on(app, OTHER)
    watch.round(other=True)
    clock.advance(3600)
    watch.own_beat()
    assert watch.round(after=0) == 0
    assert watch.round(other=True) == 0
    assert states(app)[job][0] == JobState.EXECUTING


def test_a_round_that_failed_starts_all_observations_anew(
    app: Jobkit, watch: Watch, clock: FrozenClock
) -> None:
    run_on(app, OTHER)
    watch.round()
    watch.round()
    watch.round()
    with app.engine.connect() as conn:
        conn.close()
        clock.advance(1)
        with pytest.raises(sa.exc.ResourceClosedError):
            watch.lifeline.tick(conn, clock.now())
    assert watch.round() == 0


def test_orphans_without_a_live_row_are_rescued_at_every_round(app: Jobkit, watch: Watch) -> None:
    (job,) = run_on(app, OTHER)
    with app.engine.connect() as conn:
        app.core.storage.remove_node(conn, OTHER)
    assert watch.round(after=0) == 1
    assert states(app)[job] == (JobState.AVAILABLE, 1)


def test_CW12_rescue_goes_on_past_a_full_batch(app: Jobkit, clock: FrozenClock) -> None:
    watch = Watch(app, clock)
    watch.own_beat()
    watch.lifeline = Lifeline(app.core, watch.node, LifelineSettings(batch=3))
    run_on(app, OTHER, 10)
    with app.engine.connect() as conn:
        app.core.storage.remove_node(conn, OTHER)
    assert watch.round(after=0) == 10


def test_CW13_a_job_is_ended_only_when_nobody_has_known_it_for_the_grace(app: Jobkit, watch: Watch) -> None:
    jobs = app.tables.jobs
    id = app.enqueue(Noop()).id
    with app.engine.begin() as conn:
        conn.execute(sa.update(jobs).where(jobs.c.id == id).values(worker="from_the_future"))
        app.core.storage.publish_workers(conn, {"from_the_future": "{}"}, now=app.core.clock.now())
    for _ in range(60 * 9 // 5):
        assert watch.round() == 0
    assert states(app)[id][0] == JobState.AVAILABLE
    for _ in range(60 * 3 // 5):
        watch.round()
    assert states(app)[id][0] == JobState.DISCARDED
