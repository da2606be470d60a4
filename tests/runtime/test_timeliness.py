"""Jobs start close to their time, and rows of other nodes take up nobody's slots."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from jobkit import JobInfo, Snooze, Worker, hookimpl
from jobkit.events import Event, JobStarted
from jobkit.storage.engine import node_connection
from tests.runtime.acts import Act
from tests.runtime.nodes import App, run
from tests.runtime.support import until

LATE = 3_000.0
"""Milliseconds; the stager looks once a second, the rest is this machine's."""


class Naps(Worker, name="naps"):
    async def perform(self, job: JobInfo) -> Snooze | None:
        return None if job.meta.get("snoozed") else Snooze(0.7)


class Starts:
    """A plugin that notes how long each job has waited since it was due."""

    def __init__(self) -> None:
        self.late: dict[tuple[int, int], float] = {}
        self.starts: list[int] = []

    @hookimpl
    def jobkit_event(self, event: Event) -> None:
        if isinstance(event, JobStarted):
            self.starts.append(event.id)
            self.late[event.id, self.starts.count(event.id)] = event.queue_ms


def test_SC7_what_comes_due_while_the_node_is_idle_starts_close_to_its_time(
    make: Callable[..., App],
) -> None:
    starts = Starts()
    app = make(workers=[Act, Naps], plugins=[starts])

    async def scenario() -> None:
        async with app.node():
            await until(lambda: app.nodes())
            later, napping = app.enqueue(Act().job(schedule_in=1.3), Naps())
            await until(lambda: app.states() == ["completed", "completed"], 20)
        assert 0 <= starts.late[later, 1] < LATE
        assert 0 <= starts.late[napping, 2] < LATE

    run(scenario)


@pytest.mark.parametrize("arm", ["auto", "portable"])
def test_QU6_rows_of_other_nodes_use_up_no_slots(make: Callable[..., App], arm: str) -> None:
    app = make(queues="default:2", arm=arm)
    [held, *_] = ids = app.enqueue(*[Act() for _ in range(4)])
    for id in ids[:3]:
        app.change(
            id, state="executing", attempt=1, attempted_by="silent:1:0", attempted_at=datetime.now(UTC)
        )
    with node_connection(app.core.engine, autocommit=False) as conn:
        app.core.storage.register_node(conn, "silent:1:0", now=datetime.now(UTC), queues={}, info={})

    async def scenario() -> None:
        async with app.node():
            [row] = await app.settled(ids[3])
            assert row.state == "completed"
            assert app.row(held).state == "executing"

    run(scenario)
