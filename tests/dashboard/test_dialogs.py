"""Questions as dialogs over the page, and the toolbar that folds: what scripts add, and what is left without them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.browsing import Site, Watched

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


# -- what asks first


def test_what_asks_first_is_a_dialog_over_the_list(tab: Watched, site: Site, axe: str) -> None:
    page = tab.go("/jobs")
    page.locator("[data-refresh-choice]").select_option("1")
    job = site.ids[5]
    page.locator(f"#job-{job} input[name=id]").check()
    button = page.locator("#bulkbar button[value=delete]")
    button.click()
    dialog = page.locator("dialog[open]")
    expect(dialog.locator("h2").first).to_have_text("Delete 1 job")
    expect(dialog).to_contain_text("send_mail")
    expect(page).to_have_url(re.compile("/jobs$"))
    expect(page.locator("#refresh-status")).to_contain_text("paused: a dialog is open")
    expect(dialog.locator("input[name=reason]")).to_be_focused()
    assert not tab.axe(axe)
    for _ in range(9):  # whichever way round, the focus stays in it
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('dialog') !== null")
    for _ in range(9):
        page.keyboard.press("Shift+Tab")
        assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
    expect(page.locator(f"#job-{job} input[name=id]")).to_be_checked()
    expect(page.locator("#refresh-status")).to_contain_text("updated")
    button.click()
    dialog.get_by_role("link", name="Back").click()
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()
    assert site.state(job) == "discarded"
    page.locator(f"#menu-{job} summary").click()
    page.locator(f"#job-{job} button[value='delete:{job}']").click()
    expect(dialog.locator("h2").first).to_have_text("Delete 1 job")
    page.keyboard.press("Escape")
    expect(page.locator(f"#menu-{job} summary")).to_be_focused()
    button.click()
    dialog.locator("input[name=reason]").fill("no longer needed")
    dialog.get_by_role("button", name="Delete 1 job").click()
    expect(page).to_have_url(re.compile("/operations/1"))
    assert site.state(job) is None


def test_links_and_other_questions_are_dialogs_too(tab: Watched, site: Site) -> None:
    page = tab.go(f"/jobs/{site.ids[1]}")
    page.wait_for_function("document.documentElement.classList.contains('scripted')")
    page.get_by_role("link", name="Cancel…").click()
    dialog = page.locator("dialog[open]")
    expect(dialog.locator("h2").first).to_have_text("Cancel 1 job")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Cancel…")).to_be_focused()
    page = tab.go("/queues/show?name=media")
    page.wait_for_function("document.documentElement.classList.contains('scripted')")
    page.locator("input[name=limit][type=number]").fill("2")
    page.get_by_role("button", name="Scale…").click()
    expect(dialog).to_contain_text("capacity goes from")
    dialog.get_by_role("button", name="Set the limit").click()
    expect(page.locator(".flash")).to_contain_text("capacity is")


@pytest.mark.parametrize("trouble", ["gone", "failed", "other"])
def test_where_the_dialog_cannot_be_had_the_page_is_opened(tab: Watched, site: Site, trouble: str) -> None:
    page = tab.go("/jobs")
    page.wait_for_function("document.documentElement.classList.contains('scripted')")
    tab.quiet = True  # a request that fails is noted by the browser
    wrong = {
        "failed": {"status": 503, "body": "no"},
        "other": {"status": 200, "body": "<h1>Something else</h1>"},
    }

    def meddle(route: Any) -> None:
        if route.request.resource_type != "fetch":
            route.continue_()
        elif trouble == "gone":
            route.abort()
        else:
            route.fulfill(**wrong[trouble])

    page.route("**/jobs/confirm**", meddle)
    page.locator(f"#job-{site.ids[5]} input[name=id]").check()
    page.locator("#bulkbar button[value=retry]").click()
    expect(page).to_have_url(re.compile("/jobs/confirm$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Retry 1 job")
    page.get_by_role("button", name="Retry 1 job").click()
    expect(page).to_have_url(re.compile("/jobs/"))
    assert site.state(site.ids[5]) == "available"


# -- narrow screens


@pytest.mark.parametrize("scripts", [True, False])
def test_the_toolbar_is_folded_where_the_screen_is_narrow(
    site: Site, browser: Browser, scripts: bool
) -> None:
    context = browser.new_context(viewport={"width": 320, "height": 800}, java_script_enabled=scripts)
    watched = Watched(context, site.base, scripts=scripts)
    page = watched.go("/jobs")
    sort, summary = page.locator(".toolbar select[name=sort]"), page.locator(".folded > summary")
    expect(sort).to_be_hidden()
    summary.focus()
    page.keyboard.press("Enter")
    expect(sort).to_be_visible()
    page.locator(".toolbar select[name=per]").select_option("100")
    page.get_by_role("button", name="Apply").click()
    expect(page).to_have_url(re.compile("per=100"))
    page.set_viewport_size({"width": 1000, "height": 800})
    expect(sort).to_be_visible()
    expect(summary).to_be_hidden()
    watched.check()
    context.close()
