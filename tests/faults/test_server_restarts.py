"""Postgres stops and starts while jobs are enqueued and run."""

from __future__ import annotations

import time

import pytest

from tests.faults.figures import record
from tests.faults.support import Load, assert_all_loops_turn, own_time, settle_down, told, usage
from tests.support.chores import nap, nap_in_thread
from tests.support.postgres import PostgresServer
from tests.support.processes import Rig, wait_for

pytestmark = pytest.mark.slow

STOPS = ("fast", "immediate", "immediate", "fast")
DOWN = 2.0


def test_DB1_DB2_a_server_that_is_stopped_and_started_under_load_costs_no_job(
    own_rig: Rig, server: PostgresServer
) -> None:
    rig = own_rig
    nodes = [rig.start(), rig.start()]
    long = rig.enqueue(*[nap(n=5_000 + i, seconds=6) for i in range(2)], nap_in_thread(n=5_010, seconds=6))
    load = Load(rig)
    with load.running():
        load.more()
        before = [usage(rig, node) for node in nodes]
        for mode in STOPS:
            server.stop(mode)
            down = time.monotonic()
            wait_for("the outage lasts", lambda down=down: time.monotonic() - down > DOWN)
            server.start()
            load.more()
    ids = [*long, *load.ids]
    everything = list(rig.states())
    rig.wait_until_final(everything)

    rig.check(everything)
    assert set(ids) <= set(everything)
    assert_all_loops_turn(rig, 2)
    after = [settle_down(rig, node, held) for node, held in zip(nodes, before, strict=True)]
    lines = [told(node) for node in nodes]
    assert max(map(len, lines)) <= 6 * len(STOPS), "\n".join(max(lines, key=len))
    assert not any("Traceback" in node.text() for node in nodes)
    # A job whose node lived through it all runs once: its result is recorded late, not made anew.
    assert {rig.row(id).attempt for id in long} == {1}
    again = sum(count > 1 for id, count in rig.runs().items() if id in set(ids)) - len(
        {line.id for line in rig.lines("begin") if line.attempt == 2}
    )
    record(
        "Postgres",
        "Postgres stopped and started under load",
        f"{STOPS.count('fast')} x fast, {STOPS.count('immediate')} x immediate, {DOWN:g} s down each; 2 nodes",
        f"{len(everything)} jobs, none lost, none recorded twice, {max(again, 0)} run again; longest standstill "
        f"{own_time(rig):.1f} s; at most {max(map(len, lines))} lines of trouble a node; open files "
        f"{before[0].descriptors} before, {after[0].descriptors} after",
    )
    assert [node.stop() for node in nodes] == [0, 0]
