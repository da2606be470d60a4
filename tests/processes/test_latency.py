"""How soon another process's idle node begins a job, counted from the commit."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine

from jobkit import configure_sqlite
from jobkit.inserting import enqueue_with
from tests.support.chores import note, note_in_thread
from tests.support.processes import Rig, wait_for

pytestmark = pytest.mark.slow

ROUNDS = 25
LIMIT = 0.5
"""Ten times what is promised: this machine may be busy. benchmarks/wakeup.py shows the figure itself."""


@pytest.fixture
def callers(rig: Rig) -> Iterator[Engine]:
    """An engine of the user's own."""
    engine = create_engine(rig.url)
    if engine.dialect.name == "sqlite":
        configure_sqlite(engine)
    yield engine
    engine.dispose()


def test_SC6_another_processs_idle_node_starts_a_job_right_after_the_commit_and_never_before(
    rig: Rig, callers: Engine
) -> None:
    rig.start()
    delays = []
    for n in range(ROUNDS):
        with callers.begin() as conn:
            (inserted,) = enqueue_with(rig.core, conn, [(note if n % 2 else note_in_thread)(n=n)])
            before = time.time()
        wait_for("the job begins", lambda id=inserted.id: id in {line.id for line in rig.lines("begin")})
        (line,) = [line for line in rig.lines("begin") if line.id == inserted.id]
        assert line.at > before
        delays.append(line.at - before)

    assert statistics.median(delays) < LIMIT, sorted(delays)
    assert max(delays) < 5.5, "slower than polling"


def test_SC6_nothing_begins_while_the_transaction_is_open(rig: Rig, callers: Engine) -> None:
    rig.start()
    with callers.connect() as conn:
        transaction = conn.begin()
        enqueue_with(rig.core, conn, [note(n=1)])
        (beat,) = rig.beats().values() if rig.core.dialect != "sqlite" else [0]
        opened = time.time()
        wait_for("the node looks for work meanwhile", lambda: time.time() - opened > 1.5)
        assert rig.lines() == []
        assert rig.core.dialect == "sqlite" or max(rig.beats().values()) > beat
        transaction.rollback()
    (id,) = rig.enqueue(note(n=2))
    rig.wait_until_final([id])
    assert [line.n for line in rig.lines("begin")] == [2]
