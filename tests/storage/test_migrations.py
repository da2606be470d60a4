"""Migrations: up and down, twice, together, printed, under any name; missing tables are named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine, inspect

from jobkit.errors import ConfigError, NotMigrated
from jobkit.storage.choice import make_storage
from jobkit.storage.engine import make_engine
from jobkit.storage.migrations import (
    CORE,
    Migrations,
    Step,
    check,
    down,
    downgrade,
    migrate_if_empty,
    sql,
    status,
    up,
    upgrade,
)
from jobkit.storage.schema import Tables, tables_for
from tests.storage.support import NOW, Settings, job_row

pytestmark = pytest.mark.empty_database

ODD = 'my "odd%s 1:x_'
"""A prefix that quoting must survive."""


@pytest.fixture
def bare(database_url: str) -> Iterator[Engine]:
    engine = make_engine(Settings(database_url))
    yield engine
    engine.dispose()


def names(engine: Engine, schema: str | None = None) -> set[str]:
    return set(inspect(engine).get_table_names(schema=schema))


def note_up(op: Any, tables: Tables) -> None:
    op.create_table(f"{tables.prefix}notes", sa.Column("id", sa.Integer(), primary_key=True))


def note_down(op: Any, tables: Tables) -> None:
    op.drop_table(f"{tables.prefix}notes")


def fails(op: Any, tables: Tables) -> None:
    op.create_table(f"{tables.prefix}half", sa.Column("id", sa.Integer(), primary_key=True))
    raise RuntimeError("broken step")


NOTES = Migrations("notes", [Step(1, "notes", note_up, note_down)])


def test_MG1_up_is_idempotent_and_down_undoes_it(bare: Engine) -> None:
    tables = tables_for()

    assert [step.version for step in up(bare, tables)] == [1]
    assert up(bare, tables) == []
    assert {"jobkit_jobs", "jobkit_job_nodes", "jobkit_schema_versions"} <= names(bare)
    assert [step.version for step in down(bare, tables)] == [1]
    assert down(bare, tables) == []
    assert names(bare) == {"jobkit_schema_versions"}
    assert len(up(bare, tables)) == 1


def test_the_migrated_database_is_what_the_schema_describes(bare: Engine, backend: str) -> None:
    tables = tables_for()
    up(bare, tables)
    with bare.connect() as conn:
        found = _described(conn)
    down(bare, tables)
    tables.metadata.create_all(bare)
    with bare.connect() as conn:
        assert _described(conn) == found


def _described(conn: sa.Connection) -> object:
    look = inspect(conn)
    described: dict[str, object] = {}
    for name in look.get_table_names():
        if name.endswith("schema_versions"):
            continue
        columns = sorted(
            (str(c["name"]), str(c["type"]), c["nullable"], str(c["default"])) for c in look.get_columns(name)
        )
        indexes = sorted(
            (
                str(i["name"]),
                str(i["column_names"]),
                i["unique"],
                str({key: str(value) for key, value in i["dialect_options"].items()}),
            )
            for i in look.get_indexes(name)
        )
        described[name] = (
            columns, indexes, look.get_pk_constraint(name)["constrained_columns"],
            sorted(str(u["name"]) for u in look.get_unique_constraints(name)),
            sorted(str(c["name"]) for c in look.get_check_constraints(name)),
        )  # fmt: skip
    return described


def test_MG2_missing_tables_name_the_remedy(bare: Engine) -> None:
    tables = tables_for()
    with bare.connect() as conn, pytest.raises(NotMigrated, match="jobkit migrate up"):
        check(conn, tables)
    up(bare, tables)
    with bare.connect() as conn:
        check(conn, tables)
        with pytest.raises(NotMigrated, match=r"notes version 1 \(notes\)"):
            check(conn, tables, [NOTES])


def test_plugins_steps_stand_under_their_own_name(bare: Engine) -> None:
    tables = tables_for()
    done = up(bare, tables, [NOTES])
    assert [(step.name, step.version) for step in done] == [("jobkit", 1), ("notes", 1)]
    with bare.connect() as conn:
        assert all(step.applied_at for step in status(conn, tables, [NOTES]))
    assert "jobkit_notes" in names(bare)

    assert [step.name for step in down(bare, tables, plugins=[NOTES], name="notes")] == ["notes"]
    up(bare, tables, [NOTES])
    assert [step.name for step in down(bare, tables, plugins=[NOTES])] == ["notes", "jobkit"]
    with pytest.raises(ConfigError, match="nobody"):
        down(bare, tables, name="nobody")


def test_versions_and_names_are_checked(bare: Engine) -> None:
    with pytest.raises(ConfigError, match="1, 2, 3"):
        Migrations("x", [Step(2, "x", note_up, note_down)])
    with pytest.raises(ConfigError, match="twice"):
        up(bare, tables_for(), [NOTES, NOTES])


def test_a_step_that_fails_leaves_nothing_behind(bare: Engine) -> None:
    tables = tables_for()
    broken = Migrations("broken", [Step(1, "x", note_up, note_down), Step(2, "y", fails, note_down)])
    with pytest.raises(RuntimeError):
        up(bare, tables, [broken])
    assert "jobkit_half" not in names(bare)
    with bare.connect() as conn:
        assert [step.applied_at is not None for step in status(conn, tables, [broken])] == [True, True, False]


def test_a_step_outside_transactions_runs_once(bare: Engine, backend: str) -> None:
    def concurrently(op: Any, tables: Tables) -> None:
        options = {"postgresql_concurrently": True} if backend == "postgres" else {}
        op.create_index("notes_idx", f"{tables.prefix}jobs", ["worker"], **options)

    lists = [Migrations("notes", [Step(1, "index", concurrently, note_down, transactional=False)])]
    up(bare, tables_for(), lists)

    assert up(bare, tables_for(), lists) == []
    assert "notes_idx" in {index["name"] for index in inspect(bare).get_indexes("jobkit_jobs")}


def test_a_users_own_alembic_migration_carries_the_tables(bare: Engine) -> None:
    with bare.begin() as conn:
        upgrade(conn, prefix="own_")
        conn.rollback()
    assert "own_jobs" not in names(bare)
    with bare.begin() as conn:
        upgrade(conn, prefix="own_")
    assert "own_jobs" in names(bare)
    with bare.begin() as conn:
        downgrade(conn, prefix="own_")
    assert "own_jobs" not in names(bare)


@pytest.mark.parametrize("prefix", ["", "jobkit_", ODD])
def test_any_prefix_is_quoted_right(bare: Engine, arm: Any, prefix: str) -> None:
    tables = tables_for(prefix)
    up(bare, tables)
    _use(bare, tables, arm)
    down(bare, tables)
    assert names(bare) == {f"{prefix}schema_versions"}


@pytest.mark.parametrize("schema", ["jobs", 'Odd "schema%s.x'])
def test_tables_may_live_in_a_schema_of_their_own(postgres_url: str, arm: Any, schema: str) -> None:
    engine = make_engine(Settings(postgres_url))
    tables = tables_for("jobkit_", schema)
    up(engine, tables)
    _use(engine, tables, arm)
    assert names(engine) == set()
    assert "jobkit_jobs" in names(engine, schema)
    engine.dispose()


def _use(engine: Engine, tables: Tables, arm: Any) -> None:
    storage = make_storage(engine.dialect.name, tables, arm=arm)
    with engine.begin() as conn:
        results = storage.insert(conn, [job_row(), job_row(unique_key="k"), job_row(unique_key="k")])
        results += storage.insert(conn, [job_row() for _ in range(600)])
        storage.register_node(conn, "n", now=NOW, queues={}, info={})
        assert storage.due_queues(conn, ["default"], now=NOW) == ["default"]
        jobs = storage.claim(conn, "default", 1_000, node="n", at=NOW)
        assert len(jobs) == 602
        assert storage.beat(conn, "n", now=NOW, queues={}, info={}) is not None
        assert len(storage.give_back(conn, [job.lease for job in jobs], now=NOW)) == 602
        storage.stage(conn, now=NOW, limit=10)
        storage.rescue(conn, {}, now=NOW, limit=10, error_text="x")
        assert storage.prune(conn, before=NOW, limit=10) == 0
    assert len({result.id for result in results}) == 602


def test_the_printed_sql_makes_the_same_database(bare: Engine) -> None:
    tables = tables_for()
    script = sql(bare.dialect.name, tables, [NOTES])
    if bare.dialect.name == "sqlite":
        with bare.connect() as conn:
            conn.connection.driver_connection.executescript(script)  # type: ignore[union-attr]
    else:
        with bare.connect() as conn:
            conn.connection.driver_connection.execute(script)  # type: ignore[union-attr]
    with bare.connect() as conn:
        check(conn, tables, [NOTES])
    assert up(bare, tables, [NOTES]) == []


def test_only_an_empty_sqlite_file_is_migrated_by_itself(bare: Engine, backend: str) -> None:
    tables = tables_for()
    assert bool(migrate_if_empty(bare, tables)) is (backend == "sqlite")
    assert migrate_if_empty(bare, tables) == []


def test_a_migrated_file_is_neither_locked_nor_upgraded_by_itself(sqlite_url: str) -> None:
    engine = make_engine(Settings(sqlite_url))
    assert migrate_if_empty(engine, tables_for())
    with engine.begin() as writer:
        writer.exec_driver_sql("UPDATE jobkit_job_queues SET paused = paused")
        assert migrate_if_empty(engine, tables_for(), [NOTES]) == []
    engine.dispose()


def test_an_empty_file_is_filled_whole_or_not_at_all(sqlite_url: str) -> None:
    engine = make_engine(Settings(sqlite_url))
    with pytest.raises(RuntimeError, match="broken step"):
        migrate_if_empty(engine, tables_for(), [Migrations("late", [Step(1, "fails", fails, note_down)])])
    assert names(engine) == set()
    assert migrate_if_empty(engine, tables_for(), [NOTES])
    engine.dispose()


def test_a_file_that_holds_other_tables_is_left_alone(sqlite_url: str) -> None:
    engine = make_engine(Settings(sqlite_url))
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE mine (x)")
    assert migrate_if_empty(engine, tables_for()) == []
    assert names(engine) == {"mine"}
    engine.dispose()


SCRIPT = """
import sys
from tests.storage.support import Settings
from tests.storage.test_migrations import NOTES
from jobkit.storage.engine import make_engine
from jobkit.storage.migrations import up
from jobkit.storage.schema import tables_for
engine = make_engine(Settings(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
print(len(up(engine, tables_for(), [NOTES])), flush=True)
"""


def test_MG1_processes_that_migrate_together_apply_each_step_once(database_url: str, bare: Engine) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, database_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    outputs = [process.communicate("go\n", timeout=120) for process in processes]

    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert sum(int(out) for out, _ in outputs) == 2
    with bare.connect() as conn:
        check(conn, tables_for(), [NOTES])


def test_looking_at_versions_loads_no_alembic(sqlite_url: str) -> None:
    code = (
        "import sys, jobkit.storage.migrations as m\n"
        "from jobkit.storage.engine import make_engine\n"
        "from jobkit.storage.schema import tables_for\n"
        "from tests.storage.support import Settings\n"
        f"engine = make_engine(Settings({sqlite_url!r}))\n"
        "conn = engine.connect()\n"
        "print(m.status(conn, tables_for())[0].version, 'alembic' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == f"{CORE.head} False\n"
