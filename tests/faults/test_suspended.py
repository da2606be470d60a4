"""Processes that stand still for longer than others wait for them, and machines whose clocks disagree."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections import Counter

import psutil
import pytest

from tests.faults.figures import record
from tests.faults.support import Load, assert_all_loops_turn, elapsed, told
from tests.support.chores import nap, nap_in_thread
from tests.support.processes import NodeProcess, Rig, wait_for

pytestmark = pytest.mark.slow


def test_CW3_a_node_that_was_suspended_and_declared_dead_writes_nothing_and_starts_anew(rig: Rig) -> None:
    rig.settings["dead_after"] = "4s"
    frozen, other = rig.start(), rig.start()
    kinds = [nap(n=i, seconds=5) if i % 2 else nap_in_thread(n=i, seconds=5) for i in range(14)]
    ids = rig.enqueue(*kinds)
    wait_for("both run some", lambda: len({line.pid for line in rig.lines("begin")}) == 2)
    wait_for("all have begun", lambda: len(rig.lines("begin")) == 14)
    theirs = {line.id for line in rig.lines("begin") if line.pid == frozen.pid}
    _suspend(rig, frozen)
    stopped = time.monotonic()
    # Where it was stopped within a transaction, the server ends its session before its row can be written.
    other.wait_for_log("is dead: its row has not changed", 40)
    other.wait_for_log("rescued", 30)
    still = elapsed(stopped)
    frozen.signal(signal.SIGCONT)
    frozen.wait_for_log("was declared dead and starts anew", 15)
    rig.wait_until_final(ids)

    rig.check(ids)
    assert {rig.row(id).attempt for id in theirs} == {2}
    claims = Counter(change.id for change in rig.changes() if change.new == "executing")
    assert {claims[id] for id in theirs} == {2}
    assert {claims[id] for id in set(ids) - theirs} == {1}
    assert other.lines("was declared dead") == []
    assert frozen.lines("is dead") == [], "who was asleep has seen nobody die"
    rig.nodes[0].expected = True
    assert_all_loops_turn(rig, 2)
    record(
        rig.core.dialect,
        f"A node stopped by SIGSTOP for {still:.0f} s (dead after 4 s), then SIGCONT",
        f"1 x, {len(theirs)} of its jobs running",
        f"all {len(theirs)} were run again elsewhere; what the sleeper still did for them was not recorded; it took a "
        f"new name and went on; none lost, none recorded twice",
    )
    assert [frozen.stop(), other.stop()] == [0, 0]


def _suspend(rig: Rig, node: NodeProcess) -> None:
    """Stop the node; on SQLite not while it holds the one lock, since nobody could do anything until it goes on."""
    while True:
        node.signal(signal.SIGSTOP)
        wait_for("it has stopped", lambda: psutil.Process(node.pid).status() == psutil.STATUS_STOPPED)
        if rig.core.dialect != "sqlite" or not _locked(rig):
            return
        node.signal(signal.SIGCONT)


def _locked(rig: Rig) -> bool:
    conn = sqlite3.connect(rig.url.removeprefix("sqlite:///"), timeout=0.5, isolation_level=None)
    try:
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        conn.close()
    return False


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_lone_node_that_was_suspended_goes_on_with_its_jobs(rig: Rig) -> None:
    """Nobody else is there to declare it dead, and it does not do so itself."""
    rig.settings["dead_after"] = "3s"
    node = rig.start()
    ids = rig.enqueue(*[nap(n=i, seconds=3) for i in range(4)], *[nap_in_thread(n=9, seconds=3)])
    wait_for("all run", lambda: len(rig.lines("begin")) == 5)
    node.signal(signal.SIGSTOP)
    stopped = time.monotonic()
    wait_for("twice as long as the limit", lambda: elapsed(stopped) > 6)
    node.signal(signal.SIGCONT)
    rig.wait_until_final(ids)
    rig.check(ids)
    assert set(rig.runs().values()) == {1}
    assert node.lines("dead") == []
    assert_all_loops_turn(rig, 1)
    assert node.stop() == 0


def test_CW9_clocks_that_are_90_s_apart_rescue_nobody_and_lose_nothing(rig: Rig) -> None:
    rig.settings["dead_after"] = "3s"
    app = ("--app", "tests.support.skewed:app")
    fast = rig.start(imports=app, CHORES_SKEW="90")
    exact = rig.start(imports=app, CHORES_SKEW="0")
    long = rig.enqueue(*[nap(n=5_000 + i, seconds=5) for i in range(6)])
    load = Load(rig)
    started = time.monotonic()
    with load.running():
        load.more(100)
        wait_for("several times the limit", lambda: elapsed(started) > 9)
    rig.wait_until_final([*long, *load.ids])
    rig.check([*long, *load.ids])
    assert {rig.row(id).attempt for id in long} == {1}
    for node in (fast, exact):
        assert node.lines("dead|rescued") == []
        assert told(node) == []
    assert {line.pid for line in rig.lines("begin")} == {fast.pid, exact.pid}

    fast.kill()
    exact.wait_for_log("is dead", 20)
    jobs = rig.enqueue(*[nap(n=6_000 + i, seconds=0.1) for i in range(5)])
    rig.wait_until_final(jobs)
    record(
        rig.core.dialect,
        "Clocks of two nodes 90 s apart",
        f"1 x, {elapsed(started):.0f} s under load (dead after 3 s)",
        f"{len(load.ids) + len(long)} jobs, none lost, none recorded twice, nobody declared dead; when one was killed "
        "the other noticed in time",
    )
