"""The health report, the settings page's words on redaction, and links to plugins' documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobkit import Jobkit
from jobkit.config import Config
from jobkit_dashboard import Dashboard
from jobkit_dashboard.links import docs_of, web_address
from tests.dashboard.support import SECRET, TOKEN, Client, by_header, hostile_fleet, make_app, seed

PATTERN = "ACME-[0-9]{6}"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Jobkit]:
    """An app whose settings hold secrets, and rules of its own."""
    config = Config(
        redaction={"keys": ["shoe_size"], "patterns": [PATTERN], "allow": ["args.token_count"]},
        plugins={"acme": {"api_key": SECRET, "endpoint": f"https://u:{SECRET}@acme.example/?token={TOKEN}"}},
    )
    app = make_app(f"sqlite:///{tmp_path / 'jobkit.db'}", config=config)
    yield app
    app.close()


def told(client: Client) -> dict[str, Any]:
    answer = client.get("/settings/report")
    assert answer.status_code == 200
    found: dict[str, Any] = json.loads(answer.text)
    return found


def test_the_health_report_is_a_file_with_what_a_bug_report_needs(admin: Client) -> None:
    answer = admin.get("/settings/report")
    assert answer.headers["content-disposition"] == 'attachment; filename="jobkit-health.json"'
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    found = answer.json()
    assert {"jobkit", "tables", "database", "python", "libraries"} <= set(found["versions"])
    assert found["versions"]["tables"].isdecimal()
    assert any(finding["fix"] for finding in found["health"]["findings"])
    assert "host-a:17:n1" in {node["node"] for node in found["nodes"]}
    assert "mail" in {queue["name"] for queue in found["queues"]}
    assert "heartbeat" in {plugin["name"] for plugin in found["plugins"]}
    assert found["settings"]["dead_after"] == "15s"
    assert "jwt" in found["redaction"]


def test_secrets_leave_by_no_health_report(guarded: Jobkit) -> None:
    seed(guarded, hostile=True)
    hostile_fleet(guarded)
    text = Client(Dashboard(guarded, auth=by_header)).get("/settings/report").text
    for hidden in (SECRET, TOKEN, "ACME-", "\u202e", "\x1b"):
        assert hidden not in text
    assert json.loads(text)["settings"]["redaction.patterns"] == 1


def test_the_health_report_is_redacted_where_redaction_is_off(tmp_path: Path) -> None:
    config = Config(redaction="off", plugins={"acme": {"note": f"Bearer {TOKEN}"}})
    app = make_app(f"sqlite:///{tmp_path / 'jobkit.db'}", config=config)
    client = Client(Dashboard(app, auth=by_header))
    assert TOKEN not in client.get("/settings/report").text
    assert told(client)["redaction"] == []
    assert "<dd>OFF</dd>" in client.get("/settings").text
    app.close()


def test_a_health_report_holds_only_what_its_reader_may_see(app: Jobkit, ids: list[int]) -> None:
    from jobkit import hookimpl

    class Blind:
        @hookimpl
        def jobkit_authorize(self, action: str) -> bool | None:
            return False if action in ("view.nodes", "view.plugins") else None

    app.core.registry.add_plugin(Blind(), "blind")
    found = told(Client(Dashboard(app, auth=by_header), "viewer"))
    assert found["nodes"] is None and found["plugins"] is None and found["settings"] is None
    assert found["queues"]
    assert Client(Dashboard(app, auth=by_header), None).get("/settings/report").status_code == 401


def test_the_settings_page_names_the_rules_in_force_and_no_pattern(guarded: Jobkit) -> None:
    page = Client(Dashboard(guarded, auth=by_header)).get("/settings").text
    for rule in ("key names", "private keys", "vendor tokens", "shoe_size", "args.token_count"):
        assert rule in page
    assert "patterns of this installation: 1" in page
    assert "ACME" not in page
    assert 'href="/settings/report"' in page


# -- links to documentation


def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> str:
    name = "acme-jobs"
    folder = tmp_path / "acme_jobs-1.0.dist-info"
    folder.mkdir()
    head = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *lines]
    (folder / "METADATA").write_text("\n".join(head) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    docs_of.cache_clear()
    return name


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["Project-URL: Documentation, https://docs.example/"], "https://docs.example/"),
        (
            ["Project-URL: Homepage, http://a.example", "Project-URL: Docs, https://b.example"],
            "https://b.example",
        ),
        (["Project-URL: home-page, https://c.example"], "https://c.example"),
        (["Home-page: https://d.example/x?y=1"], "https://d.example/x?y=1"),
        (
            ["Project-URL: Documentation, javascript:alert(1)", "Home-page: https://e.example"],
            "https://e.example",
        ),
        (["Project-URL: Changelog, https://f.example"], None),
        ([], None),
    ],
)
def test_the_documentation_of_a_plugin_is_what_its_distribution_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], found: str | None
) -> None:
    assert docs_of(distribution(tmp_path, monkeypatch, *lines)) == found


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)", "data:text/html,x", "ftp://a.example", "//a.example", "https://", "https:///x",
        "https://u:p@a.example", 'https://a.example/"x', "https://a.example/\u202e", "https://a.example/ x",
        "https://a.example:99999/", "https://a.example:x/", "https://[::1", "https://a.example/" + "x" * 600, "",
    ],
)  # fmt: skip
def test_only_plain_web_addresses_become_links(text: str) -> None:
    assert web_address(text) is None


def test_a_distribution_that_is_not_installed_has_no_documentation() -> None:
    assert docs_of("no-such-distribution-at-all") is None


def test_the_plugins_page_links_documentation_and_vouches_for_nothing(
    app: Jobkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobkit_dashboard.views.system.docs_of", lambda name: "https://docs.example/?a=1&b=2")
    answer = Client(Dashboard(app, auth=by_header)).get("/plugins")
    assert answer.headers["x-dns-prefetch-control"] == "off"
    page = answer.text
    assert "preconnect" not in page and "prefetch" not in page
    assert '<a href="https://docs.example/?a=1&amp;b=2" rel="noopener noreferrer external">' in page
