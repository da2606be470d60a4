"""Installed distributions that replace the built-in services, and broken ones, under a real `jobkit run`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.chores import FailsOnce, note
from tests.support.distributions import Site
from tests.support.processes import ROOT, Rig, wait_for

TICKED = """
import os
def ticked(name):
    with open(os.environ["TICKS"], "a") as file:
        file.write(name + "\\n")
"""

REPLACEMENTS = {
    "heartbeat": """
        from acme_ticked import ticked
        jobkit_plugin = PluginInfo(api=1, replaces="heartbeat")

        @hookimpl
        def jobkit_services(app, node):
            def tick(conn, now):
                beat = app.storage.beat(conn, node.id, now=now, queues=dict(node.queues), info={"by": "acme"})
                node.beat(beat is not None)
                ticked("heartbeat")
                return 0
            return [Service("acme-heartbeat", 0.5, tick, thread="own", phase="outer")]
    """,
    "stager": """
        from acme_ticked import ticked
        jobkit_plugin = PluginInfo(api=1, replaces="stager")

        @hookimpl
        def jobkit_services(app, node):
            def tick(conn, now):
                staged = app.storage.stage(conn, now=now, limit=10)
                for queue in staged.queues:
                    node.wake(queue)
                ticked("stager")
                return staged.count
            return [Service("acme-stager", 0.2, tick)]
    """,
    "lifeline": """
        from acme_ticked import ticked
        jobkit_plugin = PluginInfo(api=1, replaces="lifeline")

        @hookimpl
        def jobkit_services(app, node):
            def tick(conn, now):
                rescued = app.storage.rescue(conn, {}, now=now, limit=10, error_text="orphaned, says acme")
                ticked("lifeline")
                return rescued.available + rescued.discarded
            return [Service("acme-lifeline", 0.5, tick)]
    """,
    "cron": """
        from acme_ticked import ticked
        jobkit_plugin = PluginInfo(api=1, replaces="cron")

        @hookimpl
        def jobkit_services(app, node):
            def tick(conn, now):
                ticked("cron")
                return 0
            return [Service("acme-cron", 0.5, tick)]
    """,
    "pruner": """
        from acme_ticked import ticked
        jobkit_plugin = PluginInfo(api=1, replaces="pruner")

        @hookimpl
        def jobkit_services(app, node):
            def tick(conn, now):
                ticked("pruner")
                return app.storage.prune(conn, before=now - timedelta(days=1), limit=10)
            return [Service("acme-pruner", 0.5, tick)]
    """,
}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.fixture
def rig(tmp_path: Path, sqlite_url: str, site: Site) -> Iterator[Rig]:
    made = Rig(tmp_path, sqlite_url)
    yield made
    made.close()


def paths(rig: Rig, site: Site) -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT}:{site.folder}", "TICKS": str(rig.folder / "ticks")}


def plugins(rig: Rig, site: Site, *arguments: str) -> str:
    """What `jobkit plugins` says."""
    command = [sys.executable, "-m", "jobkit", "plugins", "--db", rig.url, *arguments]
    env = {**rig.env, **paths(rig, site), "COLUMNS": "220"}
    done = subprocess.run(command, cwd=rig.folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed(rig: Rig, site: Site) -> list[dict[str, Any]]:
    answer = json.loads(plugins(rig, site, "--json"))
    found: list[dict[str, Any]] = answer if isinstance(answer, list) else answer["items"]
    return found


def ticks(rig: Rig) -> set[str]:
    path = rig.folder / "ticks"
    return set(path.read_text().split()) if path.exists() else set()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(REPLACEMENTS))
def test_a_service_is_replaced_by_installing_a_distribution_that_says_so(
    name: str, rig: Rig, site: Site
) -> None:
    site.module("acme_ticked", TICKED)
    site.install(
        f"acme-{name}",
        "2.1",
        plugins={f"acme-{name}": f"acme_{name}"},
        modules={f"acme_{name}": REPLACEMENTS[name]},
    )
    by_name = {plugin["name"]: plugin for plugin in listed(rig, site)}
    assert by_name[name]["status"] == "replaced"
    assert by_name[f"acme-{name}"]["status"] == "active"
    assert (by_name[f"acme-{name}"]["distribution"], by_name[f"acme-{name}"]["version"]) == (
        f"acme-{name}",
        "2.1",
    )


@pytest.mark.slow
def test_all_five_services_replaced_at_once(rig: Rig, site: Site) -> None:
    site.module("acme_ticked", TICKED)
    for name, source in REPLACEMENTS.items():
        site.install(
            f"acme-{name}", plugins={f"acme-{name}": f"acme_{name}"}, modules={f"acme_{name}": source}
        )
    node = rig.start(**paths(rig, site))
    for name in REPLACEMENTS:
        assert f"acme-{name}" in node.text(), "the banner names the replacement"
    ids = rig.enqueue(note(n=1), FailsOnce(n=2), note(n=3).job(schedule_in=0.3))
    rig.wait_until_final(ids)
    rig.check(ids)
    wait_for("all tick", lambda: ticks(rig) == set(REPLACEMENTS))
    assert [line for line in node.lines(" WARNING | ERROR ") if " job.exception " not in line] == []
    assert node.stop() == 0


BROKEN = {
    "import-error": ("raise ImportError('no such driver')", "no such driver"),
    "leaves": ("raise SystemExit(3)", "SystemExit"),
    "wrong-signature": ("@hookimpl\ndef jobkit_event(event, colour): ...", "colour"),
    "unknown-hook": ("@hookimpl\ndef jobkit_evnt(event): ...", "jobkit_event"),
    "raising-hook": (
        "@hookimpl\ndef jobkit_services(app, node):\n    raise RuntimeError('broken service')",
        "",
    ),
    "raising-observer": ("@hookimpl\ndef jobkit_event(event):\n    raise RuntimeError('broken ears')", ""),
    "raising-tick": (
        "def tick(conn, now):\n    raise RuntimeError('broken tick')\n"
        "@hookimpl\ndef jobkit_services(app, node):\n    return [Service('tick', 0.2, tick)]",
        "",
    ),
}


@pytest.mark.slow
def test_PL1_a_broken_distribution_of_each_kind_breaks_nothing_else_and_is_named(
    rig: Rig, site: Site
) -> None:
    for kind, (source, _) in BROKEN.items():
        module = f"broken_{kind.replace('-', '_')}"
        (site.folder / f"{module}.py").write_text(f"from jobkit import Service, hookimpl\n{source}\n")
        site.install(f"broken-{kind}", plugins={kind: module})
    site.install("broken-nothing", plugins={"to-nothing": "there.is.no.such.module"})
    site.install("broken-attribute", plugins={"to-no-attribute": "json:nothing"})
    site.install("broken-worker", workers={"ghost": "there.is.no.such:Worker"})
    same = "@hookimpl\ndef jobkit_event(event): ..."
    for name in ("one", "two"):
        site.install(f"twin-{name}", plugins={"twin": f"twin_{name}"}, modules={f"twin_{name}": same})
    site.install("broken-pruner", plugins={"pruner": "steals_pruner"}, modules={"steals_pruner": same})

    found = listed(rig, site)
    for kind, (_, words) in BROKEN.items():
        (plugin,) = [plugin for plugin in found if plugin["name"] == kind]
        assert words in json.dumps(plugin), plugin
    status = {(plugin["name"], plugin["distribution"]): plugin["status"] for plugin in found}
    for name in ("import-error", "leaves", "wrong-signature", "unknown-hook"):
        assert status[name, f"broken-{name}"] == "skipped"
    assert status["to-nothing", "broken-nothing"] == "skipped"
    assert status["to-no-attribute", "broken-attribute"] == "skipped"
    assert sorted(status["twin", f"twin-{name}"] for name in ("one", "two")) == ["active", "duplicate"]
    assert status["pruner", "broken-pruner"] == "duplicate"
    assert status["pruner", "jobkit-queue"] == "active"
    text = plugins(rig, site, "--table")
    for name in (*BROKEN, "to-nothing", "to-no-attribute", "twin"):
        assert name in text

    node = rig.start(**paths(rig, site))
    ids = rig.enqueue(note(n=1), FailsOnce(n=2), note(n=3).job(schedule_in=0.3))
    rig.wait_until_final(ids)
    rig.check(ids)
    for name in (*BROKEN, "to-nothing", "to-no-attribute", "twin", "pruner"):
        assert node.lines(f"(WARNING|ERROR).*{name}"), name
    assert node.lines("broken service"), "what a hook raises is told"
    assert len(node.lines("broken tick")) <= 3, "what fails at each tick is told once a minute"
    assert node.stop() == 0
