"""The app and its core: made lazily, sharing nothing, current where it should be."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

import jobkit
from jobkit import Jobkit, Worker, configure, current_job, hookimpl, worker
from jobkit.clock import SystemClock
from jobkit.config import Config
from jobkit.core import Core, core_named, current_core, reset_current, set_current
from jobkit.errors import ConfigError, WorkerDefinitionError
from jobkit.events import Event, ListenerRestored
from tests.support.distributions import Site, visible


@worker
def greet(name: str) -> None: ...


class Greet(Worker, name="greet"):
    name: str

    def perform(self, job: jobkit.JobInfo) -> None: ...


@pytest.fixture(autouse=True)
def nothing_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    reset_current()
    yield
    reset_current()


def url(tmp_path: Path, name: str = "jobs.db") -> str:
    return f"sqlite:///{tmp_path / name}"


# -- making one --


def test_making_an_app_opens_and_creates_nothing(tmp_path: Path) -> None:
    Jobkit(url(tmp_path), workers=[greet])
    assert list(tmp_path.iterdir()) == []


def test_the_url_given_to_the_constructor_wins_over_file_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobkit.toml").write_text('database_url = "sqlite:///file.db"\nprune_after = "2d"\n')
    monkeypatch.setenv("JOBKIT_DATABASE_URL", "sqlite:///environment.db")
    assert Jobkit().config.database_url.endswith("environment.db")
    app = Jobkit(url(tmp_path))
    assert app.config.database_url == url(tmp_path)
    assert app.config.origin("database_url").kind == "constructor"
    assert app.config.origin("prune_after").kind == "file"


def test_a_configuration_may_be_given_as_a_value_or_as_a_file(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('table_prefix = "work_"\n')
    assert Jobkit(config=file).config.table_prefix == "work_"
    config = Config(database_url="sqlite:///a.db", table_prefix="x_")
    assert Jobkit(config=config).config is config
    changed = Jobkit(url(tmp_path), config=config).config
    assert (changed.database_url, changed.table_prefix) == (url(tmp_path), "x_")


def test_PL7_two_workers_of_one_name_are_refused_at_once() -> None:
    with pytest.raises(WorkerDefinitionError, match=r"'greet'.*greet.*Greet"):
        Jobkit("sqlite:///a.db", workers=[greet, Greet])


def test_redaction_rules_that_cannot_work_are_a_config_error() -> None:
    with pytest.raises(ConfigError):
        Jobkit(config=Config(redaction={"patterns": ["("]}))


def test_an_app_shows_its_database_without_the_password() -> None:
    app = Jobkit("postgresql://ann:hunter2@db/jobs")
    assert "hunter2" not in repr(app)
    assert "db/jobs" in repr(app)


def test_two_apps_share_nothing(tmp_path: Path) -> None:
    one, two = Jobkit(url(tmp_path, "1.db"), workers=[greet]), Jobkit(url(tmp_path, "2.db"), workers=[Greet])
    assert one.engine is not two.engine
    assert one.registry.resolve("greet") is greet.worker
    assert two.registry.resolve("greet") is Greet
    assert one.engine.url != two.engine.url


def test_tables_bear_the_configured_prefix() -> None:
    app = Jobkit(config=Config(database_url="sqlite:///a.db", table_prefix="work_"))
    assert app.tables.jobs.name == "work_jobs"


def test_a_part_is_made_once_and_anew_after_close(tmp_path: Path) -> None:
    app = Jobkit(url(tmp_path))
    engine = app.engine
    assert app.engine is engine
    app.close()
    assert app.engine is not engine


def test_concurrent_first_uses_make_one_part() -> None:
    core, made, start = Core(Config()), [], threading.Barrier(8)

    def make() -> object:
        made.append(1)
        return object()

    def use() -> None:
        start.wait()
        found.add(core.once("part", make))

    found: set[object] = set()
    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(made) == 1


# -- the current app --


def test_the_configured_app_is_the_current_one() -> None:
    app = Jobkit("sqlite:///a.db")
    configure(app)
    assert current_core() is app.core
    configure(None)
    assert current_core() is not app.core


def test_without_one_an_app_is_made_once_from_file_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBKIT_DATABASE_URL", "sqlite:///env.db")
    core = current_core()
    assert core.config.database_url.endswith("env.db")
    assert current_core() is core
    reset_current()
    assert current_core() is not core


def test_the_environment_may_name_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with visible(Site(tmp_path / "site")) as site:
        site.module("shop_app", "app = jobkit.Jobkit('sqlite:///shop.db')\n")
        monkeypatch.setenv("JOBKIT_APP", "shop_app:app")
        core = current_core()
        assert core is sys.modules["shop_app"].app.core


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("no_such_module:app", "ModuleNotFoundError"),
        ("json:app", "no attribute 'app'"),
        ("json:dumps", "expected a Jobkit"),
    ],
)
def test_a_name_that_leads_to_no_app_is_explained(spec: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        core_named(spec)


def test_inside_a_job_the_jobs_own_app_is_current() -> None:
    configured, own = Jobkit("sqlite:///a.db"), Jobkit("sqlite:///b.db")
    configure(configured)
    with own.core.acting():
        assert current_core() is own.core
    assert current_core() is configured.core


def test_a_run_enters_its_job_in_a_context_of_its_own() -> None:
    core, job = Core(Config()), object()
    context = copy_context()
    context.run(core.enter_job, job)  # type: ignore[arg-type]
    assert context.run(current_job) is job
    assert context.run(current_core) is core
    assert current_job() is None


def test_an_app_that_is_set_in_one_thread_is_current_in_all() -> None:
    core = Core(Config())
    set_current(core)
    found: list[Core] = []
    thread = threading.Thread(target=lambda: found.append(current_core()))
    thread.start()
    thread.join()
    assert found == [core]


# -- what the core gives to every room --


class Redacts:
    @hookimpl
    def jobkit_redact(self, value: object, path: str, worker: str | None, kind: str) -> object:
        if value == "explode":
            raise RuntimeError
        return "[hook]" if value == "mine" else None


def test_the_redactor_asks_plugins_and_fails_closed() -> None:
    core = Core(Config(database_url="sqlite:///a.db"), plugins=[Redacts()])
    assert core.redactor.value({"a": "mine"}) == {"a": "[hook]"}
    assert core.redactor.value({"a": "explode"}) == {"a": "[redaction failed]"}
    assert core.redactor.value({"a": "b"}) == {"a": "b"}


class Raises:
    @hookimpl
    def jobkit_event(self, event: Event) -> None:
        raise RuntimeError("cannot reach https://ann:hunter2@host/")


def test_errors_of_plugins_are_redacted_before_they_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    core = Core(Config(database_url="sqlite:///a.db"), plugins=[Raises()])
    core.emit(ListenerRestored(at=SystemClock().now(), node="n"))
    state = next(s for s in core.registry.plugins if s.name == "Raises")
    assert "host" in state.last_failure
    assert "hunter2" not in state.last_failure
    assert "hunter2" not in caplog.text


class InTransaction:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.seen: list[object] = []

    @hookimpl
    def jobkit_inserted(self, conn: object, jobs: list[Any]) -> None:
        self.seen += jobs
        if self.error is not None:
            raise self.error


def test_the_path_of_an_insert_is_observed_only_if_a_plugin_asks_for_it(tmp_path: Path) -> None:
    core = Core(Config(database_url=url(tmp_path)))
    assert not core.storage.observed
    core.registry.add_plugin(InTransaction())
    assert core.storage.observed


def test_the_storage_of_a_callers_connection_is_that_of_its_dialect(tmp_path: Path) -> None:
    core = Core(Config(database_url="postgresql://nowhere/jobs"))
    with create_engine(url(tmp_path)).connect() as conn:
        assert core.storage_for(conn) is core.storage_for(conn)
        assert core.storage_for(conn).tables.jobs.schema is None


class BringsStorage:
    @hookimpl
    def jobkit_storage(self, url: Any) -> Any:
        return (
            (lambda tables, observers: ("mine", tables, observers))
            if url.database.endswith("odd.db")
            else None
        )


def test_a_plugin_may_bring_the_storage(tmp_path: Path) -> None:
    odd = Core(Config(database_url=url(tmp_path, "odd.db")), plugins=[BringsStorage()])
    assert odd.storage[0] == "mine"  # type: ignore[index]
    even = Core(Config(database_url=url(tmp_path, "even.db")), plugins=[BringsStorage()])
    assert type(even.storage).__name__ == "SQLiteStorage"


# -- using it --


def rows(app: Jobkit) -> list[Any]:
    with app.engine.connect() as conn:
        return list(conn.execute(app.tables.jobs.select()))


def test_an_empty_sqlite_file_is_migrated_at_first_use(tmp_path: Path) -> None:
    app = Jobkit(url(tmp_path))
    inserted = app.enqueue(greet(name="Ann"), queue="mail")
    assert not inserted.duplicate
    assert [(row.id, row.worker, row.queue) for row in rows(app)] == [(inserted.id, "greet", "mail")]


def test_a_sqlite_file_with_other_tables_is_left_alone(tmp_path: Path) -> None:
    with create_engine(url(tmp_path)).begin() as conn:
        conn.exec_driver_sql("CREATE TABLE users (id INTEGER PRIMARY KEY)")
    app = Jobkit(url(tmp_path))
    with pytest.raises(jobkit.errors.NotMigrated, match="jobkit migrate"):
        app.enqueue(greet(name="Ann"))
    app.migrate()
    assert app.enqueue(greet(name="Ann")).id


def test_enqueue_all_gives_one_result_a_job_in_order(tmp_path: Path) -> None:
    app = Jobkit(url(tmp_path))
    results = app.enqueue_all([greet(name="a"), greet(name="b").job(priority=3)])
    assert [row.id for row in rows(app)] == [result.id for result in results]


def test_a_connection_may_be_named_and_is_joined(tmp_path: Path) -> None:
    app = Jobkit(url(tmp_path))
    app.migrate()
    with app.engine.connect() as conn:
        app.enqueue(greet(name="Ann"), conn=conn)
        conn.rollback()
    assert rows(app) == []


def test_the_async_twins_write_the_same(tmp_path: Path) -> None:
    app = Jobkit(url(tmp_path))

    async def both() -> None:
        await app.aenqueue(greet(name="a"))
        await app.aenqueue_all([greet(name="b"), greet(name="c")])

    asyncio.run(both())
    assert len(rows(app)) == 3


def test_an_error_inside_the_transaction_rolls_the_insert_back_and_names_the_plugin(tmp_path: Path) -> None:
    app = Jobkit(url(tmp_path), plugins=[InTransaction(ValueError("no"))])
    with pytest.raises(ValueError, match="no") as caught:
        app.enqueue(greet(name="Ann"))
    assert "raised by jobkit_inserted of the plugin 'InTransaction'" in caught.value.__notes__
    assert rows(app) == []


def test_inserted_rows_are_seen_in_their_transaction(tmp_path: Path) -> None:
    plugin = InTransaction()
    app = Jobkit(url(tmp_path), plugins=[plugin])
    inserted = app.enqueue(greet(name="Ann"))
    assert [job.id for job in plugin.seen] == [inserted.id]  # type: ignore[attr-defined]


# -- forks --


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_FK1_a_forked_child_is_not_stopped_by_its_parents_locks(tmp_path: Path) -> None:
    script = f"""
