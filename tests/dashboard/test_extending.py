"""What other distributions add: the sample one, and broken ones that break nothing but themselves."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobkit import Jobkit, hookimpl
from jobkit.hookspecs import Actor
from jobkit_dashboard import Dashboard
from jobkit_dashboard.extend import Action, Asset, NavItem, Panel, PluginPage, PluginRoute
from tests.dashboard.support import MARKUP, Client, by_header, make_app

SAMPLE = Path(__file__).parents[2] / "examples" / "dashboard_panel"


@pytest.fixture
def sample(app: Jobkit, ids: list[int]) -> Iterator[Client]:
    """The sample distribution's plugin, in a dashboard."""
    sys.path.insert(0, str(SAMPLE))
    from dashboard_panel import plugin  # type: ignore[import-not-found]

    plugin.notes.clear()
    app.registry.add_plugin(plugin, "notes")
    yield Client(Dashboard(app, auth=by_header))
    sys.path.remove(str(SAMPLE))


def test_the_sample_adds_a_page_a_panel_an_action_and_a_style_sheet(sample: Client, ids: list[int]) -> None:
    page = sample.get("/x/notes/")
    assert page.status_code == 200
    assert "No notes yet" in page.text
    assert '<a href="/x/notes/"' in sample.get("/jobs").text
    sheet = re.search(r'href="(/-/static/[0-9a-f]+/notes.css)"', page.text)
    assert sheet and sample.get(sheet[1]).status_code == 200
    sample.follow(sample.post("/x/notes/add", {"job": str(ids[0]), "text": MARKUP}))
    job = sample.get(f"/jobs/{ids[0]}").text
    assert '<ul class="notes">' in job
    assert "<script>alert" not in job
    assert "Note it" in job
    ask = sample.post(f"/jobs/{ids[0]}/do/notes/note")
    assert "Note the state" in ask.text
    done = sample.follow(sample.post(f"/jobs/{ids[0]}/do/notes/note", {"sure": "1"}))
    assert "saw it available" in done.text
    assert "notes.note" in sample.get("/audit").text


def test_the_sample_s_permissions_hold(sample: Client, ids: list[int]) -> None:
    viewer = Client(sample.http.app._dash, "viewer")  # type: ignore[attr-defined]
    assert viewer.get("/x/notes/").status_code == 200
    assert viewer.post("/x/notes/add", {"job": "1", "text": "x"}).status_code == 403
    assert viewer.post(f"/jobs/{ids[0]}/do/notes/note", {"sure": "1"}).status_code == 404
    assert "Note it" not in viewer.get(f"/jobs/{ids[0]}").text
    forged = sample.http.post(
        "/x/notes/add", content="job=1&text=x", headers={"sec-fetch-site": "cross-site"}
    )
    assert forged.status_code == 403


class Broken:
    """Does everything wrong that a plugin can do wrong."""

    @hookimpl
    def jobkit_authorize(self, actor: Any, action: str) -> bool | None:
        return True if action.startswith("broken.") else None

    @hookimpl
    def jobkit_dashboard_nav(self) -> list[Any]:
        def badge() -> str:
            raise RuntimeError("no badge")

        return [NavItem("b", "Broken", "broken.view", badge=badge), "nonsense"]

    @hookimpl
    def jobkit_dashboard_routes(self) -> list[PluginRoute]:
        def page(ctx: Any) -> Any:
            raise RuntimeError("no page")

        def odd(ctx: Any) -> Any:
            return "<b>html</b>"

        def missing(ctx: Any) -> PluginPage:
            return PluginPage("Missing", template="missing.html")

        return [
            PluginRoute("", page, "broken.view"),
            PluginRoute("odd", odd, "broken.view"),
            PluginRoute("missing", missing, "broken.view"),
        ]

    @hookimpl
    def jobkit_dashboard_panels(self, ctx: Any, job: Any) -> list[Panel]:
        def fails() -> dict[str, object]:
            raise RuntimeError("no panel")

        def hangs() -> dict[str, object]:
            time.sleep(0.6)
            return {}

        return [
            Panel("fails", "Fails", "broken.view", fails),
            Panel("hangs", "Hangs", "broken.view", hangs),
            Panel("good", "Good", "broken.view", lambda: {"answer": MARKUP}),
            Panel("hidden", "Hidden", "broken.never_given", lambda: {"answer": "hidden"}, order=1),
        ]

    @hookimpl
    def jobkit_dashboard_job_actions(self, ctx: Any, job: Any) -> list[Action]:
        raise RuntimeError("no actions")

    @hookimpl
    def jobkit_dashboard_assets(self) -> list[Asset]:
        return [Asset("css", "no.such.package", "x.css")]

    @hookimpl
    def jobkit_dashboard_authenticate(self, request: Any) -> Actor | None:
        raise RuntimeError("no idea")


@pytest.fixture
def broken(app: Jobkit, ids: list[int]) -> Client:
    app.registry.add_plugin(Broken(), "broken")
    return Client(Dashboard(app, auth=by_header))


def test_a_broken_plugin_breaks_its_own_parts_only(broken: Client, ids: list[int]) -> None:
    page = broken.get(f"/jobs/{ids[0]}")
    assert page.status_code == 200
    assert "Panel fails of the plugin broken: it failed" in page.text
    assert "Panel hangs of the plugin broken: it failed" in page.text
    assert "&lt;script&gt;alert(1)" in page.text
    assert broken.get("/jobs").status_code == 200
    for path in ("/x/broken/", "/x/broken/odd"):
        answer = broken.get(path)
        assert answer.status_code == 502
        assert "the page failed" in answer.text
    assert "could not be drawn" in broken.get("/x/broken/missing").text
    assert broken.get("/x/broken/nothing").status_code == 404
    stranger = Client(broken.http.app._dash, None)  # type: ignore[attr-defined]
    assert stranger.get("/jobs").status_code == 401


def test_its_failures_stand_on_the_plugins_page(broken: Client, ids: list[int]) -> None:
    broken.get(f"/jobs/{ids[0]}")
    text = broken.get("/plugins").text
    assert "broken" in text
    assert re.search(r"\d+ failures? in this process", text)


def test_a_plugin_that_cannot_be_loaded_is_named_with_the_reason(tmp_path: Path) -> None:
    class Misspelt:
        @hookimpl
        def jobkit_dashboard_panel(self) -> None: ...

    app = make_app(f"sqlite:///{tmp_path / 'x.db'}", plugins=(Misspelt(),))
    text = Client(Dashboard(app, auth=by_header)).get("/plugins").text
    assert "Misspelt" in text
    assert "jobkit_dashboard_panels" in text


def test_plugins_can_vouch_for_people(app: Jobkit, ids: list[int]) -> None:
    class Knows:
        @hookimpl
        def jobkit_dashboard_authenticate(self, request: Any) -> Actor | None:
            name = request.headers.get("x-badge")
            return Actor(name, name, "web", frozenset({"viewer"})) if name else None

    app.registry.add_plugin(Knows(), "knows")
    client = Client(Dashboard(app, auth=by_header), None)
    assert client.get("/jobs").status_code == 401
    assert client.get("/jobs", **{"x-badge": "ana"}).status_code == 200


@pytest.mark.parametrize(
    "bad", [{"id": "A B"}, {"permission": ""}, {"permission": "x"}, {"path": "../x"}, {"path": "a//b"}]
)
def test_what_plugins_give_is_checked(bad: dict[str, str]) -> None:
    given = {"id": "ok", "label": "Ok", "permission": "a.b", "path": "", **bad}
    with pytest.raises(ValueError):
        NavItem(**given)  # type: ignore[arg-type]
