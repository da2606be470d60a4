"""Memory, over many jobs and through an outage."""

from __future__ import annotations

import time

import pytest

from jobkit.inserting import enqueue_with
from tests.faults.figures import record
from tests.support.chores import note, note_in_thread, plain
from tests.support.postgres import DURABLE_OPTIONS, PostgresServer
from tests.support.processes import NodeProcess, Rig, rig, wait_for

pytestmark = pytest.mark.slow

MB = 1 << 20
BATCHES, BATCH = 13, 2_000


def test_ML1_memory_does_not_grow_with_the_number_of_jobs_run(rig: Rig) -> None:
    node = rig.start("-q", "--queues", "default:50", ready=False)
    rig.wait_for_beats()
    sizes = []
    for batch in range(BATCHES):
        jobs = [plain(n=batch * BATCH + i) for i in range(BATCH)]
        enqueue_with(rig.core, None, jobs)
        wait_for("they are done", lambda done=(batch + 1) * BATCH: _completed(rig) >= done, 90, every=0.1)
        sizes.append(node.memory())
    growth = (sizes[-1] - sizes[2]) / MB
    # A leak of one small object (a few hundred bytes) a job would show as 5 MB and more.
    assert growth < 5, [round(size / MB, 1) for size in sizes]
    record(
        rig.core.dialect,
        "Memory of a node",
        f"{BATCHES * BATCH:,} jobs",
        f"{sizes[2] / MB:.0f} MB after {3 * BATCH:,} jobs, {sizes[-1] / MB:.0f} MB after {BATCHES * BATCH:,}",
    )
    assert node.stop() == 0


def _completed(rig: Rig) -> int:
    jobs = rig.core.tables.jobs.name
    with rig.core.engine.connect() as conn:
        found = conn.exec_driver_sql(f"SELECT count(*) FROM {jobs} WHERE state = 'completed'").scalar_one()
        return int(found)


def test_ML2_DB2_memory_and_log_stay_bounded_while_the_database_is_away(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Quick jobs wait by the thousand; what has run meanwhile is held, and no more is claimed."""
    server = PostgresServer.create(options=DURABLE_OPTIONS)
    try:
        with rig(tmp_path, server.url(server.new_database())) as made:
            _through_an_outage(made, server)
    finally:
        server.destroy()


def _through_an_outage(made: Rig, server: PostgresServer) -> None:
    made.queues = "default:50"
    node = made.start()
    ids = [
        one.id
        for one in enqueue_with(
            made.core, None, [(note if i % 2 else note_in_thread)(n=i) for i in range(5_000)]
        )
    ]
    wait_for("it is in the midst of it", lambda: len(made.lines("end")) > 200)
    server.stop("immediate")
    away = time.monotonic()
    at_first, seconds = _settled_memory(node), 20.0
    wait_for("the outage lasts", lambda: time.monotonic() - away > seconds, 60)
    grown = (node.memory() - at_first) / MB
    server.start()
    made.wait_until_final(ids)
    states = made.states()
    assert set(states.values()) == {"completed"}
    trouble = node.lines(" (WARNING|ERROR) ")
    assert grown < 8, f"{grown:.1f} MB"
    assert len(trouble) <= 8, "\n".join(trouble)
    record(
        "Postgres",
        "Postgres away while thousands of quick jobs wait",
        f"1 x, {seconds:.0f} s",
        f"memory grew by {max(grown, 0):.1f} MB meanwhile; {len(trouble)} lines of trouble; 5,000 jobs, none lost",
    )
    assert node.stop() == 0


def _settled_memory(node: NodeProcess) -> int:
    node.wait_for_log("database trouble", 20)
    return node.memory()
