"""Processes made by fork: they enqueue, and never act as the node or the connection that they came from."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.chores import forks, note
from tests.support.processes import Rig

pytestmark = pytest.mark.slow

PREFORK = """
import os, sys, threading
from jobkit.config import Config
from jobkit.core import Core
from jobkit.inserting import enqueue_with
from jobkit.wakeup import waker_of
from sqlalchemy import create_engine
from tests.support.chores import note

core = Core(Config(database_url=sys.argv[1]))
CHILDREN, EACH = 4, 50

def work(first, target=None):
    for n in range(first, first + EACH):
        enqueue_with(core, target, [note(n=n)])

work(0)                                   # connections, threads and the waker are there before the fork
held = core.engine.connect()              # one is even in use
children = []
for child in range(1, CHILDREN + 1):
    pid = os.fork()
    if pid == 0:
        try:
            work(child * 1000)
            assert waker_of(core).flush(5)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    children.append(pid)
work(9000)
codes = [os.waitpid(pid, 0)[1] for pid in children]
held.exec_driver_sql("SELECT 1")
held.close()
sys.exit(any(codes))
"""


def test_FK1_forked_children_enqueue_without_sharing_their_parents_connections(rig: Rig) -> None:
    node = rig.start()
    done = subprocess.run(
        [sys.executable, "-c", PREFORK, rig.url],
        env=rig.env,
        cwd=rig.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ids = list(rig.states())
    assert len(ids) == 6 * 50
    rig.wait_until_final(ids)
    rig.check(ids)
    assert sorted(line.n for line in rig.lines("end")) == sorted(
        first + n for first in (0, 1000, 2000, 3000, 4000, 9000) for n in range(50)
    )
    assert set(rig.runs().values()) == {1}
    assert node.stop() == 0


def test_FK2_a_child_forked_by_a_job_enqueues_and_never_acts_as_the_node(rig: Rig) -> None:
    """The child even comes back out of `perform`."""
    node = rig.start()
    ids = rig.enqueue(*[forks(n=i) for i in range(3)], *[note(n=100 + i) for i in range(20)])
    rig.wait_until_final(ids)
    rig.check(ids)
    from_children = [id for id in rig.states() if id not in ids]
    assert len(from_children) == 3
    rig.wait_until_final(from_children)
    rig.check(from_children)
    assert {line.pid for line in rig.lines("begin")} == {node.pid}
    assert len(rig.beats()) == 1
    assert node.stop() == 0
