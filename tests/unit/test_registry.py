"""Discovery, validation, swapping and isolation of plugins, against distributions that are really found."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobkit import Recurring, Worker, hookimpl, worker
from jobkit.clock import SystemClock
from jobkit.config import Config, QueueConfig
from jobkit.errors import ConfigError, ScheduleError, WorkerDefinitionError
from jobkit.events import Event, ListenerRestored, PluginFailed
from jobkit.registry import PluginState, Registry, WorkerUnavailable
from tests.support.distributions import Site, visible

BUILT_IN = {"heartbeat", "stager", "lifeline", "cron", "pruner", "cleanup", "operations"}

GOOD = """
seen = []

@hookimpl
def jobkit_event(event):
    seen.append(event)
"""


class Moved(SystemClock):
    """A clock whose monotonic time is set by hand."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with visible(Site(tmp_path / "site")) as made:
        yield made


def registry(**settings: Any) -> Registry:
    return Registry(Config(database_url="sqlite:///unused.db", **settings))


def state(found: Registry, name: str, distribution: str | None = None) -> PluginState:
    states = [s for s in found.plugins if s.name == name and distribution in (None, s.distribution)]
    assert len(states) == 1, [(s.name, s.distribution, s.status) for s in found.plugins]
    return states[0]


def active(found: Registry) -> list[str]:
    return [s.name for s in found.plugins if s.status == "active"]


def event() -> Event:
    return ListenerRestored(at=SystemClock().now(), node="n")


# -- discovery --


def test_built_ins_come_by_the_distributions_own_entry_points() -> None:
    found = registry()
    assert {s.name for s in found.plugins} >= BUILT_IN
    assert all(
        s.distribution == "jobkit-queue" and s.kind == "built-in" for s in found.plugins if s.name in BUILT_IN
    )


def test_an_installed_distribution_is_found_with_name_and_version(site: Site) -> None:
    site.install("acme-watch", "2.1", plugins={"watch": "acme_watch"}, modules={"acme_watch": GOOD})
    found = state(registry(), "watch")
    assert (found.status, found.distribution, found.version) == ("active", "acme-watch", "2.1")
    assert found.hooks == ("jobkit_event",)


def test_PL3_a_distribution_that_is_visible_twice_is_loaded_once(site: Site, tmp_path: Path) -> None:
    site.install("acme-watch", "2.1", plugins={"watch": "acme_watch"}, modules={"acme_watch": GOOD})
    second = Site(tmp_path / "second")
    second.install("Acme.Watch", "1.9", plugins={"watch": "acme_watch"})
    with visible(second):
        found = registry()
        assert state(found, "watch").version == "2.1"


def test_a_distribution_shadows_one_of_its_name_further_down_the_path(site: Site, tmp_path: Path) -> None:
    site.install("acme-watch", "2.0")
    second = Site(tmp_path / "second")
    second.install("acme-watch", "1.0", plugins={"watch": "acme_watch"}, modules={"acme_watch": GOOD})
    with visible(second):
        assert "watch" not in [s.name for s in registry().plugins]


def test_PL3_one_module_behind_two_names_is_active_once(site: Site) -> None:
    site.install("acme", plugins={"one": "acme_watch", "two": "acme_watch"}, modules={"acme_watch": GOOD})
    found = registry()
    assert state(found, "one").status == "active"
    assert state(found, "two").status == "duplicate"
    assert "'one' (acme 1.0)" in state(found, "two").error


def test_metadata_without_a_name_hides_nothing(site: Site) -> None:
    site.install(
        "nameless", plugins={"odd": "odd"}, modules={"odd": GOOD}, metadata="Metadata-Version: 2.1\n"
    )
    site.install("acme-watch", plugins={"watch": "acme_watch"}, modules={"acme_watch": GOOD})
    assert {"odd", "watch"} <= set(active(registry()))


def test_an_entry_point_may_name_an_object(site: Site) -> None:
    source = """
    class Plugin:
        @hookimpl
        def jobkit_event(self, event): ...

    plugin = Plugin()
    """
    site.install("acme", plugins={"acme": "acme_object:plugin"}, modules={"acme_object": source})
    assert state(registry(), "acme").hooks == ("jobkit_event",)


