"""Nodes, queues, workers and recurring entries."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, update

from jobkit.storage.base import QueueSettings
from jobkit.storage.engine import atomic, node_connection
from tests.storage.support import NOW, SECOND, Database


@dataclass(frozen=True)
class Queue:
    paused: bool = False


def test_a_beat_counts_and_reads_all_that_a_node_must_know(db: Database, conn: Connection) -> None:
    storage = db.storage
    storage.register_node(conn, "a", now=NOW, queues={"default": 10}, info={"pid": 7})
    storage.ensure_queues(conn, {"default": Queue(), "mail": Queue(paused=True)}, now=NOW)
    set_queue(db, "default", limit_override=4, node_limits='{"a":2,"b":9}')
    set_queue(db, "mail", paused_until=NOW + SECOND)
    db.conn.execute(update(db.tables.nodes).values(wanted='{"drain": true}'))
    lease = db.claimed()

    beat = storage.beat(conn, "a", now=NOW, queues={"mail": 1}, info={"pid": 8})

    assert beat is not None
    assert beat.queues == {"default": QueueSettings(False, 2), "mail": QueueSettings(True, None)}
    assert beat.wanted == {"drain": True}
    assert beat.executing == [lease]
    [node] = storage.nodes(conn)
    assert (node.beat, node.queues, node.info, node.heartbeat_at) == (1, {"mail": 1}, {"pid": 8}, NOW)
    later = storage.beat(conn, "a", now=NOW + SECOND, queues={}, info={})
    assert later is not None
    assert later.queues["mail"].paused is False


def set_queue(db: Database, name: str, **values: object) -> None:
    queues = db.tables.queues
    db.conn.execute(update(queues).where(queues.c.name == name).values(**values))


def test_QU1_existing_queue_rows_keep_their_settings(db: Database, conn: Connection) -> None:
    db.storage.ensure_queues(conn, {"a": Queue(), "b": Queue()}, now=NOW)
    set_queue(db, "a", paused=True, limit_override=3)

    db.storage.ensure_queues(conn, {"a": Queue(), "c": Queue()}, now=NOW)

    settings = db.storage.queue_settings(conn, node=None, now=NOW)
    assert settings == {
        "a": QueueSettings(True, 3), "b": QueueSettings(False), "c": QueueSettings(False),
    }  # fmt: skip


def test_a_lost_or_removed_node_cannot_beat(db: Database, conn: Connection) -> None:
    db.node("a")
    db.storage.rescue(conn, {"a": 0}, now=NOW, limit=1, error_text="x")

    assert db.storage.beat(conn, "a", now=NOW, queues={}, info={}) is None
    assert db.storage.nodes(conn)[0].lost_at == NOW
    assert db.storage.live_nodes(conn) == []
    assert db.storage.remove_node(conn, "a")
    assert not db.storage.remove_node(conn, "a")
    assert db.storage.beat(conn, "a", now=NOW, queues={}, info={}) is None


def test_published_workers_are_known_with_the_newest_time(db: Database, conn: Connection) -> None:
    db.storage.publish_workers(conn, {"a": "{}", "b": "{}"}, now=NOW)
    db.storage.publish_workers(conn, {"b": '{"x":1}', "c": "{}"}, now=NOW + SECOND)
    db.storage.publish_workers(conn, {"c": "{}"}, now=NOW)
    db.storage.publish_workers(conn, {}, now=NOW)

    assert db.storage.known_workers(conn) == {"a": NOW, "b": NOW + SECOND, "c": NOW + SECOND}


def test_nodes_that_start_together_make_each_row_once(db: Database) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def node_starts() -> None:
        try:
            with node_connection(db.engine, autocommit=False) as conn:
                start.wait(20)
                db.storage.ensure_queues(conn, {f"q{n}": Queue() for n in range(5)}, now=NOW)
                db.storage.publish_workers(conn, {f"w{n}": "{}" for n in range(5)}, now=NOW)
                db.storage.ensure_entry(
                    conn, "k", cron="0 * * * *", timezone="UTC", worker="w", paused=False, now=NOW
                )
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=node_starts) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len(db.storage.known_workers(db.conn)) == 5
    assert len(db.storage.queue_settings(db.conn, node=None, now=NOW)) == 5
    assert len(db.storage.entries(db.conn)) == 1


# --- recurring entries


def ensure(db: Database, conn: Connection, cron: str, *, zone: str = "UTC", worker: str = "w", hour: int = 0):  # type: ignore[no-untyped-def]
    return db.storage.ensure_entry(
        conn, "k", cron=cron, timezone=zone, worker=worker, paused=True, now=NOW + timedelta(hours=hour)
    )


def test_only_a_changed_expression_moves_since(db: Database, conn: Connection) -> None:
    first = ensure(db, conn, "0 * * * *")
    same = ensure(db, conn, "0 * * * *", worker="other", hour=1)
    changed = ensure(db, conn, "5 * * * *", worker="other", hour=2)
    zone = ensure(db, conn, "5 * * * *", zone="Europe/Berlin", hour=3)

    assert (first.since, first.paused) == (NOW, True)
    assert (same.since, same.worker) == (NOW, "other")
    assert changed.since == NOW + timedelta(hours=2)
    assert zone.since == NOW + timedelta(hours=3)
    assert db.storage.entries(conn) == [zone]


def test_CT2_an_instant_is_recorded_once_and_linked_to_its_job(db: Database, conn: Connection) -> None:
    ensure(db, conn, "0 * * * *")
    with atomic(conn):
        assert db.storage.record_run(conn, "k", NOW, now=NOW)
        db.storage.link_run(conn, "k", NOW, 7)
    with atomic(conn):
        assert not db.storage.record_run(conn, "k", NOW, now=NOW)
        assert db.storage.record_run(conn, "other", NOW, now=NOW)
    with atomic(conn):
        assert db.storage.record_run(conn, "k", NOW - SECOND, now=NOW)

    assert db.storage.entries(conn)[0].last_run_at == NOW
    runs = db.conn.execute(db.tables.executions.select().where(db.tables.executions.c.key == "k")).all()
    assert {(run.run_at, run.job_id) for run in runs} == {(NOW, 7), (NOW - SECOND, None)}


def test_CT2_of_nodes_that_tick_together_one_owns_the_run(db: Database) -> None:
    won: list[bool] = []
    start = threading.Barrier(4)

    def tick() -> None:
        with node_connection(db.engine, autocommit=False) as conn:
            start.wait(20)
            with conn.begin():
                won.append(db.storage.record_run(conn, "k", NOW, now=NOW))

    threads = [threading.Thread(target=tick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(won) == [False, False, False, True]