import os, signal, threading
from jobkit import Jobkit, worker
@worker
def greet(name: str) -> None: ...
app = Jobkit({url(tmp_path)!r})
app.enqueue(greet(name="parent"))
held, release = threading.Event(), threading.Event()
def hold():
    with app.core._lock, app.registry._lock, app.registry._known._lock, app.registry._table._lock:
        held.set()
        release.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    app.registry.add_worker(greet)
    app.core.once("new", object)
    app.enqueue(greet(name="child"))
    os._exit(0)
status = os.waitpid(pid, 0)[1]
release.set()
thread.join()
app.enqueue(greet(name="parent"))
print(status)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "0", done.stderr
    assert len(rows(Jobkit(url(tmp_path)))) == 3


def test_signal_handlers_are_left_alone(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    app = Jobkit(url(tmp_path))
    app.enqueue(greet(name="Ann"))
    app.close()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


# -- running --

PLUGIN = """
from contextlib import asynccontextmanager, contextmanager

ticks, around = [], []

@worker(name="shout")
def shout(job: jobkit.JobInfo, text: str) -> None:
    assert jobkit.current_job().id == job.id
    around.append((text, job.resources["tone"], job.tags))

@hookimpl
def jobkit_services(app, node):
    def tick(conn, now):
        ticks.append(node.id)
        return 0
    return [Service("ticker", 0.05, tick)]

@hookimpl
@asynccontextmanager
async def jobkit_lifespan(app):
    yield {"tone": "loud"}

@hookimpl
def jobkit_job_inserting(job):
    return job.tag("by-acme")

@hookimpl
def jobkit_around_job(job, worker, ctx):
    @contextmanager
    def quoted():
        around.append("before")
        yield
        around.append(type(ctx.outcome).__name__)
    return quoted()
"""


async def until(done: Any) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.01)


