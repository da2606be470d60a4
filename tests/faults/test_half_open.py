"""Connections that are neither dead nor alive, through a proxy."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import make_url

from tests.faults.figures import record
from tests.faults.support import Load, assert_all_loops_turn, backends, elapsed, settle_down, told, usage
from tests.support.chores import nap, note
from tests.support.processes import Rig, wait_for
from tests.support.proxy import Proxy

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(pg_rig: Rig) -> Iterator[Proxy]:
    """Between the nodes and the server; the rig itself goes past it."""
    url = make_url(pg_rig.url)
    assert url.host is not None
    assert url.port is not None
    with Proxy((url.host, url.port)) as made:
        yield made


def through(proxy: Proxy, rig: Rig) -> str:
    """The rig's URL by way of the proxy."""
    return make_url(rig.url).set(port=proxy.port).render_as_string(hide_password=False)


def test_DB2_DB3_connections_on_which_nothing_moves_any_more_are_found_and_replaced(
    pg_rig: Rig, proxy: Proxy
) -> None:
    """A proxy swallows every packet and acknowledges it all the same, as a firewall that forgot a connection may."""
    rig = pg_rig
    node = rig.start(url=through(proxy, rig))
    held = rig.enqueue(nap(n=7_000, seconds=8))
    load = Load(rig)
    standstills = []
    with load.running():
        load.more()
        before = usage(rig, node)
        for _ in range(2):
            silent = proxy.swallow()
            assert silent >= 1
            since = time.monotonic()
            load.more(timeout=60)
            standstills.append(elapsed(since))
        # An idle listener waits for nothing that could be missed: it finds out by not hearing its own pings.
        node.wait_for_log("notifications arrive again", 60)
    everything = list(rig.states())
    rig.wait_until_final(everything)
    rig.check(everything)
    assert rig.row(held[0]).attempt == 1
    assert_all_loops_turn(rig, 1)
    after = settle_down(rig, node, before)
    assert len(told(node)) <= 12, "\n".join(told(node))
    record(
        "Postgres",
        "Half-open connections: a proxy acknowledges and swallows everything",
        "2 x all connections of a node under load",
        f"{len(everything)} jobs, none lost, none recorded twice; works again after "
        f"{', '.join(f'{s:.0f}' for s in standstills)} s; {len(told(node))} lines of trouble; open files "
        f"{before.descriptors} before, {after.descriptors} after",
    )
    assert node.stop() == 0


def test_a_statement_that_waits_for_a_lock_is_left_alone(pg_rig: Rig) -> None:
    """It is silent for longer than a dead connection may be, but the server is at work on it."""
    rig = pg_rig
    node = rig.start()
    url = make_url(rig.url)
    with psycopg.connect(host=url.host, port=url.port, user=url.username, dbname=url.database) as locker:
        locker.execute("LOCK TABLE jobkit_jobs IN ACCESS EXCLUSIVE MODE")
        waiting = "wait_event_type = 'Lock'"
        wait_for("the node waits for the lock", lambda: backends(rig, waiting), 10)
        (first, *_) = backends(rig, waiting)
        since = time.monotonic()
        wait_for("it waits on, on the same connection", lambda: elapsed(since) > 9)
        assert first in backends(rig, waiting)
    ids = rig.enqueue(note(n=1))
    rig.wait_until_final(ids)
    assert node.lines("in vain|database trouble") == []
    assert_all_loops_turn(rig, 1)
