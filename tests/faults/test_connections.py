"""Connections that are ended from outside, at the worst moments."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from tests.faults.figures import record
from tests.faults.support import (
    Load,
    assert_all_loops_turn,
    backends,
    own_time,
    settle_down,
    terminate,
    told,
    usage,
)
from tests.support.chores import nap, nap_in_thread, note
from tests.support.processes import Rig, wait_for
from tests.support.proxy import Proxy

pytestmark = pytest.mark.slow

LISTENING = "query LIKE 'LISTEN%%'"


@pytest.fixture
def proxy(pg_rig: Rig) -> Iterator[Proxy]:
    """Between a node and the server; the rig itself goes past it."""
    url = make_url(pg_rig.url)
    assert url.host is not None
    assert url.port is not None
    with Proxy((url.host, url.port)) as made:
        yield made


def through(proxy: Proxy, rig: Rig) -> str:
    """The rig's URL by way of the proxy."""
    return make_url(rig.url).set(port=proxy.port).render_as_string(hide_password=False)


def test_DB3_ML3_connections_terminated_again_and_again_cost_neither_jobs_nor_descriptors(
    pg_rig: Rig,
) -> None:
    rig = pg_rig
    nodes = [rig.start(), rig.start()]
    long = rig.enqueue(*[nap(n=5_000 + i, seconds=5) for i in range(2)], nap_in_thread(n=5_010, seconds=5))
    load = Load(rig)
    rounds, ended = 15, 0
    with load.running():
        load.more()
        before = [usage(rig, node) for node in nodes]
        for _ in range(rounds):
            ended += terminate(rig)
            load.more(10)
    everything = list(rig.states())
    rig.wait_until_final(everything)
    rig.check(everything)
    assert set(load.ids) <= set(everything)
    assert {rig.row(id).attempt for id in long} == {1}
    assert_all_loops_turn(rig, 2)
    after = [settle_down(rig, node, held) for node, held in zip(nodes, before, strict=True)]
    lines = [told(node) for node in nodes]
    assert max(map(len, lines)) <= 12, "\n".join(max(lines, key=len))
    record(
        "Postgres",
        "All connections ended by `pg_terminate_backend` while jobs run",
        f"{rounds} x, {ended} connections of 2 nodes and their callers, under load",
        f"{len(everything)} jobs, none lost, none recorded twice; longest standstill {own_time(rig):.1f} s; at most "
        f"{max(map(len, lines))} lines of trouble a node; open files {before[0].descriptors} before, "
        f"{after[0].descriptors} after; connections {before[0].connections} before, {after[0].connections} after",
    )


@pytest.mark.parametrize(
    ("what", "needle"),
    [
        ("between a claim and its reply", b"SKIP LOCKED"),
        ("between the recording of results and the reply", b"completed"),
    ],
)
def test_DB1_a_line_cut_before_the_reply_loses_nothing(
    pg_rig: Rig, proxy: Proxy, what: str, needle: bytes
) -> None:
    """The server has claimed, or recorded, and the node never hears of it."""
    rig = pg_rig
    node = rig.start(url=through(proxy, rig), JOBKIT_POSTGRES_PREPARE="off")
    rounds = 10
    for n in range(rounds):
        cuts = proxy.cuts
        proxy.cut_before_reply(needle)
        rig.enqueue(*[note(n=100 * n + i) for i in range(20)])
        wait_for("the line is cut", lambda cuts=cuts: proxy.cuts > cuts, 20)
    everything = list(rig.states())
    rig.wait_until_final(everything)
    rig.check(everything)
    given_back = sum(
        int(line.split(" jobs (")[0].split()[-1]) for line in node.lines("reply was lost; given back")
    )
    assert {rig.row(id).attempt for id in everything} == {1}
    assert set(rig.runs().values()) == {1}
    assert_all_loops_turn(rig, 1)
    assert node.lines("outcome=lost") == [], "what was recorded is told as recorded"
    told_back = (
        f"; {given_back} that were claimed unheard were given back by the heartbeat" if given_back else ""
    )
    record(
        "Postgres",
        f"The line cut {what}",
        f"{rounds} x, 20 jobs each",
        f"{len(everything)} jobs, none lost, none recorded twice, none run twice{told_back}",
    )


def test_DB7_the_listeners_connection_alone_is_ended(pg_rig: Rig) -> None:
    rig = pg_rig
    node = rig.start()
    rounds = 5
    delays = []
    for n in range(rounds):
        wait_for("it listens", lambda: backends(rig, LISTENING), 10)
        assert terminate(rig, LISTENING) == 1
        started = time.time()
        (id,) = rig.enqueue(note(n=n))
        rig.wait_until_final([id], 10)
        (line,) = [line for line in rig.lines("begin") if line.id == id]
        delays.append(line.at - started)
    wait_for("it listens again", lambda: len(backends(rig, LISTENING)) == 1, 10)
    wait_for("it hears itself", lambda: len(node.lines("notifications arrive again")) >= 1, 15)
    rig.check(list(rig.states()))
    assert max(delays) < 3, delays
    assert len(told(node)) <= 3, told(node)
    record(
        "Postgres",
        "The listener's connection alone ended",
        f"{rounds} x, a job enqueued right afterwards",
        f"each began within {max(delays):.2f} s; the listener was back each time; {len(told(node))} lines of trouble",
    )
