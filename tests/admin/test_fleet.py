"""Queues and nodes: what is shown of them, and what operators change."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from jobkit.admin.actions import Actions
from jobkit.admin.errors import Conflict, Invalid, NotFound
from jobkit.admin.reads import Reads
from jobkit.core import Core
from jobkit.storage.base import QueueSettings
from tests.admin.support import ADMIN, NOW, add, ago, put, put_node, row


def stored(app: Core, table: str, column: str, name: str) -> dict[str, Any]:
    found = getattr(app.tables, table)
    with app.engine.connect() as conn:
        return dict(conn.execute(select(found).where(found.c[column] == name)).one()._mapping)


def settings(app: Core, node: str) -> dict[str, QueueSettings]:
    with app.engine.connect() as conn:
        return dict(app.storage.queue_settings(conn, node=node, now=app.clock.now()))


def test_QU4_a_queue_without_nodes_is_visible_as_such(app: Core) -> None:
    put_node(app, "gone", {"mail": 5}, lost_at=ago(hours=1), heartbeat_at=ago(hours=1))
    put_node(app, "here", {"default": 10})
    add(
        app,
        row(queue="mail", scheduled_at=ago(minutes=7)),
        row(queue="mail", priority=3, scheduled_at=ago(minutes=9)),
    )
    add(app, row(queue="typo", state="scheduled", scheduled_at=NOW + timedelta(hours=1)))
    views = {view.name: view for view in Reads(app, ADMIN).queues()}
    assert [views[name].status for name in ("mail", "typo", "default")] == ["no nodes", "no nodes", "running"]
    mail = views["mail"]
    assert (mail.available.value, mail.oldest_age, mail.last_node) == (2, timedelta(minutes=9), "gone")
    assert (mail.limit, mail.utilisation) == (0, None)
    assert views["typo"].scheduled.value == 1
    assert next(iter(Reads(app, ADMIN).queues())).name == "mail"


def test_a_queue_tells_its_utilisation_limits_and_pauses(app: Core) -> None:
    put_node(app, "a", {"default": 10, "mail": 2})
    put_node(app, "b", {"default": 10}, wanted=json.dumps({"paused": True}))
    put(app, "queues", name="default", limit_override=4, node_limits=json.dumps({"a": 3}), updated_at=NOW)
    add(app, *(row(state="executing", attempted_by="a") for _ in range(2)), row(state="retryable"))
    view = Reads(app, ADMIN).queue("default")
    assert (view.status, view.executing, view.limit, view.retryable.value) == ("part paused", 2, 3, 1)
    assert [(node.node, node.limit, node.override, node.executing, node.paused) for node in view.nodes] == [
        ("a", 3, 3, 2, False),
        ("b", 4, 4, 0, True),
    ]
    assert view.utilisation == pytest.approx(2 / 3)
    with pytest.raises(NotFound):
        Reads(app, ADMIN).queue("nowhere")


def test_a_pause_lasts_until_its_time_or_until_resumed(app: Core) -> None:
    put_node(app, "n")
    actions = Actions(app, ADMIN)
    change = actions.pause_queue("default", until=NOW + timedelta(hours=1), reason="deploy")
    assert (change.before["paused"], change.after["paused"], change.capacity_after) == (False, True, 0)
    view = Reads(app, ADMIN).queue("default")
    assert (view.status, view.reason, view.paused_by) == ("paused", "deploy", "ana@host")
    assert settings(app, "n")["default"].paused
    app.clock.advance(timedelta(hours=2))  # type: ignore[attr-defined]
    assert not Reads(app, ADMIN).queue("default").paused
    actions.pause_queue("default")
    assert settings(app, "n")["default"].paused
    actions.resume_queue("default")
    assert not settings(app, "n")["default"].paused
    assert stored(app, "queues", "name", "default")["version"] == 3
    assert [entry.action for entry in Reads(app, ADMIN).audit().entries] == [
        "queues.resume",
        "queues.pause",
        "queues.pause",
    ]


def test_a_limit_is_set_for_all_nodes_or_one_and_taken_back(app: Core) -> None:
    put_node(app, "a")
    put_node(app, "b")
    actions = Actions(app, ADMIN)
    assert actions.preview_scale("default", 3).capacity_after == 6
    assert (
        actions.scale_queue("default", 3, node="a").capacity_before,
        settings(app, "a")["default"].limit,
    ) == (20, 3)
    assert settings(app, "b")["default"].limit is None
    assert actions.scale_queue("default", 5).capacity_after == 10
    assert settings(app, "a")["default"].limit == 5
    assert actions.scale_queue("default", None).capacity_after == 20
    assert actions.scale_queue("default", 0).capacity_after == 0
    with pytest.raises(NotFound):
        actions.scale_queue("default", 1, node="nobody")
    for limit in (-1, 10_001, True):
        with pytest.raises(Invalid):
            actions.scale_queue("default", limit)


def test_unknown_queues_and_times_in_the_past_are_refused(app: Core) -> None:
    actions = Actions(app, ADMIN)
    with pytest.raises(NotFound):
        actions.pause_queue("nowhere")
    put_node(app, "n")
    for until in (ago(minutes=1), NOW.replace(tzinfo=None)):
        with pytest.raises(Invalid):
            actions.pause_queue("default", until=until)


def test_nodes_show_load_age_and_what_they_left(app: Core) -> None:
    put_node(
        app,
        "alive",
        {"default": 10},
        info=json.dumps({"pid": 7, "password": "x"}),
        heartbeat_at=ago(seconds=2),
    )
    put_node(app, "dead", lost_at=ago(minutes=1), heartbeat_at=ago(minutes=2))
    put_node(app, "silent", heartbeat_at=ago(minutes=5))
    put_node(app, "ahead", heartbeat_at=NOW + timedelta(seconds=40))
    add(app, row(state="executing", attempted_by="alive"), row(state="executing", attempted_by="dead"))
    nodes = {node.node: node for node in Reads(app, ADMIN).nodes()}
    assert (nodes["alive"].executing, nodes["alive"].capacity, nodes["alive"].heartbeat_age) == (
        1,
        10,
        timedelta(seconds=2),
    )
    assert nodes["alive"].info == {"pid": 7, "password": "[redacted]"}
    assert (nodes["dead"].stale, nodes["dead"].orphans, nodes["silent"].stale) == (True, 1, True)
    assert (nodes["ahead"].stale, nodes["ahead"].clock_skew) == (False, timedelta(seconds=40))
    assert Reads(app, ADMIN).node("dead").orphans == 1
    with pytest.raises(NotFound):
        Reads(app, ADMIN).node("nobody")


def test_commands_reach_a_node_by_its_row(app: Core) -> None:
    put_node(app, "n")
    actions = Actions(app, ADMIN)
    for command, wanted in (
        ("pause", {"paused": True}),
        ("drain", {"paused": True, "drain": True}),
        ("resume", {"paused": False, "drain": False}),
    ):
        actions.command_node("n", command)  # type: ignore[arg-type]
        assert json.loads(stored(app, "nodes", "node", "n")["wanted"]) == wanted
    with pytest.raises(Conflict, match="alive"):
        actions.command_node("n", "forget")
    assert Reads(app, ADMIN).audit().entries[0].result == "conflict"
    put_node(app, "old", lost_at=ago(hours=1))
    actions.command_node("old", "forget")
    assert [node.node for node in Reads(app, ADMIN).nodes()] == ["n"]
    with pytest.raises(NotFound):
        actions.command_node("old", "pause")


def test_workers_are_known_by_what_nodes_publish_and_what_jobs_name(app: Core) -> None:
    put(app, "workers", name="fresh", last_seen_at=NOW, config=json.dumps({"queue": "mail", "timeout": None}))
    put(app, "workers", name="stale", last_seen_at=ago(hours=1), config="{}")
    add(
        app,
        row(worker="fresh"),
        row(worker="stale"),
        row(worker="never"),
        row(worker="done", state="completed"),
    )
    views = {view.name: view for view in Reads(app, ADMIN).workers() if not view.registered}
    assert {name for name, view in views.items() if view.missing} == {"stale", "never"}
    assert (views["fresh"].live, views["fresh"].config["queue"], views["stale"].live) == (True, "mail", False)
    assert "done" not in views
    assert Reads(app, ADMIN).worker("never").seen_at is None
    with pytest.raises(NotFound):
        Reads(app, ADMIN).worker("nobody")


def test_plugins_show_their_ticks_on_each_node(app: Core) -> None:
    put_node(
        app,
        "n",
        info=json.dumps({"services": {"stager": {"ticked_at": "2026-12-01T12:00:00+00:00", "failures": 0}}}),
    )
    plugins = {plugin.name: plugin for plugin in Reads(app, ADMIN).plugins()}
    assert plugins["stager"].status == "active"
    assert plugins["stager"].ticks["n"]["stager"] == {"ticked_at": "2026-12-01T12:00:00+00:00", "failures": 0}
    assert plugins["pruner"].ticks == {}
