"""Jobs that do their worst to the process that runs them."""

from __future__ import annotations

import time

import pytest

from tests.faults.figures import record
from tests.faults.support import assert_all_loops_turn, elapsed, told
from tests.support.chores import (
    block,
    deaf,
    eats_timeout,
    exits,
    exits_in_child,
    nap,
    note,
    spin,
    unprintable,
)
from tests.support.processes import Rig, wait_for

pytestmark = pytest.mark.slow


def test_CW6_CW10_jobs_that_end_their_process(rig: Rig) -> None:
    """In a thread it takes the node along, and each time counts; in a child it harms itself alone."""
    rig.settings["dead_after"] = "3s"
    first = rig.start()
    childs = rig.enqueue(exits_in_child(n=1))
    mates = rig.enqueue(*[nap(n=10 + i, seconds=1.5) for i in range(3)])
    wait_for("the child has ended", lambda: rig.states()[childs[0]] == "discarded", 30)
    assert "process ended" in str(rig.row(childs[0]).errors)
    rig.wait_until_final(mates)
    rig.check(mates)

    (id,) = rig.enqueue(exits(n=2).job(max_attempts=2))
    assert first.wait(20) == 3
    starts = 1
    rig.start()

    def ended() -> bool:
        nonlocal starts
        if not rig.nodes[-1].alive:
            starts += 1
            rig.start(ready=False)
        return rig.states()[id] == "discarded"

    wait_for("it is discarded", ended, 40, every=0.2)
    assert rig.runs()[id] == 2
    ids = rig.enqueue(*[note(n=50 + i) for i in range(5)])
    rig.wait_until_final(ids)
    rig.check(ids)
    record(
        rig.core.dialect,
        "A job that calls `os._exit`",
        "in a child: 1 x; in a thread of the node: until its 2 attempts were used up",
        "the child's death was that job's failure alone; the node was started again each time, and the job ended as "
        "discarded; no other job was lost",
    )


def test_CW7_a_job_that_blocks_the_loop_for_40_s_stops_no_beat(rig: Rig) -> None:
    seconds = 40.0 if rig.core.dialect == "sqlite" else 15.0
    rig.settings["dead_after"] = "5s"
    node, other = rig.start("--queues", "blocked:2"), rig.start("--queues", "default:10")
    started = time.monotonic()
    (blocking,) = rig.enqueue(block(n=1, seconds=seconds).job(queue="blocked"))
    wait_for("it blocks", lambda: len(rig.lines("begin")) == 1)
    behind = rig.enqueue(note(n=2).job(queue="blocked"))
    assert "chores.py" in node.wait_for_log(f"WARNING .*job {blocking} ", 15)
    lively = rig.enqueue(*[note(n=10 + i) for i in range(20)])
    rig.wait_until_final([blocking, *behind, *lively], 70)
    rig.check([blocking, *behind, *lively])
    assert rig.runs()[blocking] == 1
    assert other.lines("dead") == []
    assert len(told(node)) <= 4, told(node)
    assert_all_loops_turn(rig, 2)
    record(
        rig.core.dialect,
        f"A job that blocks the event loop for {seconds:.0f} s (dead after 5 s)",
        "1 x",
        f"named with its place after 2 s; its node went on beating and nobody declared it dead; recorded once; "
        f"{elapsed(started):.0f} s in all",
    )


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_CW7_jobs_that_burn_the_processor_stop_no_beat(rig: Rig) -> None:
    rig.settings["dead_after"] = "5s"
    node, other = rig.start("--queues", "default:8"), rig.start("--queues", "else:1")
    ids = rig.enqueue(*[spin(n=i, seconds=6) for i in range(8)])
    rig.wait_until_final(ids, 90)
    rig.check(ids)
    assert set(rig.runs().values()) == {1}
    assert other.lines("dead") == []
    assert told(node) == []


def test_a_thread_that_eats_its_timeout_a_deaf_coroutine_and_an_unprintable_error(rig: Rig) -> None:
    node = rig.start()
    (eater,) = rig.enqueue(eats_timeout(n=1, seconds=3).job(max_attempts=1))
    (stubborn,) = rig.enqueue(deaf(n=2, seconds=3).job(max_attempts=1))
    (silent,) = rig.enqueue(unprintable(n=3))
    rig.wait_until_final([eater, stubborn, silent])
    states, ends = rig.states(), {line.n for line in rig.lines("end")}
    assert ends == {1, 2}, "both went on to their own end"
    assert [states[id] for id in (eater, stubborn, silent)] == ["discarded"] * 3
    assert "timed out after 1 s" in str(rig.row(eater).errors)
    assert "timed out after 1 s" in str(rig.row(stubborn).errors)
    assert "Unprintable" in str(rig.row(silent).errors)
    assert sum(change.new == "discarded" for change in rig.changes()) == 3
    assert_all_loops_turn(rig, 1)
    record(
        rig.core.dialect,
        "A thread that eats its timeout, a coroutine that swallows its cancellation, an error that cannot be "
        "printed",
        "1 x each",
        "the slot was kept until the code really ended, then the timeout was recorded, once; the error was stored by "
        "its class",
    )
    assert node.stop() == 0


def test_SD6_a_node_in_a_long_graceful_stop_counts_as_alive(rig: Rig) -> None:
    """Its last job outlasts the dead-node limit by far."""
    rig.settings |= {"dead_after": "3s", "shutdown_grace": "30s"}
    stopping, other = rig.start(), rig.start("--queues", "else:1")
    ids = rig.enqueue(nap(n=1, seconds=9))
    wait_for("it runs", lambda: len(rig.lines("begin")) == 1)
    assert stopping.stop() == 0
    rig.wait_until_final(ids)
    rig.check(ids)
    assert rig.runs()[ids[0]] == 1
    assert other.lines("dead") == []
