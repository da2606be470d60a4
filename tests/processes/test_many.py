"""Several processes on one database."""

from __future__ import annotations

from collections import Counter

import pytest

from jobkit.inserting import enqueue_with
from tests.faults.figures import record
from tests.support.chores import note, note_in_thread
from tests.support.processes import Rig

pytestmark = pytest.mark.slow

JOBS = 10_000


def test_DB4_four_processes_perform_ten_thousand_jobs_exactly_once(rig: Rig) -> None:
    """No lock error anywhere, on a SQLite file and on Postgres alike."""
    rig.queues = "default:20,other:10"
    nodes = [rig.start("-q", ready=False) for _ in range(4)]
    rig.wait_for_beats(4)
    ids: list[int] = []
    for start in range(0, JOBS, 500):
        batch = [
            (note if i % 2 else note_in_thread)(n=i).job(queue="other" if i % 3 == 0 else "default")
            for i in range(start, start + 480)
        ]
        ids += [one.id for one in enqueue_with(rig.core, None, batch)]
        ids += rig.enqueue(*[note(n=i) for i in range(start + 480, start + 490)])
        for i in range(start + 490, start + 500):
            ids += rig.enqueue(note(n=i))

    rig.wait_until_final(ids, timeout=120)

    rig.check(ids)
    runs = rig.runs()
    assert len(ids) == len(set(ids)) == JOBS
    assert runs == Counter(ids), [id for id in ids if runs[id] != 1][:10]
    claims = Counter(change.id for change in rig.changes() if change.new == "executing")
    assert claims == Counter(ids)
    workers = Counter(line.pid for line in rig.lines("begin"))
    assert set(workers) == {node.pid for node in nodes}, workers
    record(
        rig.core.dialect,
        "Four processes on one database",
        f"{JOBS:,} jobs, enqueued while they work",
        "each performed and recorded exactly once; no lock error, no warning anywhere",
    )
    for node in nodes:
        assert node.stop() == 0
        assert node.lines("locked|Traceback|ERROR|WARNING") == []
