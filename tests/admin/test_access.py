"""Who may do what: roles, plugins' policies, row scopes, and the rows that refusals leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobkit.admin.access import PERMISSIONS, ROLES, cli_actor
from jobkit.admin.actions import Actions
from jobkit.admin.errors import AdminError, NotFound, NotPermitted
from jobkit.admin.query import parse
from jobkit.admin.reads import Reads
from jobkit.admin.results import InsertRequest, JobEdit, Matching
from jobkit.core import Core
from jobkit.hookspecs import Actor, AuditEvent, Resource, hookimpl
from jobkit.jobs import JobState
from tests.admin.conftest import make_app
from tests.admin.support import ADMIN, NOW, add, ago, put, put_node, row


def web(*roles: str) -> Actor:
    return Actor("bo@example.com", "Bo", "web", frozenset(roles))


ACTIONS: dict[str, Callable[[Actions], object]] = {
    "jobs.retry": lambda a: a.retry([1]),
    "jobs.run_now": lambda a: a.run_now([1]),
    "jobs.cancel": lambda a: a.cancel([1]),
    "jobs.delete": lambda a: a.delete([2]),
    "jobs.edit": lambda a: a.edit([1], JobEdit(priority=3)),
    "jobs.insert_any": lambda a: a.insert(InsertRequest("nobody")),
    "queues.pause": lambda a: a.pause_queue("default"),
    "queues.resume": lambda a: a.resume_queue("default"),
    "queues.scale": lambda a: a.scale_queue("default", 3),
    "nodes.pause": lambda a: a.command_node("n", "pause"),
    "nodes.drain": lambda a: a.command_node("n", "drain"),
    "nodes.forget": lambda a: a.command_node("old", "forget"),
    "cron.pause": lambda a: a.pause_cron("nightly"),
}
BULK: dict[str, Callable[[Actions], object]] = {
    "jobs.retry": lambda a: a.start("retry", Matching("")),
    "jobs.delete": lambda a: a.start("delete", Matching("")),
    "jobs.cancel": lambda a: a.preview("cancel", Matching("")),
}


def populated(app: Core) -> None:
    add(app, row(state="retryable"), row(state="completed"))
    put_node(app, "n")
    put_node(app, "old", lost_at=ago(hours=1))
    entry = {"key": "nightly", "cron": "0 1 * * *", "timezone": "UTC", "worker": "w"}
    put(app, "entries", **entry, since=NOW, paused=False, updated_at=NOW)


@pytest.mark.parametrize("role", [None, "viewer", "operator", "admin"])
@pytest.mark.parametrize("permission", list(ACTIONS))
def test_each_role_may_do_what_its_table_says_and_a_refusal_leaves_a_row(
    lite: Core, role: str | None, permission: str
) -> None:
    populated(lite)
    actor = web(*([role] if role else []))
    actions = Actions(lite, actor)
    permitted = role is not None and permission in ROLES[role]
    assert actions.may(permission) is permitted
    if permitted:
        ACTIONS[permission](actions)
    else:
        with pytest.raises(NotPermitted, match=permission):
            ACTIONS[permission](actions)
    (entry,) = Reads(lite, ADMIN).audit().entries
    assert entry.action == permission
    assert entry.actor == "bo@example.com"
    assert entry.via == "web"
    assert (entry.result == "denied") is not permitted


@pytest.mark.parametrize("permission", list(BULK))
def test_bulk_operations_and_previews_need_the_same_permission(lite: Core, permission: str) -> None:
    populated(lite)
    with pytest.raises(NotPermitted):
        BULK[permission](Actions(lite, web("viewer")))
    BULK[permission](Actions(lite, web("admin")))


def test_reads_need_the_permission_of_their_page(lite: Core) -> None:
    populated(lite)
    nobody, viewer = Reads(lite, web()), Reads(lite, web("viewer"))
    reads: list[Callable[[Reads], object]] = [
        *(
            lambda r: r.jobs(),
            lambda r: r.count(),
            lambda r: r.states(),
            lambda r: r.facets(),
            lambda r: r.job(1),
        ),
        *(
            lambda r: r.queues(),
            lambda r: r.nodes(),
            lambda r: r.cron(),
            lambda r: r.workers(),
            lambda r: r.plugins(),
        ),
        *(lambda r: r.operations(), lambda r: r.why(1), lambda r: r.suggest("q"), lambda r: r.summaries([1])),
    ]
    for read in reads:
        read(viewer)
        with pytest.raises(NotPermitted):
            read(nobody)
    with pytest.raises(NotPermitted):
        viewer.audit()
    Reads(lite, web("admin")).audit()


def test_the_command_line_may_do_everything_unless_a_plugin_says_otherwise(lite: Core) -> None:
    populated(lite)
    actor = cli_actor()
    assert "@" in actor.id
    assert all(Actions(lite, actor).may(permission) for permission in PERMISSIONS)


def policy(answer: Callable[[Actor, str, Resource], bool | None]) -> Any:
    class Policy:
        @hookimpl
        def jobkit_authorize(self, actor: Actor, action: str, resource: Resource) -> bool | None:
            return answer(actor, action, resource)

    return Policy()


def app_with(url: str, *plugins: Any) -> Core:
    return make_app(url, plugins=list(plugins))


def test_a_plugins_no_beats_every_yes(sqlite_url: str) -> None:
    app = app_with(
        sqlite_url,
        policy(lambda *_: True),
        policy(lambda a, action, r: False if action == "jobs.delete" else None),
    )
    (job_id,) = add(app, row(state="completed"))
    assert Actions(app, web()).retry([job_id]).ok
    with pytest.raises(NotPermitted):
        Actions(app, ADMIN).delete([job_id])
    app.close()


def test_a_policy_that_raises_counts_as_a_no(sqlite_url: str) -> None:
    def broken(*_: object) -> bool:
        raise RuntimeError("ldap is down")

    app = app_with(sqlite_url, policy(broken))
    (job_id,) = add(app, row(state="completed"))
    with pytest.raises(NotPermitted):
        Actions(app, ADMIN).retry([job_id])
    app.close()


def test_a_policy_is_asked_for_each_job(sqlite_url: str) -> None:
    app = app_with(
        sqlite_url,
        policy(lambda a, action, r: None if r.kind != "job" or r.id is None else r.queue == "mine"),
    )
    mine, other = add(app, row(state="completed", queue="mine"), row(state="completed", queue="other"))
    result = Actions(app, ADMIN).retry([mine, other])
    assert [r.result for r in result.results] == ["done", "denied"]
    with pytest.raises(NotPermitted):
        Actions(app, ADMIN).retry([other])
    bulk = Actions(app, ADMIN).start("delete", Matching(""))
    done = Actions(app, ADMIN).run_operation(bulk.id)
    assert (done.done, done.failed) == (1, 1)
    app.close()


def scope(answer: object) -> Any:
    class Scope:
        @hookimpl
        def jobkit_row_scope(self, actor: Actor) -> object | None:
            if isinstance(answer, Exception):
                raise answer
            return answer if actor.via == "web" else None

    return Scope()


def test_what_lies_outside_of_the_row_scope_does_not_exist(sqlite_url: str) -> None:
    app = app_with(sqlite_url, scope("tag:team-a"), scope(parse("-queue:secret").query))
    mine = add(app, row(tags=["team-a"], queue="q", state="completed"))[0]
    hidden = add(
        app,
        row(tags=["team-b"], queue="other", state="completed"),
        row(tags=["team-a"], queue="secret"),
        row(tags=["team-b"]),
    )
    actor = web("admin")
    reads, actions = Reads(app, actor), Actions(app, actor)
    assert [job.id for job in reads.jobs().jobs] == [mine]
    assert [job.id for job in reads.jobs("tag:team-b").jobs] == []
    assert reads.count().count.value == 1
    assert reads.states().counts[JobState.AVAILABLE].value == 0
    assert {
        value.value for facet in reads.facets().facets for value in facet.values if facet.qualifier == "queue"
    } == {"q"}
    assert [s.text for s in reads.suggest("queue:")] == ["q"]
    assert list(reads.summaries([mine, *hidden])) == [mine]
    for job_id in hidden:
        with pytest.raises(NotFound):
            reads.job(job_id)
        with pytest.raises(NotFound):
            reads.why(job_id)
    assert [r.result for r in actions.delete([mine, hidden[0]]).results] == ["done", "missing"]
    started = actions.start("delete", Matching(""))
    assert Actions(app, ADMIN).run_operation(started.id).done == 0, (
        "whoever runs it, the starter's scope counts"
    )
    assert Reads(app, ADMIN).count().count.value == 3
    app.close()


@pytest.mark.parametrize("answer", ["state:nope", 42, RuntimeError("no")])
def test_a_row_scope_that_fails_shows_nothing(sqlite_url: str, answer: object) -> None:
    app = app_with(sqlite_url, scope(answer))
    add(app, row(state="completed"))
    for attempt in (lambda: Reads(app, web("admin")).jobs(), lambda: Actions(app, web("admin")).retry([1])):
        with pytest.raises(AdminError):
            attempt()
    app.close()


def test_plugins_hear_of_actions_after_the_commit_and_of_refusals(sqlite_url: str) -> None:
    heard: list[tuple[AuditEvent, int]] = []

    class Ship:
        @hookimpl
        def jobkit_audit(self, event: AuditEvent) -> None:
            heard.append((event, len(Reads(app, ADMIN).audit().entries)))
            raise RuntimeError("isolated")

    app = app_with(sqlite_url, Ship())
    (job_id,) = add(app, row(state="completed"))
    Actions(app, ADMIN).retry([job_id])
    with pytest.raises(NotPermitted):
        Actions(app, web()).retry([job_id])
    assert [(event.action, event.result, rows) for event, rows in heard] == [
        ("jobs.retry", "ok", 1),
        ("jobs.retry", "denied", 2),
    ]
    assert heard[0][0].actor == ADMIN
    app.close()


def test_the_audit_can_be_narrowed_and_paged(app: Core) -> None:
    ids = add(app, *(row(state="discarded") for _ in range(5)))
    for job_id in ids:
        Actions(app, ADMIN).retry([job_id])
    Actions(app, Actor("bo", via="api", roles=frozenset({"admin"}))).pause_queue("default")
    reads = Reads(app, ADMIN)
    assert len(reads.audit(actor="ana*").entries) == 5
    assert [entry.action for entry in reads.audit(action="queues.*").entries] == ["queues.pause"]
    assert [entry.ids for entry in reads.audit(target=("job", str(ids[2]))).entries] == [(str(ids[2]),)]
    assert reads.audit(result="denied").entries == ()
    assert reads.audit(until=NOW).entries == ()
    assert len(reads.audit(since=NOW).entries) == 6
    first = reads.audit(limit=4)
    rest = reads.audit(limit=4, before_id=first.next)
    assert len(first.entries) + len(rest.entries) == 6
    assert rest.next is None
    assert [entry.action for entry in reads.job(ids[0]).activity] == ["jobs.retry"]
