"""The example distribution: found through its entry points, and doing what it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filekit import files
from filekit.workers import Catalogue, ScanFolder, Thumbnail, VerifyFacts, file_facts

from jobkit import Discard, Done, Jobkit, Snooze
from jobkit.config import Config
from jobkit.testing import assert_enqueued, drain_jobs, perform_job

SAMPLES = Path(__file__).parents[2] / "examples" / "filekit" / "samples"


@pytest.fixture
def app(database_url: str) -> Iterator[Jobkit]:
    app = Jobkit(database_url)
    app.migrate()
    yield app
    app.close()


def test_its_workers_and_its_schedule_are_known_by_installing_it(app: Jobkit) -> None:
    known = {name: entry.distribution for name, entry in app.registry.workers.items()}
    for name in ("scan_folder", "file_facts", "thumbnail", "verify_facts", "catalogue"):
        assert known[f"filekit_{name}"] == "jobkit-filekit"
    assert "filekit_nightly_scan" not in {entry.recurring.key for entry in app.registry.schedules()}


def test_the_nightly_scan_is_there_and_runs_once_a_folder_is_configured_whenever_that_is(
    app: Jobkit, database_url: str
) -> None:
    later = Jobkit(database_url, config=Config(plugins={"filekit": {"folder": str(SAMPLES)}}))
    entries = {entry.recurring.key: entry.recurring for entry in later.registry.schedules()}
    assert not entries["filekit_nightly_scan"].paused
    later.close()


def test_a_scan_fans_out_and_everything_is_done_in_the_end(app: Jobkit, tmp_path: Path) -> None:
    scan = ScanFolder(folder=str(SAMPLES), output=str(tmp_path))
    assert not app.enqueue(scan).duplicate
    assert app.enqueue(scan).duplicate, "one scan of a folder at a time"
    counts = drain_jobs(app, with_scheduled=True)
    assert counts["discarded"] == 1
    assert counts["retryable"] >= 1, "facts are verified before they are there, so that is tried again"
    page = (tmp_path / "catalogue.md").read_text()
    assert page.startswith(f"# {SAMPLES}")
    assert "4 files" in page
    assert len(list((tmp_path / "thumbnails").glob("*.png"))) == 2


def test_the_scan_s_jobs_name_paths_and_no_contents(app: Jobkit, tmp_path: Path) -> None:
    app.enqueue(ScanFolder(folder=str(SAMPLES), output=str(tmp_path)))
    drain_jobs(app, queue="default")
    poem = str(SAMPLES / "poem.txt")
    assert_enqueued(app, file_facts, args={"path": poem, "output": str(tmp_path)}, queue="files")


def test_facts_are_sums_over_the_whole_file(tmp_path: Path) -> None:
    assert perform_job(file_facts(path=str(SAMPLES / "poem.txt"), output=str(tmp_path))) == Done()
    facts = files.read_facts(tmp_path, str(SAMPLES / "poem.txt"))
    assert (facts.lines, facts.words, facts.size) == (2, 14, 64)


def test_bad_input_is_discarded_and_what_is_not_ready_snoozes(tmp_path: Path) -> None:
    out = str(tmp_path)
    assert isinstance(perform_job(Thumbnail(path=str(SAMPLES / "broken.png"), output=out)), Discard)
    assert isinstance(perform_job(ScanFolder(folder=str(tmp_path / "nowhere"), output=out)), Discard)
    assert isinstance(perform_job(file_facts(path=str(tmp_path / "gone"), output=out)), Discard)
    assert isinstance(perform_job(Catalogue(folder=str(SAMPLES), output=out)), Snooze)
    with pytest.raises(FileNotFoundError):
        perform_job(VerifyFacts(path=str(SAMPLES / "poem.txt"), output=out))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_demo_shows_every_kind_of_end(kind: str, tmp_path: Path) -> None:
    demo = Path(__file__).parents[2] / "examples" / "demo.py"
    done = subprocess.run(
        [sys.executable, demo, "--db", kind, str(SAMPLES)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for text in ("filekit_catalogue", "discarded", "broken.png", "catalogue.md"):
        assert text in done.stdout
