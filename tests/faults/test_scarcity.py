"""Too little of something: connections, time for a statement."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url, text

from tests.faults.figures import record
from tests.faults.support import Load, assert_all_loops_turn, elapsed, superuser, terminate, told
from tests.support.chores import hog, nap, note
from tests.support.postgres import PostgresServer
from tests.support.processes import Rig, wait_for

pytestmark = pytest.mark.slow

ROLE = "shy"
PARKED = text(
    "INSERT INTO jobkit_jobs (state, queue, worker, args, meta, tags, errors, attempt, max_attempts, priority, "
    "inserted_at, scheduled_at, completed_at) "
    "SELECT CASE WHEN i % 2 = 0 THEN 'completed' ELSE 'scheduled' END, 'parked', 'note', '{\"n\": 1}', '{}', '[]', "
    "'[]', 1, 20, 0, now() - interval '9 days', now() - interval '9 days', "
    "CASE WHEN i % 2 = 0 THEN now() - interval '9 days' END FROM generate_series(1, :rows) AS i"
)
"""Rows to prune and rows to stage, in equal parts."""


@pytest.fixture
def shy_rig(tmp_path: Path, postgres: PostgresServer) -> Iterator[Rig]:
    """Connects as an ordinary role, for which limits count."""
    name = postgres.new_database()
    if not postgres.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'"):
        postgres.execute(f"CREATE ROLE {ROLE} LOGIN")
    postgres.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")
    postgres.execute(f'ALTER DATABASE "{name}" OWNER TO {ROLE}')
    url = make_url(postgres.url(name)).set(username=ROLE).render_as_string(hide_password=False)
    made = Rig(tmp_path, url)
    yield made
    made.close()
    postgres.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")
    postgres.drop_database(name)


@pytest.mark.xdist_group("one-role")
def test_DB10_a_shortage_of_connections_slows_down_and_loses_nothing(
    shy_rig: Rig, postgres: PostgresServer
) -> None:
    """Others take all that the role may have, three times, and every time the node has just lost its own."""
    rig = shy_rig
    postgres.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT 14")
    node = rig.start()
    held = rig.enqueue(nap(n=7_000, seconds=6))
    load = Load(rig)
    rounds = 3
    with load.running():
        load.more()
        for _ in range(rounds):
            with ExitStack() as hogs:
                taken = _take_all(rig, hogs)
                since = time.monotonic()
                wait_for("they are kept a while", lambda since=since: elapsed(since) > 2.5)
            load.more()
    everything = list(rig.states())
    rig.wait_until_final(everything)
    rig.check(everything)
    assert set(load.ids) <= set(everything)
    assert rig.row(held[0]).attempt == 1
    assert_all_loops_turn(rig, 1)
    assert len(told(node)) <= 4 * rounds, "\n".join(told(node))
    record(
        "Postgres",
        "All connections of the role are taken by others",
        f"{rounds} x, 2.5 s each, right after the node had lost its own ({taken} taken)",
        f"{len(everything)} jobs, none lost, none recorded twice; {len(told(node))} lines of trouble",
    )
    assert node.stop() == 0


def _take_all(rig: Rig, hogs: ExitStack) -> int:
    """End the node's connections and take what becomes free; returns how many were taken."""
    url = make_url(rig.url)
    terminate(rig, f"usename = '{ROLE}'")
    taken, deadline = 0, time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            hogs.enter_context(
                psycopg.connect(host=url.host, port=url.port, user=ROLE, dbname=url.database, autocommit=True)
            )
            taken += 1
        except psycopg.OperationalError:
            terminate(rig, f"usename = '{ROLE}' AND application_name = 'jobkit'")
    assert taken
    return taken


def test_CW8_jobs_that_hold_all_connections_of_the_app_keep_no_result_from_being_recorded(rig: Rig) -> None:
    node = rig.start("--queues", "default:30")
    hogs = rig.enqueue(*[hog(n=i, seconds=5) for i in range(15)])
    wait_for("the app's pool is used up", lambda: len(rig.lines("hold")) >= 15)
    before = rig.beats()
    ids = rig.enqueue(*[note(n=100 + i) for i in range(20)])
    rig.wait_until_final(ids)
    assert len(rig.lines("end")) == 20, "they did not wait for the hogs"
    wait_for("the node beats on", lambda: all(beat > before[node] for node, beat in rig.beats().items()), 4)
    rig.wait_until_final(hogs)
    rig.check([*hogs, *ids])
    assert told(node) == []


def test_DB9_maintenance_makes_progress_under_a_short_statement_timeout(
    pg_rig: Rig, postgres: PostgresServer
) -> None:
    """Batches that are too large for the timeout become smaller until they fit."""
    rig = pg_rig
    rows = 30_000
    name = make_url(rig.url).database
    with rig.core.engine.begin() as conn:
        conn.execute(PARKED, {"rows": rows})
    rig.core.close()
    timeout, batch = 40, 10_000
    with superuser(rig) as admin:
        admin.execute(f"ALTER DATABASE \"{name}\" SET statement_timeout = '{timeout}ms'")  # type: ignore[arg-type]
    sizes = [f"plugins.{name}.batch={batch}" for name in ("pruner", "stager")]
    node = rig.start("--set", sizes[0], "--set", sizes[1], ready=False)

    def left() -> tuple[int, int]:
        with superuser_of(rig) as admin:
            row = admin.execute(
                "SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state = 'scheduled') "
                "FROM jobkit_jobs WHERE queue = 'parked'"
            ).fetchone()
            assert row is not None
            return int(str(row[0])), int(str(row[1]))

    started = time.monotonic()
    wait_for("all is pruned and staged", lambda: left() == (0, 0), 120, every=0.5)
    took = elapsed(started)
    cut_off = sum("due to statement timeout" in line for line in postgres.log().splitlines())
    assert cut_off, "the batches did fit"
    record(
        "Postgres",
        f"A statement timeout of {timeout} ms",
        f"{rows // 2} rows to prune and {rows // 2} to stage, in batches of {batch:,} that take longer",
        f"{cut_off} statements were cut off, batches shrank until they fitted; all done after {took:.0f} s",
    )
    assert len(told(node)) <= 12, "\n".join(told(node))
    node.kill()


def superuser_of(rig: Rig) -> psycopg.Connection[tuple[object, ...]]:
    """A connection to the rig's own database that no timeout applies to."""
    url = make_url(rig.url)
    options = "-c statement_timeout=0"
    return psycopg.connect(
        host=url.host, port=url.port, user="postgres", dbname=url.database, autocommit=True, options=options
    )