def test_an_installed_distribution_runs_its_jobs_services_and_hooks_in_a_node(tmp_path: Path) -> None:
    with visible(Site(tmp_path / "site")) as site:
        site.install(
            "acme-shout",
            plugins={"shout": "acme_shout"},
            workers={"shout": "acme_shout:shout"},
            modules={"acme_shout": PLUGIN},
        )
        app = Jobkit(url(tmp_path))

        async def main() -> str:
            async with app.node(queues="default:2") as node:
                from acme_shout import shout, ticks  # type: ignore[import-not-found]

                await app.aenqueue(shout(text="hey"))
                await until(lambda: ticks and [row.state for row in rows(app)] == ["completed"])
                return node.id

        node = asyncio.run(main())
        module = sys.modules["acme_shout"]
        assert set(module.ticks) == {node}
        assert module.around == ["before", ("hey", "loud", ("by-acme",)), "Done"]
        app.close()


def test_CT7_a_repeated_schedule_key_is_refused_when_a_node_starts(tmp_path: Path) -> None:
    class Plan:
        @hookimpl
        def jobkit_schedules(self, config: Config) -> list[jobkit.Recurring]:
            return [jobkit.Recurring("nightly", "@daily", greet(name="night"))]

    app = Jobkit(url(tmp_path), workers=[greet], plugins=[Plan(), Plan()])

    async def main() -> None:
        async with app.node():
            raise AssertionError("the node must not start")

    with pytest.raises(jobkit.errors.ScheduleError, match=r"'nightly' is used by 'Plan' .*'Plan-2'"):
        asyncio.run(main())