def test_plugins_are_asked_latest_first_and_tryfirst_goes_before_all(site: Site) -> None:
    def source(name: str, mark: str = "") -> str:
        return f"@hookimpl{mark}\ndef jobkit_query_qualifiers():\n    return [{name!r}]\n"

    site.install("b-dist", plugins={"bee": "bee"}, modules={"bee": source("bee")})
    site.install("a-dist", plugins={"cee": "cee"}, modules={"cee": source("cee", "(tryfirst=True)")})
    site.module("mine", source("mine"))
    site.install("a-other", plugins={"aye": "aye"}, modules={"aye": source("aye")})

    class Given:
        @hookimpl
        def jobkit_query_qualifiers(self) -> list[str]:
            return ["given"]

    found = Registry(Config(database_url="sqlite:///x.db", imports=["mine"]), plugins=[Given()])
    assert [name for name, _ in found.gather("jobkit_query_qualifiers")] == [
        "cee",
        "Given",
        "mine",
        "bee",
        "aye",
    ]


# -- every kind of broken plugin --

BROKEN = {
    "import-error": ("import no_such_module", "cannot be imported: ModuleNotFoundError"),
    "exits": ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
    "wrong-signature": (
        "@hookimpl\ndef jobkit_event(event, mood): ...",
        "jobkit_event",
    ),
    "unknown-hook": (
        "@hookimpl\ndef jobkit_evnt(event): ...",
        "there is no hook 'jobkit_evnt'; did you mean 'jobkit_event'?",
    ),
    "unknown-hook-of-ours": (
        "@hookimpl\ndef jobkit_job_zapped(job): ...",
        "there is no hook 'jobkit_job_zapped'",
    ),
    "other-api": ("jobkit_plugin = PluginInfo(api=2)", "api 2"),
    "no-info": ("jobkit_plugin = {'api': 1}", "is a dict, not a PluginInfo"),
    "bad-info": ("jobkit_plugin = PluginInfo(api=1, requires='pruner')", "list of plugin names"),
    "wrapper": (
        "@hookimpl(wrapper=True)\ndef jobkit_event(event):\n    return (yield)",
        "is a hook wrapper",
    ),
    "async": ("@hookimpl\nasync def jobkit_event(event): ...", "is async"),
    "naked-lifespan": (
        "@hookimpl\nasync def jobkit_lifespan(app):\n    yield {}",
        "decorate it with @asynccontextmanager",
    ),
    "configure-raises": (
        "@hookimpl\ndef jobkit_configure(config):\n    raise RuntimeError('no')",
        "its jobkit_configure raised RuntimeError: no",
    ),
    "workers-raise": (
        "@hookimpl\ndef jobkit_workers():\n    1 / 0",
        "its jobkit_workers raised ZeroDivisionError",
    ),
    "lacks": ("jobkit_plugin = PluginInfo(api=1, requires=['nobody'])", "it requires 'nobody'"),
    "no-specs": (
        "jobkit_plugin = PluginInfo(api=1, hookspecs='no_such_specs')",
        "no_such_specs cannot be imported",
    ),
    "bad-struct": (
        "jobkit_plugin = PluginInfo(api=1, settings=int)",
        "neither a dataclass nor a msgspec.Struct",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_PL1_PL4_PL6_a_broken_plugin_is_skipped_whole_named_and_breaks_nothing_else(
    kind: str, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    body, reason = BROKEN[kind]
    source = (
        "@hookimpl\ndef jobkit_schedules(config):\n    return [Recurring('bad', '@daily', dict)]\n\n" + body
    )
    site.install("broken-dist", plugins={"broken": "broken_plugin"}, modules={"broken_plugin": source})
    site.install("acme-watch", plugins={"watch": "acme_watch"}, modules={"acme_watch": GOOD})
    with caplog.at_level(logging.WARNING, "jobkit.plugins"):
        found = registry()
        broken = state(found, "broken")
    assert broken.status == "skipped"
    assert reason in broken.error
    assert any("broken-dist" in r.getMessage() and reason in r.getMessage() for r in caplog.records)
    assert "watch" in active(found)
    assert all(entry.recurring.key != "bad" for entry in found.schedules())
    found.observe("jobkit_event", event=event())
    assert len(sys.modules["acme_watch"].seen) == 1


def test_PL1_an_entry_point_to_nothing_is_named(site: Site) -> None:
    site.install(
        "acme", plugins={"gone": "acme_gone", "half": "acme_half:missing"}, modules={"acme_half": GOOD}
    )
    found = registry()
    assert "ModuleNotFoundError" in state(found, "gone").error
    assert "AttributeError" in state(found, "half").error


def test_PL2_a_duplicate_name_is_refused_and_says_how_to_replace(site: Site) -> None:
    site.install("b-acme", plugins={"watch": "b_watch"}, modules={"b_watch": GOOD})
    site.install(
        "a-acme",
        plugins={"watch": "a_watch", "pruner": "a_prune"},
        modules={"a_watch": GOOD, "a_prune": GOOD},
    )
    found = registry()
    assert state(found, "watch", "a-acme").status == "active"
    second = state(found, "watch", "b-acme")
    assert second.status == "duplicate"
    assert "'watch' (a-acme 1.0)" in second.error
    assert state(found, "pruner", "jobkit-queue").status == "active"
    assert "replaces='pruner'" in state(found, "pruner", "a-acme").error


def test_PL2_where_the_first_of_two_cannot_load_the_second_is_taken(site: Site) -> None:
    site.install("a-acme", plugins={"watch": "a_watch"}, modules={"a_watch": "1 / 0"})
    site.install("b-acme", plugins={"watch": "b_watch"}, modules={"b_watch": GOOD})
    found = registry()
    assert state(found, "watch", "a-acme").status == "skipped"
    assert state(found, "watch", "b-acme").status == "active"


def test_a_hook_of_an_absent_jobkit_package_is_allowed(site: Site) -> None:
    site.install(
        "acme",
        plugins={"acme": "acme_pages"},
        modules={"acme_pages": "@hookimpl\ndef jobkit_skyhook_nav(ctx): ..."},
    )
    assert state(registry(), "acme").status == "active"


def test_an_optional_hook_is_always_allowed(site: Site) -> None:
    source = "@hookimpl(optionalhook=True)\ndef jobkit_evnt(event): ..."
    site.install("acme", plugins={"acme": "acme_pages"}, modules={"acme_pages": source})
    assert state(registry(), "acme").status == "active"


def test_a_function_without_the_marker_is_remarked_upon(site: Site) -> None:
    site.install("acme", plugins={"acme": "acme_bare"}, modules={"acme_bare": "def jobkit_event(event): ..."})
    assert state(registry(), "acme").notes == [
        "implements no hook",
        "jobkit_event is not marked with @hookimpl, so it is never called",
    ]


def test_a_plugin_may_bring_hooks_that_another_implements(site: Site) -> None:
    specs = """
    from jobkit.hookspecs import hookspec

    @hookspec
    def jobkit_weather(day): ...
    """
    site.install(
        "z-weather",
        plugins={"weather": "weather"},
        modules={
            "weather": "jobkit_plugin = PluginInfo(api=1, hookspecs='weather_specs')",
            "weather_specs": specs,
        },
    )
    sun = "@hookimpl\ndef jobkit_weather(day):\n    return f'sun on {day}'\n"
    site.install("a-sun", plugins={"sun": "sun"}, modules={"sun": sun})
    found = registry()
    assert found.gather("jobkit_weather", day="Monday") == [("sun", "sun on Monday")]


# -- observers --


def raising(name: str, error: str = "RuntimeError('postgres://u:hunter2@h/db')") -> str:
    return f"count = 0\n\n@hookimpl\ndef jobkit_event(event):\n    global count\n    count += 1\n    raise {error}\n"


def test_PL5_an_observer_that_raises_silences_no_other_and_is_counted(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.install("acme-bad", plugins={"bad": "acme_bad"}, modules={"acme_bad": raising("bad")})
    site.install("a-watch", plugins={"watch": "acme_watch"}, modules={"acme_watch": GOOD})
    found = registry()
    for _ in range(3):
        found.observe("jobkit_event", event=event())
    assert len(sys.modules["acme_watch"].seen) == 3
    bad = state(found, "bad")
    assert (bad.status, bad.failures) == ("active", 3)
    assert "RuntimeError" in bad.last_failure


def test_PL5_an_observer_that_exits_ends_nothing(site: Site) -> None:
    site.install(
        "acme-bad", plugins={"bad": "acme_bad"}, modules={"acme_bad": raising("bad", "SystemExit(1)")}
    )
    found = registry()
    found.observe("jobkit_event", event=event())
    assert state(found, "bad").failures == 1


def test_a_hook_that_keeps_raising_is_logged_once_a_minute(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.install("acme-bad", plugins={"bad": "acme_bad"}, modules={"acme_bad": raising("bad")})
    clock = Moved()
    found = Registry(Config(database_url="sqlite:///x.db"), clock=clock)
    with caplog.at_level(logging.ERROR, "jobkit.plugins"):
        for _ in range(5):
            found.observe("jobkit_event", event=event())
        assert len([r for r in caplog.records if "jobkit_event raised" in r.getMessage()]) == 1
        clock.at = 61.0
        found.observe("jobkit_event", event=event())
    lines = [r.getMessage() for r in caplog.records if "jobkit_event raised" in r.getMessage()]
    assert len(lines) == 2
    assert "4 more like it" in lines[1]


def test_a_hook_that_raises_is_told_to_the_observers(site: Site) -> None:
    site.install(
        "acme-bad",
        plugins={"bad": "acme_bad"},
        modules={"acme_bad": "@hookimpl\ndef jobkit_node_started(node):\n    raise ValueError('x')"},
    )
    site.install("a-watch", plugins={"watch": "acme_watch"}, modules={"acme_watch": GOOD})
    registry().observe("jobkit_node_started", node=None)
    (seen,) = sys.modules["acme_watch"].seen
    assert isinstance(seen, PluginFailed)
    assert (seen.plugin, seen.where, seen.error) == ("bad", "jobkit_node_started", "ValueError: x")


class Answers:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    @hookimpl
    def jobkit_backoff(self, worker: object, attempt: int) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @hookimpl
    def jobkit_job_inserting(self, job: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return None if self.answer is None else job + self.answer


def given(*answers: object) -> Registry:
    return Registry(Config(database_url="sqlite:///x.db"), plugins=[Answers(a) for a in answers])


def test_the_first_answer_wins_and_one_that_raises_or_is_nonsense_is_passed_over() -> None:
    found = given("first given", timedelta(3), None, ValueError("x"), "nonsense")
    answer = found.first(
        "jobkit_backoff", lambda a: isinstance(a, timedelta), worker=object, attempt=1, error=ValueError()
    )
    assert answer == timedelta(3)
    failed = {s.name: s.failures for s in found.plugins if s.failures}
    assert failed == {"Answers-4": 1, "Answers-5": 1}


def test_a_fold_passes_each_result_on_and_None_keeps_it() -> None:
    assert given("a", None, "b").fold("jobkit_job_inserting", "job") == "jobba"


def test_a_fold_raises_what_a_plugin_raises_and_names_it() -> None:
    with pytest.raises(ValueError, match="no") as caught:
        given("a", ValueError("no")).fold("jobkit_job_inserting", "job")
    assert caught.value.__notes__ == ["raised by jobkit_job_inserting of the plugin 'Answers-2'"]


def test_a_fold_refuses_a_value_of_another_class() -> None:
    class Turns:
        @hookimpl
        def jobkit_job_inserting(self, job: object) -> object:
            return 7

    found = Registry(Config(database_url="sqlite:///x.db"), plugins=[Turns()])
    with pytest.raises(TypeError, match="the plugin 'Turns' returned a int"):
        found.fold("jobkit_job_inserting", "job")


def test_a_hook_that_nobody_implements_is_not_there() -> None:
    found = registry()
    assert not found.has("jobkit_audit")
    assert found.gather("jobkit_audit", event=None) == []


# -- swapping --

STANDS_IN = "jobkit_plugin = PluginInfo(api=1, replaces='pruner')\n" + GOOD


def test_a_replacement_that_says_so_takes_the_place_of_a_built_in(site: Site) -> None:
    site.install("acme-archive", plugins={"archive": "acme_archive"}, modules={"acme_archive": STANDS_IN})
    found = registry()
    assert state(found, "archive").status == "active"
    pruner = state(found, "pruner")
    assert (pruner.status, pruner.replaced_by) == ("replaced", "'archive' (acme-archive 1.0)")


@pytest.mark.parametrize("name", ["heartbeat", "stager", "lifeline", "cron", "pruner"])
def test_each_built_in_can_be_replaced_under_its_own_name(name: str, site: Site) -> None:
    source = f"jobkit_plugin = PluginInfo(api=1, replaces={name!r})\n" + GOOD
    site.install("acme", plugins={name: "acme_own"}, modules={"acme_own": source})
    found = registry()
    assert state(found, name, "acme").status == "active"
    assert state(found, name, "jobkit-queue").status == "replaced"


def test_of_two_replacements_neither_wins_until_the_configuration_decides(site: Site) -> None:
    for one in ("a", "b"):
        site.install(
            f"{one}-acme", plugins={f"{one}-prune": f"{one}_prune"}, modules={f"{one}_prune": STANDS_IN}
        )
    found = registry()
    assert state(found, "pruner").status == "active"
    assert 'decide with replace.pruner = "a-acme"' in state(found, "a-prune").error
    assert state(found, "b-prune").status == "skipped"

    decided = registry(replace={"pruner": "B_Acme"})
    assert state(decided, "b-prune").status == "active"
    assert state(decided, "pruner").status == "replaced"
    assert "decides for 'b-prune' (b-acme 1.0)" in state(decided, "a-prune").error


def test_a_choice_that_nobody_answers_keeps_the_original(site: Site) -> None:
    site.install("acme-archive", plugins={"archive": "acme_archive"}, modules={"acme_archive": STANDS_IN})
    found = registry(replace={"pruner": "jobkit-queue"})
    assert state(found, "pruner").status == "active"
    assert state(found, "archive").status == "skipped"


def test_a_replacement_that_cannot_work_replaces_nothing(site: Site) -> None:
    lacking = "jobkit_plugin = PluginInfo(api=1, replaces='pruner', requires=['nobody'])\n" + GOOD
    site.install("acme-archive", plugins={"archive": "acme_archive"}, modules={"acme_archive": lacking})
    found = registry()
    assert state(found, "archive").status == "skipped"
    assert state(found, "pruner").status == "active"


def test_plugins_that_replace_each_other_are_both_skipped(site: Site) -> None:
    ring = {
        "one": "jobkit_plugin = PluginInfo(api=1, replaces='two')\n" + GOOD,
        "two": "jobkit_plugin = PluginInfo(api=1, replaces='one')\n" + GOOD,
    }
    site.install("acme", plugins={"one": "one", "two": "two"}, modules=ring)
    found = registry()
    assert [state(found, name).status for name in ("one", "two")] == ["skipped", "skipped"]
    assert "which in turn replaces it" in state(found, "one").error


def test_a_requirement_is_met_by_a_replacement(site: Site) -> None:
    needs = "jobkit_plugin = PluginInfo(api=1, requires=['pruner'])\n" + GOOD
    site.install(
        "acme-archive",
        plugins={"archive": "acme_archive", "needs": "acme_needs"},
        modules={"acme_archive": STANDS_IN, "acme_needs": needs},
    )
    assert state(registry(), "needs").status == "active"


def test_a_disabled_plugin_is_not_even_imported(site: Site) -> None:
    site.install("acme", plugins={"off": "acme_off"}, modules={"acme_off": "raise SystemExit"})
    found = registry(disable=["off", "pruner"])
    assert state(found, "off").status == "disabled"
    assert state(found, "pruner").status == "disabled"
    assert "acme_off" not in sys.modules


def test_disabling_a_built_in_disables_what_stands_in_for_it(site: Site) -> None:
    site.install("acme-archive", plugins={"archive": "acme_archive"}, modules={"acme_archive": STANDS_IN})
    assert state(registry(disable=["pruner"]), "archive").status == "disabled"


def test_hooks_of_a_disabled_jobkit_package_are_allowed(site: Site) -> None:
    site.install(
        "acme",
        plugins={"acme": "acme_cleans"},
        modules={"acme_cleans": "@hookimpl\ndef jobkit_cleanups():\n    return []"},
    )
    assert state(registry(disable=["cleanup"]), "acme").status == "active"


def test_a_name_in_the_configuration_that_no_plugin_has_is_reported() -> None:
    assert any(
        "prunner" in line and "did you mean 'pruner'" in line
        for line in registry(disable=["prunner"]).problems
    )


# -- settings --

WITH_SETTINGS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Settings:
    size: int = 3

jobkit_plugin = PluginInfo(api=1, settings=Settings)
"""


def test_settings_are_decoded_into_the_plugins_struct(site: Site) -> None:
    site.install("acme", plugins={"acme": "acme_set"}, modules={"acme_set": WITH_SETTINGS + GOOD})
    assert state(registry(plugins={"acme": {"size": 5}}), "acme").settings.size == 5  # type: ignore[attr-defined]


def test_wrong_settings_are_the_users_error_and_name_the_key(site: Site) -> None:
    site.install("acme", plugins={"acme": "acme_set"}, modules={"acme_set": WITH_SETTINGS + GOOD})
    with pytest.raises(ConfigError, match=r"plugins\.acme\.size"):
        _ = registry(plugins={"acme": {"size": "many"}}).plugins


def test_a_plugin_that_lacks_settings_nobody_gave_is_skipped(site: Site) -> None:
    source = WITH_SETTINGS.replace("size: int = 3", "size: int")
    site.install("acme", plugins={"acme": "acme_set"}, modules={"acme_set": source + GOOD})
    found = state(registry(), "acme")
    assert found.status == "skipped"
    assert "'size'" in found.error


def test_settings_of_a_replaced_plugin_are_those_of_its_replacement(site: Site) -> None:
    source = WITH_SETTINGS.replace("api=1", "api=1, replaces='pruner'")
    site.install("acme", plugins={"pruner": "acme_set"}, modules={"acme_set": source + GOOD})
    found = registry(plugins={"pruner": {"size": 7}})
    assert state(found, "pruner", "acme").settings.size == 7  # type: ignore[attr-defined]


# -- workers --


@worker(name="greet")
def greet(name: str) -> None: ...


@worker(name="greet")
def greet_again(name: str) -> None: ...


def test_PL7_two_workers_of_one_name_in_code_are_an_error_that_names_both_places() -> None:
    with pytest.raises(WorkerDefinitionError, match=r"'greet'.*greet .*greet_again"):
        Registry(Config(database_url="sqlite:///x.db"), workers=[greet, greet_again])


def test_PL7_the_same_worker_may_be_given_twice() -> None:
    found = Registry(Config(database_url="sqlite:///x.db"), workers=[greet, greet.worker])
    assert found.resolve("greet") is greet.worker


def test_a_second_worker_added_later_is_refused_too() -> None:
    found = registry()
    found.add_worker(greet)
    with pytest.raises(WorkerDefinitionError):
        found.add_worker(greet_again)


def test_nothing_is_known_by_merely_being_defined() -> None:
    assert "greet" not in registry().workers
    assert registry().resolve("greet") is None


WORKERS = """
@worker(name="paint")
def paint(colour: str) -> None: ...

class Scrub(Worker, name="scrub"):
    floor: int

    def perform(self, job): ...
"""


def test_entry_points_bring_workers_that_are_imported_only_when_needed(site: Site) -> None:
    site.install(
        "acme-home",
        "3.0",
        workers={"paint": "acme_home:paint", "scrub": "acme_home:Scrub"},
        modules={"acme_home": WORKERS},
    )
    found = registry()
    entry = found.workers["paint"]
    assert (entry.place, entry.distribution, entry.version, entry.cls) == (
        "acme_home:paint",
        "acme-home",
        "3.0",
        None,
    )
    assert "acme_home" not in sys.modules
    resolved = found.resolve("scrub")
    assert resolved is not None
    assert resolved.__jobkit__.name == "scrub"
    assert found.workers["scrub"].cls is resolved


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(1)", "SystemExit"),
        ("paint = 7", "WorkerDefinitionError"),
        ("@worker(name='other')\ndef paint(): ...", "it is named 'other'"),
    ],
)
def test_a_broken_worker_breaks_itself_alone(site: Site, source: str, why: str) -> None:
    site.install("acme-bad", workers={"paint": "acme_bad:paint"}, modules={"acme_bad": source})
    site.install("acme-home", workers={"scrub": "acme_home:Scrub"}, modules={"acme_home": WORKERS})
    found = registry()
    with pytest.raises(WorkerUnavailable, match=why):
        found.resolve("paint")
    assert why in found.workers["paint"].error
    assert found.resolve("scrub") is not None


def test_PL7_between_distributions_the_first_by_name_stays_and_the_other_is_reported(site: Site) -> None:
    for one in ("a", "b"):
        site.install(f"{one}-home", workers={"paint": f"{one}_home:paint"}, modules={f"{one}_home": WORKERS})
    found = registry()
    assert found.workers["paint"].distribution == "a-home"
    assert any("'paint' is taken by a_home:paint (a-home 1.0)" in line for line in found.problems)


def test_hooks_bring_workers_and_what_is_none_is_reported(site: Site) -> None:
    source = WORKERS + "\n@hookimpl\ndef jobkit_workers():\n    return [paint, Scrub, 7]\n"
    site.install("acme-home", plugins={"home": "acme_home"}, modules={"acme_home": source})
    found = registry()
    assert {"paint", "scrub"} <= set(found.workers)
    assert any("'home' (acme-home 1.0)" in line and "7" in line for line in found.problems)


def test_a_worker_in_a_hook_and_in_an_entry_point_of_one_distribution_is_one(site: Site) -> None:
    source = WORKERS + "\n@hookimpl\ndef jobkit_workers():\n    return [paint]\n"
    site.install(
        "acme-home",
        plugins={"home": "acme_home"},
        workers={"paint": "acme_home:paint"},
        modules={"acme_home": source},
    )
    assert not [line for line in registry().problems if "paint" in line]


def test_PL7_a_worker_in_code_with_a_distributions_name_is_an_error(site: Site) -> None:
    source = "@worker(name='greet')\ndef other(): ...\n"
    site.install("acme-home", workers={"greet": "acme_greets:other"}, modules={"acme_greets": source})
    found = Registry(Config(database_url="sqlite:///x.db"), workers=[greet])
    with pytest.raises(WorkerDefinitionError, match=r"acme_greets\.other.*acme-home 1\.0"):
        found.load()


def test_imports_bring_every_worker_at_or_below_the_module(site: Site) -> None:
    site.module("shop.__init__", "from shop import jobs\nfrom elsewhere import stray\n")
    site.module("shop.jobs", WORKERS)
    site.module("elsewhere", "@worker\ndef stray(): ...\n")
    site.module("shopping", "@worker\ndef basket(): ...\n")
    __import__("shopping")
    found = registry(imports=["shop"])
    assert {"paint", "scrub"} <= set(found.workers)
    assert not {"stray", "basket"} & set(found.workers)


def test_workers_defined_after_the_first_look_are_found_by_name(site: Site) -> None:
    site.module("late", "")
    found = registry(imports=["late"])
    found.load()
    exec("from jobkit import worker\n@worker\ndef tardy(): ...", sys.modules["late"].__dict__)
    assert found.resolve("tardy") is not None


def test_an_import_that_fails_is_the_users_error(site: Site) -> None:
    site.module("mistyped", "import no_such_thing")
    with pytest.raises(ConfigError, match=r"'mistyped' cannot be imported: ModuleNotFoundError"):
        registry(imports=["mistyped"]).load()


def test_an_imported_module_with_hooks_is_a_plugin(site: Site) -> None:
    site.module("mine", GOOD)
    site.module("plain", WORKERS)
    found = registry(imports=["mine", "plain"])
    assert state(found, "mine").kind == "import"
    assert "plain" not in [s.name for s in found.plugins]


def test_a_module_of_imports_may_import_the_app_that_names_it(site: Site) -> None:
    site.module(
        "the_app",
        "from jobkit.config import Config\nfrom jobkit.registry import Registry\n"
        "found = Registry(Config(database_url='sqlite:///x.db', imports=['the_jobs']))\n",
    )
    site.module("the_jobs", "from the_app import found\n@worker\ndef sweep(): ...\n")
    import the_app  # type: ignore[import-not-found]

    assert "sweep" in the_app.found.workers


# -- schedules, queues, services --


def scheduling(key: str) -> str:
    return f"@hookimpl\ndef jobkit_schedules(config):\n    return [Recurring({key!r}, '@daily', dict)]\n"


class Schedules:
    def __init__(self, key: str) -> None:
        self.key = key

    @hookimpl
    def jobkit_schedules(self, config: Config) -> list[Recurring]:
        return [Recurring(self.key, "@daily", Nothing())]


class Nothing(Worker):
    def perform(self, job: Any) -> None: ...


def test_CT7_a_repeated_key_in_code_is_refused_naming_both_origins(site: Site) -> None:
    site.install("acme", plugins={"acme": "acme_plan"}, modules={"acme_plan": scheduling("nightly")})
    found = Registry(Config(database_url="sqlite:///x.db"), plugins=[Schedules("nightly")])
    with pytest.raises(ScheduleError, match=r"'nightly' is used by 'acme' \(acme 1\.0\) and by 'Schedules'"):
        found.schedules()


def test_CT7_between_distributions_the_first_by_name_keeps_the_key_and_the_other_is_reported(
    site: Site,
) -> None:
    for one in ("b", "a"):
        site.install(
            f"{one}-acme", plugins={one: f"{one}_plan"}, modules={f"{one}_plan": scheduling("nightly")}
        )
    found = registry()
    origins = {entry.recurring.key: entry.origin for entry in found.schedules()}
    assert origins["nightly"] == "'a' (a-acme 1.0)"
    assert any("'nightly'" in line and "b-acme" in line for line in found.problems)


def test_a_plugin_whose_schedules_are_wrong_loses_those_alone(site: Site) -> None:
    bad = "@hookimpl\ndef jobkit_schedules(config):\n    return [Recurring('x', 'every day', dict)]\n"
    odd = (
        "@hookimpl\ndef jobkit_schedules(config):\n    yield Recurring('kept', '@daily', dict)\n    yield 7\n"
    )
    site.install("a-acme", plugins={"bad": "a_plan", "odd": "b_plan"}, modules={"a_plan": bad, "b_plan": odd})
    found = registry()
    assert "kept" in [entry.recurring.key for entry in found.schedules()]
    assert state(found, "bad").failures == 1
    assert state(found, "odd").failures == 1


def test_queues_are_the_configured_ones_and_then_those_of_plugins(site: Site) -> None:
    source = "@hookimpl\ndef jobkit_queues(config):\n    return {'default': 99, 'media': 2, 'bad': -1}\n"
    site.install("acme", plugins={"acme": "acme_queues"}, modules={"acme_queues": source})
    found = registry(queues="default:7")
    assert found.queues() == {"default": QueueConfig(7), "media": QueueConfig(2)}
    assert state(found, "acme").failures == 1


def test_a_queue_of_a_plugin_needs_a_name_that_queues_may_have(site: Site) -> None:
    source = "@hookimpl\ndef jobkit_queues(config):\n    return {'media': 2, 'no name': 1}\n"
    site.install("acme", plugins={"acme": "acme_names"}, modules={"acme_names": source})
    found = registry(queues="default:7")
    assert list(found.queues()) == ["default", "media"]
    assert "'no name' is no name" in state(found, "acme").last_failure


def test_services_come_with_their_plugins_names_and_a_raising_plugin_has_none(site: Site) -> None:
    good = (
        "@hookimpl\ndef jobkit_services(app, node):\n    return [Service('tick', 5, lambda conn, now: 0)]\n"
    )
    bad = "@hookimpl\ndef jobkit_services(app, node):\n    return [Service('tick', 0, lambda conn, now: 0)]\n"
    site.install(
        "acme", plugins={"good": "svc_good", "bad": "svc_bad"}, modules={"svc_good": good, "svc_bad": bad}
    )
    found = registry(disable=list(BUILT_IN))
    services = found.services(None, None)  # type: ignore[arg-type]
    assert [(plugin, service.name, service.seconds) for plugin, service in services] == [
        ("good", "tick", 5.0)
    ]
    assert "must be more than 0" in state(found, "bad").last_failure


# -- plugins given in code --


def test_a_plugin_may_be_added_later_and_is_asked_first() -> None:
    found = given("a")
    assert found.fold("jobkit_job_inserting", "job") == "joba"
    before = found.revision
    found.add_plugin(Answers("z"), name="late")
    assert found.fold("jobkit_job_inserting", "job") == "jobza"
    assert found.revision > before


def test_a_plugin_added_later_may_replace_a_built_in() -> None:
    class Archive:
        from jobkit import PluginInfo

        jobkit_plugin = PluginInfo(api=1, replaces="pruner")

        @hookimpl
        def jobkit_event(self, event: object) -> None: ...

    found = registry()
    assert state(found, "pruner").status == "active"
    found.add_plugin(Archive())
    assert state(found, "pruner").status == "replaced"


def test_two_registries_share_nothing() -> None:
    one, two = registry(), registry()
    one.add_worker(greet)
    one.add_plugin(Answers("a"), name="only-one")
    assert "greet" not in two.workers
    assert "only-one" not in [s.name for s in two.plugins]
