"""The end of a node while its database keeps silent: bounded, whatever happens."""

from __future__ import annotations

import signal
import time

import pytest
from sqlalchemy import make_url

from tests.faults.figures import record
from tests.support.chores import deaf, nap, nap_in_thread
from tests.support.processes import Rig, wait_for
from tests.support.proxy import Proxy

pytestmark = pytest.mark.slow

GRACE = 2.0
BOUND = GRACE + 15.0
"""The grace, then what the last flush (5 s), the services, the node's row and the connections may take together."""


@pytest.fixture
def pg_rig(tmp_path, postgres_url):  # type: ignore[no-untyped-def]
    made = Rig(tmp_path, postgres_url, dead_after="4s", shutdown_grace=f"{GRACE:g}s")
    yield made
    made.close()


@pytest.fixture
def proxy(pg_rig: Rig):  # type: ignore[no-untyped-def]
    url = make_url(pg_rig.url)
    with Proxy((str(url.host), int(url.port or 0))) as made:
        yield made


@pytest.mark.parametrize("how", ["silent", "cut"])
def test_SD3_the_end_is_bounded_while_the_database_keeps_silent(pg_rig: Rig, proxy: Proxy, how: str) -> None:
    """Every packet is acknowledged and swallowed, or no connection comes about; a finished, a running, a deaf and a
    thread's job are there.
    """
    rig = pg_rig
    node = rig.start(url=make_url(rig.url).set(port=proxy.port).render_as_string(hide_password=False))
    ids = rig.enqueue(
        nap(n=1, seconds=0.8), nap(n=2, seconds=30), deaf(n=3, seconds=30), nap_in_thread(n=4, seconds=30)
    )
    wait_for("all run", lambda: len(rig.lines("begin")) == 4)
    if how == "silent":
        proxy.swallow(new=True)
    else:
        proxy.refusing = True
        proxy.cut()
    wait_for("one has ended", lambda: len(rig.lines("end")) == 1)
    started = time.monotonic()
    node.signal(signal.SIGTERM)
    code = node.wait(BOUND + 20)
    took = time.monotonic() - started
    assert took < BOUND, node.text()[-3000:]
    assert code == 11
    assert rig.count("executing") == 4

    words = "keeps silent" if how == "silent" else "takes no connection"
    record(
        "Postgres",
        f"`jobkit run` told to stop while the database {words}",
        f"1 x, grace {GRACE:g} s; one job finished, three that cannot or will not end",
        f"left after {took:.0f} s with exit code {code}; all four ran again elsewhere",
    )
    proxy.cut()
    other = rig.start()
    wait_for(
        "all are rescued",
        lambda: len({line.id for line in rig.lines("begin") if line.pid == other.pid}) == 4,
        40,
    )
    assert set(rig.states()) == set(ids)


def test_SD1_the_second_signal_ends_at_once_while_the_database_keeps_silent(
    pg_rig: Rig, proxy: Proxy
) -> None:
    rig = pg_rig
    node = rig.start(url=make_url(rig.url).set(port=proxy.port).render_as_string(hide_password=False))
    rig.enqueue(nap_in_thread(n=1, seconds=30))
    wait_for("it runs", lambda: len(rig.lines("begin")) == 1)
    proxy.swallow(new=True)
    node.signal(signal.SIGINT)
    node.wait_for_log("SIGINT: stopping")
    started = time.monotonic()
    node.signal(signal.SIGINT)
    assert node.wait(10) == 130
    assert time.monotonic() - started < 2.5


def test_SD8_an_idle_node_stops_within_a_second_and_leaves_no_row(pg_rig: Rig) -> None:
    node = pg_rig.start()
    pg_rig.wait_for_beats()
    started = time.monotonic()
    assert node.stop() == 0
    took = time.monotonic() - started
    assert took < 3, "the promise is one second; the machine may be busy"
    assert pg_rig.beats() == {}
