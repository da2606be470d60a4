"""Processes that die without a word."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.faults.figures import record
from tests.support.chores import kills, nap, nap_in_thread, note
from tests.support.processes import Rig, wait_for

pytestmark = pytest.mark.slow


def test_CW1_lifeline_rescues_after_kill(rig: Rig) -> None:
    """The jobs of a node killed with -9 run again within 30 s; none is lost, none recorded twice."""
    doomed, other = rig.start(), rig.start()
    ids = rig.enqueue(
        *[nap(n=100 + i, seconds=4) for i in range(15)], *[nap(n=i, seconds=0.1) for i in range(60)]
    )
    wait_for(
        "long jobs on both nodes",
        lambda: len({line.pid for line in rig.lines("begin") if line.n >= 100}) == 2,
    )
    doomed.kill()
    killed_at = time.time()

    rig.wait_until_final(ids)

    rig.check(ids)
    ended = {line.id for line in rig.lines("end") if line.pid == doomed.pid}
    interrupted = {line.id for line in rig.lines("begin") if line.pid == doomed.pid} - ended
    again = [line for line in rig.lines("begin") if line.id in interrupted and line.pid == other.pid]
    assert {line.id for line in again} == interrupted
    assert interrupted
    assert max(line.at for line in again) - killed_at < 30
    assert {line.attempt for line in again} == {2}
    assert (
        Counter(line.id for line in rig.lines("end") if line.id not in interrupted).most_common(1)[0][1] == 1
    )
    record(
        rig.core.dialect,
        "A node killed with -9 in mid-run",
        f"1 x, {len(interrupted)} jobs running, a second node alive",
        f"they ran again within {max(line.at for line in again) - killed_at:.0f} s; of {len(ids)} jobs none lost, none "
        "recorded twice",
    )
    assert other.stop() == 0


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_CW1_a_lone_node_that_is_started_again_runs_what_its_predecessor_left(rig: Rig) -> None:
    rig.settings["dead_after"] = "4s"
    doomed = rig.start()
    ids = rig.enqueue(
        *[nap_in_thread(n=i, seconds=1) for i in range(5)], *[note(n=10 + i) for i in range(50)]
    )
    wait_for("all five run", lambda: sum(line.n < 10 for line in rig.lines("begin")) == 5)
    doomed.kill()
    killed_at = time.time()
    rig.start()

    rig.wait_until_final(ids)

    rig.check(ids)
    assert max(line.at for line in rig.lines("begin")) - killed_at < 30


def test_CW6_a_job_that_always_kills_its_worker_ends_discarded(rig: Rig) -> None:
    """Each crash counts as an attempt; a supervisor that starts nodes again is not kept busy for ever."""
    rig.settings["dead_after"] = "3s"
    (id,) = rig.enqueue(kills(n=1))
    survivor = rig.start("--only-queues", ready=False, JOBKIT_QUEUES="default:1")
    starts = 1

    def ended() -> bool:
        nonlocal survivor, starts
        if not survivor.alive:
            survivor, starts = rig.start(ready=False), starts + 1
        return rig.states()[id] == "discarded"

    wait_for("the job is discarded", ended, timeout=60, every=0.2)

    row = rig.row(id)
    assert row.attempt == row.max_attempts == 2
    assert rig.runs()[id] == 2
    assert "Orphaned" in str(row.errors)
    assert starts == 3
    (after,) = rig.enqueue(note(n=2))
    rig.wait_until_final([after])
