"""What people do on each page, done by a browser: with scripts and without, at the root and under a sub-path behind a
proxy, light and dark, on wide and narrow screens. One pass through all pages for each of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import sqlalchemy as sa
from playwright.sync_api import Browser, Page, expect

from jobkit import Jobkit
from jobkit_dashboard import Dashboard
from tests.dashboard.browsing import Watched, chromium
from tests.dashboard.support import always, proxied, serving

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]
PREFIX = "/a/b/jobs"
WAYS = [
    ("root", True, "light", 1280),
    ("root", False, "dark", 320),
    ("sub-path", True, "dark", 768),
    ("sub-path", False, "light", 1280),
    ("sub-path", True, "light", 320),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


class Visit:
    """One person's pass through the pages."""

    def __init__(self, tab: Watched, app: Jobkit, ids: list[int]) -> None:
        self.tab, self.app, self.ids = tab, app, ids

    def go(self, path: str) -> Page:
        page = self.tab.go(path)
        if self.tab.scripts:
            page.wait_for_function("document.documentElement.classList.contains('scripted')")
        return page

    def state(self, job_id: int) -> Any:
        jobs = self.app.tables.jobs
        with self.app.engine.connect() as conn:
            return conn.scalar(sa.select(jobs.c.state).where(jobs.c.id == job_id))

    # -- the pages, in an order in which each leaves what the next needs

    def overview(self) -> None:
        page = self.go("/")
        page.locator(".tiles a").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
        expect(page).to_have_url(re.compile(r"state=executing"))

    def search(self) -> None:
        page = self.go("/jobs")
        page.locator("#q").fill("worker:send_mail state:discarded")
        page.locator("#q").press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        page = self.go("/jobs?q=quue:mail")
        expect(page.locator("#problems")).to_contain_text("did you mean")
        page = self.go("/queues")
        if page.viewport_size and page.viewport_size["width"] > 400:
            page.locator(".find-jobs input").fill("queue:media")
            page.locator(".find-jobs button").click()
            expect(page).to_have_url(re.compile("q=queue%3Amedia"))

    def one_job(self) -> None:
        discarded, scheduled = self.ids[5], self.ids[1]
        page = self.go("/jobs?state=discarded")
        page.locator("tbody a.open").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("send_mail")
        page.get_by_role("button", name="Retry", exact=True).click()
        expect(page.locator(".flash")).to_contain_text("Retry: done, 1 done")
        assert self.state(discarded) == "available"
        page = self.go(f"/jobs/{scheduled}/edit")
        page.locator("input[name=priority]").fill("3")
        page.get_by_role("button", name="Show the difference").click()
        expect(page.locator("ins")).to_have_text("3")
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.locator(".flash")).to_contain_text("saved")
        page.get_by_role("button", name="Run now").click()
        assert self.state(scheduled) == "available"
        page.get_by_role("link", name="Delete…").click()
        page.get_by_role("button", name="Delete 1 job").click()
        assert self.state(scheduled) is None

    def insert(self) -> None:
        page = self.go(f"/jobs/new?clone={self.ids[0]}")
        page.get_by_role("button", name="Dry run").click()
        expect(page.locator(".why")).to_contain_text("The row that would be written")
        page.locator("textarea[name=args]").fill('{"user_id": ')
        self.tab.quiet = True  # a refused form is a 422, which browsers note
        page.get_by_role("button", name="Insert").click()
        expect(page.locator(".problem")).to_contain_text("line 1")
        self.tab.quiet = False
        page.locator("textarea[name=args]").fill('{"user_id": 9}')
        page.get_by_role("button", name="Insert").click()
        expect(page.locator(".flash")).to_contain_text("was inserted")

    def many(self) -> None:
        page = self.go("/jobs?q=queue:mail&state=available")
        page.locator("#which-matching").check()
        page.locator("#bulkbar button[value=cancel]").click()
        asked = page.locator("dialog[open]" if self.tab.scripts else "main")
        expect(asked.locator("h2" if self.tab.scripts else "h1").first).to_contain_text("Cancel ")
        typed = page.locator("input[name=count]")
        if typed.count():
            label = page.locator("label", has=typed).inner_text()
            typed.fill(re.findall(r"\d+", label)[0])
        asked.locator("form button").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("operation")
        page = self.go("/operations")
        expect(page.locator("tbody tr").first).to_contain_text("cancel")

    def queues(self) -> None:
        page = self.go("/queues")
        for box in page.locator("tbody input[type=checkbox]").all()[:2]:
            box.check()
        page.locator("#queues-form").get_by_role("button", name="Pause").click()
        expect(page.locator(".flash")).to_contain_text("2 queues paused")
        page = self.go("/queues/show?name=media")
        page.get_by_role("button", name="Resume", exact=True).click()
        expect(page.locator(".flash")).to_contain_text("runs again")
        page.locator("input[name=limit][type=number]").fill("2")
        page.get_by_role("button", name="Scale…").click()
        expect(page.locator("dialog[open]" if self.tab.scripts else "main")).to_contain_text(
            "capacity goes from"
        )
        page.get_by_role("button", name="Set the limit").click()
        expect(page.locator(".flash")).to_contain_text("capacity is")

    def nodes(self) -> None:
        nodes = self.app.tables.nodes
        with self.app.engine.begin() as conn:  # they live, however long the pages before took
            conn.execute(sa.update(nodes).values(heartbeat_at=self.app.core.clock.now()))
        page = self.go("/nodes")
        page.get_by_role("link", name="host-a:17:n1").click()
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.locator(".flash")).to_contain_text("told to pause")
        page.get_by_role("button", name="Drain…").click()
        page.get_by_role("button", name="Drain the node").click()
        expect(page.locator(".flash")).to_contain_text("told to drain")

    def cron(self) -> None:
        page = self.go("/cron")
        page.get_by_role("link", name="nightly").first.click()
        page.get_by_role("button", name="Run now…").click()
        page.get_by_role("button", name="Run now", exact=True).click()
        expect(page.locator(".flash")).to_contain_text("was enqueued")
        page.locator("input[name=reason]").fill("over the holidays")
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.locator(".flash")).to_contain_text("is paused")
        expect(page.locator("#r-entry")).to_contain_text("over the holidays")

    def system(self) -> None:
        page = self.go("/audit")
        page.locator("input[name=action]").fill("queues.*")
        page.get_by_role("button", name="Apply").click()
        expect(page.locator("tbody tr").first).to_contain_text("queues.")
        expect(self.go("/plugins").locator("main")).to_contain_text("heartbeat")
        page = self.go("/settings")
        page.locator("select[name=theme]").select_option("contrast")
        page.locator("select[name=zone]").select_option("Europe/Paris")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "contrast")
        page.get_by_role("button", name="Use the system's theme").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "system")


@pytest.mark.parametrize(("place", "scripts", "scheme", "width"), WAYS)
def test_everything_on_every_page_can_be_done(
    app: Jobkit, ids: list[int], browser: Browser, place: str, scripts: bool, scheme: Any, width: int
) -> None:
    with ExitStack() as stack:
        mount = PREFIX if place == "sub-path" else None
        dash = Dashboard(app, auth=always("admin"), mount_path=mount)
        port = stack.enter_context(serving(dash.asgi))
        if mount:
            port = stack.enter_context(proxied(port, PREFIX))
        context = browser.new_context(
            java_script_enabled=scripts, color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        stack.callback(context.close)
        visit = Visit(Watched(context, f"http://127.0.0.1:{port}{mount or ''}", scripts=scripts), app, ids)
        for step in (
            visit.overview, visit.search, visit.one_job, visit.insert, visit.many, visit.queues, visit.nodes,
            visit.cron, visit.system,
        ):  # fmt: skip
            step()
        visit.tab.check()
