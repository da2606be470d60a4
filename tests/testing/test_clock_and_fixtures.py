"""The clock that moves by hand, what is forgotten between tests, missing tables, and pytest's fixtures."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import sqlalchemy as sa

from jobkit import Jobkit, configure, enqueue_all, worker
from jobkit.clock import Clock
from jobkit.config import Config
from jobkit.core import current_core
from jobkit.errors import NotMigrated
from jobkit.testing import FrozenClock, all_enqueued, drain_jobs, reset
from tests.testing.support import START


def test_TH5_both_clocks_move_together_and_only_by_hand() -> None:
    clock = FrozenClock(START)
    assert isinstance(clock, Clock)
    before = clock.monotonic()
    assert clock.now() == clock.now() == START
    assert clock.advance(timedelta(minutes=2)) == START + timedelta(minutes=2)
    clock.advance(0.5)
    assert clock.monotonic() - before == pytest.approx(120.5)
    assert clock.random() == 0.5


def test_TH5_the_wall_clock_alone_may_go_back() -> None:
    clock = FrozenClock(START)
    before = clock.monotonic()
    clock.set(START - timedelta(hours=1))
    assert clock.now() == START - timedelta(hours=1)
    assert clock.monotonic() == before
    with pytest.raises(ValueError, match="does not pass backwards"):
        clock.advance(-1)


def test_the_clock_is_utc_and_starts_at_the_present_unless_told() -> None:
    east = timezone(timedelta(hours=2))
    assert FrozenClock(START.astimezone(east)).now().tzinfo is UTC
    assert abs(FrozenClock().now() - datetime.now(UTC)) < timedelta(minutes=1)
    with pytest.raises(ValueError, match="no time zone"):
        FrozenClock(datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="no time zone"):
        FrozenClock().set(datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="fraction"):
        FrozenClock(fraction=1.0)


def test_TH4_reset_forgets_the_current_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = Jobkit(config=Config(database_url=f"sqlite:///{tmp_path / 'a.db'}"))
    configure(app)
    assert current_core() is app.core
    reset()
    made = current_core()
    assert made is not app.core
    reset()
    assert current_core() is not made
    reset()


@pytest.mark.empty_database
def test_MG2_missing_tables_are_named_with_their_remedy(config: Config) -> None:
    app = Jobkit(config=config)
    with app.engine.begin() as conn:
        conn.execute(sa.text("CREATE TABLE someone_elses (id integer)"))
    for look in (lambda: drain_jobs(app), lambda: all_enqueued(app)):
        with pytest.raises(NotMigrated, match=r"call app\.migrate\(\)"):
            look()
    app.close()


@worker
def hello(name: str) -> None: ...


class TestFixtures:
    """The fixtures as a program's own tests use them."""

    @pytest.fixture
    def jobkit_workers(self) -> list[object]:
        return [hello]

    def test_the_app_is_the_current_one(self, jobkit_app: Jobkit, jobkit_clock: FrozenClock) -> None:
        with jobkit_app.engine.begin() as conn:
            enqueue_all(conn, [hello("Ada"), hello("Bob").job(schedule_in=60)])
        assert drain_jobs(jobkit_app) == {"completed": 1}
        jobkit_clock.advance(60)
        assert drain_jobs(jobkit_app) == {"completed": 1}

    def test_each_test_has_a_database_of_its_own(self, jobkit_app: Jobkit) -> None:
        assert drain_jobs(jobkit_app) == {}


def test_the_plugin_imports_nothing_before_a_fixture_is_used(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_nothing_is_loaded():\n"
        "    assert 'jobkit.pytest_plugin' in sys.modules\n"
        "    assert not {'jobkit.app', 'jobkit.testing', 'sqlalchemy'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
