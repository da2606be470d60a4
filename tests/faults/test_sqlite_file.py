"""A SQLite file on a full disk, one that has become read-only, and one on a file system that fills up."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from jobkit.errors import JobkitError
from tests.faults.figures import record
from tests.faults.support import assert_all_loops_turn, elapsed, told
from tests.support.chores import nap, note
from tests.support.processes import Rig, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB; skipped where mounting is not permitted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Use up all room on the disk."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast


def test_ML2_DB2_a_full_disk_is_waited_for_and_costs_no_job(tmp_path: Path, small_disk: Path) -> None:
    rig = Rig(tmp_path, f"sqlite:///{small_disk / 'jobs.db'}")
    try:
        node = rig.start()
        held = rig.enqueue(*[nap(n=i, seconds=2) for i in range(10)])
        wait_for("all ten run", lambda: len(rig.lines("begin")) == 10)
        ballast = fill(small_disk)
        wait_for("the jobs have ended", lambda: len(rig.lines("end")) == 10, 20)
        wait_for("inserts are refused", lambda: _refused(rig), every=0)
        accepted = set(rig.states())
        node.wait_for_log("database trouble", 20)
        full_since = time.monotonic()
        wait_for("the disk is full for a while", lambda: elapsed(full_since) > 5)
        ballast.unlink()
        rig.wait_until_final(accepted)
        rig.check(list(accepted))
        assert set(held) <= accepted
        assert set(rig.runs().values()) == {1}
        assert_all_loops_turn(rig, 1)
        assert len(told(node)) <= 8, "\n".join(told(node))
        assert "Traceback" not in node.text()
        record(
            "SQLite",
            "The disk under a SQLite file is full",
            f"1 x, {elapsed(full_since):.0f} s, while 10 jobs ran",
            f"{len(accepted)} jobs, none lost, none recorded twice, none run twice; {len(told(node))} lines of trouble",
        )
        assert node.stop() == 0
    finally:
        rig.close()


def test_DB8_a_node_waits_for_a_file_that_has_become_read_only(lite_rig: Rig) -> None:
    """Its jobs were left by a node that was killed; what is open already may go on writing, as files go."""
    rig = lite_rig
    rig.settings["dead_after"] = "3s"
    file = Path(rig.url.removeprefix("sqlite:///"))
    first = rig.start()
    held = rig.enqueue(*[nap(n=i, seconds=4) for i in range(5)])
    wait_for("they run", lambda: len(rig.lines("begin")) == 5)
    first.kill()
    rig.core.close()
    _writable(file, False)
    node = rig.start(ready=False, humble=True)
    node.wait_for_log("database trouble.*readonly", 30)
    since = time.monotonic()
    wait_for("it stays so for a while", lambda: elapsed(since) > 5)
    assert node.alive
    _writable(file, True)
    node.wait_for_log(r"node\.start ", 15)
    ids = rig.enqueue(*[note(n=100 + i) for i in range(5)])
    rig.wait_until_final([*held, *ids])
    rig.check([*held, *ids])
    assert_all_loops_turn(rig, 1)
    assert len(told(node)) <= 6, "\n".join(told(node))
    record(
        "SQLite",
        "A SQLite file that has become read-only",
        "1 x, 5 s; a node that starts meanwhile, with 5 jobs of a killed one to rescue",
        f"it waited and went on by itself; none lost, none recorded twice; {len(told(node))} lines of trouble",
    )
    assert node.stop() == 0


def _refused(rig: Rig) -> bool:
    """Whether there is no room for one more job; what room the log still has is used up before."""
    try:
        rig.enqueue(note(n=1_000))
    except (DBAPIError, JobkitError):
        return True
    return False


def _writable(file: Path, yes: bool) -> None:
    """The file itself, its log and its shared memory."""
    for path in file.parent.glob(f"{file.name}*"):
        path.chmod(0o644 if yes else 0o444)
    file.parent.chmod(0o755 if yes else 0o555)
