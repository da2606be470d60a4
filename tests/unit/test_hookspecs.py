"""The catalogue of hooks: complete, documented, and the values that hooks pass."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import Any, get_type_hints

import pluggy
import pytest

from jobkit import Done, PluginInfo, Service, events, hookspecs
from jobkit.clock import SystemClock
from jobkit.hookspecs import API, Actor, AuditEvent, Check, Finding, JobContext, Qualifier, Resource

HOOKS = {
    "jobkit_workers": [],
    "jobkit_schedules": ["config"],
    "jobkit_queues": ["config"],
    "jobkit_services": ["app", "node"],
    "jobkit_commands": ["group"],
    "jobkit_migrations": [],
    "jobkit_configure": ["config"],
    "jobkit_lifespan": ["app"],
    "jobkit_node_started": ["node"],
    "jobkit_node_stopping": ["node"],
    "jobkit_inserted": ["conn", "jobs"],
    "jobkit_transitions": ["conn", "transitions"],
    "jobkit_job_inserting": ["job"],
    "jobkit_around_job": ["job", "worker", "ctx"],
    "jobkit_backoff": ["worker", "attempt", "error"],
    "jobkit_runner": ["worker"],
    "jobkit_redact": ["value", "path", "worker", "kind"],
    "jobkit_event": ["event"],
    "jobkit_authorize": ["actor", "action", "resource"],
    "jobkit_row_scope": ["actor"],
    "jobkit_query_qualifiers": [],
    "jobkit_health_checks": [],
    "jobkit_audit": ["event"],
    "jobkit_storage": ["url"],
}


def specified() -> dict[str, Any]:
    return {name: value for name, value in vars(hookspecs).items() if hasattr(value, "jobkit_spec")}


def test_the_catalogue_holds_exactly_the_promised_hooks_and_arguments() -> None:
    assert {name: list(inspect.signature(f).parameters) for name, f in specified().items()} == HOOKS


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_says_when_it_runs_what_raising_does_and_since_when(name: str) -> None:
    text = re.sub(r"\s+", " ", inspect.getdoc(getattr(hookspecs, name)) or "")
    assert re.search(r"\b(Runs?|Asked|Entered|A fold|Given)\b", text)
    assert "Raising" in text
    assert re.search(r"Since api \d+\.$", text)


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_says_in_which_thread_or_place_it_runs(name: str) -> None:
    text = inspect.getdoc(getattr(hookspecs, name)) or ""
    assert re.search(r"thread|loop|once per|asked for|first query", text)


def test_pluggy_accepts_the_catalogue() -> None:
    manager = pluggy.PluginManager("jobkit")
    manager.add_hookspecs(hookspecs)
    assert set(vars(manager.hook)) >= set(HOOKS)


def test_a_service_takes_its_interval_as_a_duration_or_in_seconds() -> None:
    assert Service("a", timedelta(minutes=1), lambda conn, now: 0).seconds == 60.0
    assert Service("a", 0.5, lambda conn, now: 0).seconds == 0.5


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": ""}, "needs a name"),
        ({"interval": 0}, "more than 0"),
        ({"interval": timedelta(seconds=-1)}, "more than 0"),
        ({"interval": float("nan")}, "more than 0"),
        ({"thread": "main"}, "'shared' or 'own'"),
        ({"phase": "inner"}, "'normal' or 'outer'"),
    ],
)
def test_a_service_that_could_not_run_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Service(**{"name": "a", "interval": 1, "tick": lambda conn, now: 0, **wrong})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"api": "1"}, "api must be an int"),
        ({"api": True}, "api must be an int"),
        ({"requires": "pruner"}, "list of plugin names"),
        ({"replaces": 1}, "replaces must be a str or None"),
        ({"settings": {}}, "settings must be a type or None"),
    ],
)
def test_a_plugin_info_that_means_nothing_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        PluginInfo(**{"api": API, **wrong})


def test_a_plugin_info_takes_its_requirements_as_any_list() -> None:
    assert PluginInfo(api=1, requires=["a", "b"]).requires == ("a", "b")


def test_a_job_context_holds_the_outcome_and_nothing_else() -> None:
    ctx = JobContext()
    assert ctx.outcome is None
    ctx.outcome = Done()
    with pytest.raises(AttributeError):
        ctx.other = 1  # type: ignore[attr-defined]


EVENTS = [getattr(events, name) for name in events.__all__]


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_is_frozen_typed_and_documented(kind: type[events.Event]) -> None:
    assert issubclass(kind, events.Event)
    assert kind.__doc__
    assert kind.__doc__.strip()
    assert "at" in kind.__dataclass_fields__
    assert not hasattr(kind, "__dict__") or "__slots__" in vars(kind)


def test_event_names_are_distinct() -> None:
    names = [kind.name for kind in EVENTS if kind.__subclasses__() == []]
    assert len(set(names)) == len(names)


def test_an_event_gives_its_fields_by_name() -> None:
    at = SystemClock().now()
    event = events.WakeSent(at=at, queues=("default",), notified=True)
    assert event.name == "wake.sent"
    assert event.as_dict() == {"at": at, "queues": ("default",), "notified": True}
    with pytest.raises(AttributeError):
        event.notified = False  # type: ignore[misc]


def test_administration_values_have_sensible_defaults() -> None:
    actor = Actor("ann@host", via="cli")
    assert actor.name == "ann@host"
    assert Actor("a", "Ann").name == "Ann"
    assert Resource("job", "7").tags == ()
    entry = AuditEvent(
        at=SystemClock().now(),
        actor=actor,
        action="jobs.retry",
        target_kind="job",
        ids=("7",),
        count=1,
        result="ok",
    )
    assert (entry.before, entry.after, entry.reason) == ({}, {}, "")
    assert Check("schema", "Schema", lambda ctx: Finding("ok", "current")).needs_database
    assert not Qualifier("x", str, lambda t, v: t.c.id > 0, lambda t, v: t.c.id > 0).redacted


def test_the_hints_of_the_passed_types_can_be_resolved_by_tools() -> None:
    from jobkit.core import Core

    names = {"Core": Core, "Connection": object, "ColumnElement": list, "FromClause": object}
    for kind in (Actor, Resource, AuditEvent, Check, Finding, Qualifier):
        assert get_type_hints(kind, localns=names)
