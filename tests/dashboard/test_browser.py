"""The dashboard in a real browser: every page looked at, and the flows that need hands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, expect

from jobkit import Jobkit
from jobkit_dashboard import Dashboard
from tests.admin.support import add, row
from tests.dashboard.browsing import Site, Watched
from tests.dashboard.support import always, by_header, hostile_fleet, make_app, proxied, seed, serving
from tests.dashboard.test_pages import hostile_pages
from tests.support.postgres import free_port

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
PREFIX = "/a/b/jobs"


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    """One database, at the root and under a sub-path behind a proxy; nothing is changed in it."""
    app = make_app(f"sqlite:///{tmp_path_factory.mktemp('gallery') / 'jobkit.db'}")
    ids = seed(app)
    root = Dashboard(app, auth=always("admin"), label="prod", colour="red")
    below = Dashboard(app, auth=always("admin"), mount_path=PREFIX)
    with serving(root.asgi) as port, serving(below.asgi) as inner, proxied(inner, PREFIX) as outer:
        yield {
            "root": Site(app, ids, f"http://127.0.0.1:{port}"),
            "sub-path": Site(app, ids, f"http://127.0.0.1:{outer}{PREFIX}"),
        }


@pytest.fixture
def plain(site: Site, browser: Browser) -> Iterator[Watched]:
    """A tab without scripts."""
    context = browser.new_context(java_script_enabled=False)
    watched = Watched(context, site.base, scripts=False)
    yield watched
    watched.check()
    context.close()


def pages(ids: list[int]) -> dict[str, str]:
    return {
        "overview": "/",
        "jobs": "/jobs",
        "jobs-problem": "/jobs?q=quue:mail",
        "jobs-empty": "/jobs?q=queue:none",
        "job-executing": f"/jobs/{ids[2]}",
        "job-retryable": f"/jobs/{ids[3]}",
        "job-discarded": f"/jobs/{ids[5]}",
        "job-new": "/jobs/new",
        "job-edit": f"/jobs/{ids[1]}/edit",
        "confirm": f"/jobs/confirm?only=delete:{ids[0]}",
        "operations": "/operations",
        "queues": "/queues",
        "queue": "/queues/show?name=mail",
        "nodes": "/nodes",
        "node": "/nodes/show?id=host-a:17:n1",
        "cron": "/cron",
        "cron-entry": "/cron/show?key=nightly",
        "plugins": "/plugins",
        "audit": "/audit",
        "settings": "/settings",
    }


def look(
    browser: Browser,
    site: Site,
    axe: str | None,
    scheme: Any,
    width: int,
    *,
    shots: str = "",
    bare: bool = False,
) -> None:
    """Each page: fits, is clean, and (where there is `axe`) accessible. `bare`: its scripts do not load."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    if bare:
        context.route("**/*.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    watched = Watched(context, site.base)
    found: list[str] = []
    for name, path in pages(site.ids).items():
        page = watched.go(path)
        if not bare:
            page.wait_for_function("document.documentElement.classList.contains('scripted')")
        if not bare and page.locator("#refresh-status").count():
            expect(page.locator("#refresh-status")).to_contain_text("updated")
        if watched.overflow() > 0:
            found.append(f"{name}: {watched.overflow()} px too wide")
        found += [f"{name}: {line}" for line in (watched.axe(axe) if axe else ())]
        if shots:
            watched.shot(f"{name}-{scheme}-{width}{shots}")
    watched.check()
    context.close()
    assert not found, "\n".join(found)


def test_every_page_is_clean_and_accessible(browser: Browser, gallery: dict[str, Site], axe: str) -> None:
    look(browser, gallery["root"], axe, "light", 1280)


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_in_every_theme_and_width(
    browser: Browser, gallery: dict[str, Site], axe: str, width: int, scheme: str
) -> None:
    look(browser, gallery["root"], axe, scheme, width, shots="-root")


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_under_a_sub_path_in_every_theme_and_width(
    browser: Browser, gallery: dict[str, Site], axe: str, width: int, scheme: str
) -> None:
    once = axe if (scheme, width) == ("dark", 320) else None
    look(browser, gallery["sub-path"], once, scheme, width)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "scheme", "width"), [("root", "light", 320), ("root", "dark", 768), ("sub-path", "dark", 1280)]
)
def test_every_page_is_whole_and_accessible_where_no_script_runs(
    browser: Browser, gallery: dict[str, Site], axe: str, place: str, scheme: str, width: int
) -> None:
    look(browser, gallery[place], axe, scheme, width, shots="-bare" if place == "root" else "", bare=True)


def test_everything_works_under_a_sub_path_behind_a_proxy(browser: Browser, gallery: dict[str, Site]) -> None:
    site = gallery["sub-path"]
    context = browser.new_context()
    watched = Watched(context, site.base)
    page = watched.go("")
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page).to_have_url(re.compile(f"{PREFIX}/jobs$"))
    page.locator("#q").fill("queue:mail")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile(rf"{PREFIX}/jobs\?q="))
    expect(page.locator("#refresh-status")).to_contain_text("updated")
    watched.go("/settings")
    page.locator("select[name=theme]").select_option("dark")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    watched.check()
    context.close()


# -- without scripts


def test_without_scripts_everything_can_be_read_and_done(plain: Watched, site: Site) -> None:
    page = plain.go("/jobs")
    page.locator(f"#job-{site.ids[5]} input[name=id]").check()
    page.locator(f"#job-{site.ids[6]} input[name=id]").check()
    page.get_by_role("button", name="Retry…", exact=True).and_(page.locator("#bulkbar button")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Retry 2 jobs")
    page.get_by_role("button", name="Retry 2 jobs").click()
    expect(page.locator("main")).to_contain_text("done")
    assert site.state(site.ids[5]) == "available"
    page = plain.go(f"/jobs/{site.ids[1]}")
    page.get_by_role("button", name="Run now").click()
    assert site.state(site.ids[1]) == "available"
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_role("button", name="Cancel 1 job").click()
    assert site.state(site.ids[1]) == "cancelled"
    page = plain.go("/queues")
    page.get_by_role("button", name="Pause mail").click()
    expect(page.locator(".flash")).to_contain_text("is paused")
    page = plain.go("/jobs/new")
    page.locator("input[name=worker]").fill("send_mail")
    page.locator("textarea[name=args]").fill('{"user_id": 9}')
    page.get_by_role("button", name="Insert").click()
    expect(page.locator(".flash")).to_contain_text("was inserted")
    page = plain.go("/jobs")
    page.get_by_text("More filters").click()
    page.locator(".filters input[name=queue]").fill("media")
    page.get_by_role("button", name="Add to the query").click()
    expect(page).to_have_url(re.compile("q=queue%3Amedia"))
    expect(page.locator("tbody tr")).to_have_count(2)


# -- the live refresh


def faster(tab: Watched) -> None:
    tab.go("/jobs").locator("[data-refresh-choice]").select_option("1")


def test_a_refresh_keeps_ticks_focus_typing_and_an_open_menu(tab: Watched, site: Site) -> None:
    faster(tab)
    page = tab.page
    first, second = site.ids[0], site.ids[6]
    page.locator(f"#job-{second} input[name=id]").check()
    page.locator("#q").fill("queue:me")
    page.locator("#q").focus()
    site.set(
        first,
        state="executing",
        attempt=1,
        attempted_by="host-a:17:n1",
        attempted_at=site.app.core.clock.now(),
    )
    row_ = page.locator(f"#job-{first}")
    expect(row_).to_contain_text("now executing", timeout=15_000)
    expect(row_).to_have_class(re.compile("changed"))
    expect(page.locator(f"#job-{second} input[name=id]")).to_be_checked()
    expect(page.locator("#q")).to_have_value("queue:me")
    expect(page.locator("#q")).to_be_focused()
    page.locator("#q").press("Escape")
    page.locator(f"#menu-{second} summary").click()
    expect(page.locator("#refresh-status")).to_contain_text("paused: a menu is open")
    site.set(first, state="completed", completed_at=site.app.core.clock.now())
    page.wait_for_timeout(2_500)
    expect(page.locator(f"#menu-{second}")).to_have_attribute("open", "")
    expect(row_).to_contain_text("now executing")
    page.keyboard.press("Escape")
    expect(row_).to_contain_text("now completed", timeout=15_000)


def test_new_jobs_are_told_and_move_no_row_while_something_is_ticked(tab: Watched, site: Site) -> None:
    faster(tab)
    page = tab.page
    page.locator(f"#job-{site.ids[0]} input[name=id]").check()
    before = page.locator("tbody tr").count()
    add(site.app.core, row(queue="mail"), row(queue="mail"))
    expect(page.locator(".pill")).to_contain_text("2 new", timeout=15_000)
    expect(page.locator("#announce")).to_contain_text("2 new jobs")
    assert page.locator("tbody tr").count() == before
    page.locator(".pill a").click()
    expect(page.locator("tbody tr")).to_have_count(before + 2)


def test_new_jobs_appear_by_themselves_where_nothing_is_touched(tab: Watched, site: Site) -> None:
    faster(tab)
    page = tab.page
    page.mouse.move(5, 5)
    page.evaluate("document.activeElement.blur()")
    (job_id,) = add(site.app.core, row(queue="mail"))
    expect(page.locator(f"#job-{job_id}")).to_be_visible(timeout=15_000)


def test_a_poll_that_finds_nothing_is_204(tab: Watched, site: Site) -> None:
    faster(tab)
    with tab.page.expect_response(
        lambda answer: "/-/live" in answer.url and answer.status == 204, timeout=20_000
    ):
        pass


@pytest.mark.slow
def test_text_that_is_selected_stops_the_refresh(tab: Watched, site: Site) -> None:
    faster(tab)
    tab.page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    expect(tab.page.locator("#refresh-status")).to_contain_text("paused: text is selected")


@pytest.mark.slow
def test_the_interval_stays_across_pages(tab: Watched, site: Site) -> None:
    page = tab.go("/jobs")
    with page.expect_response(lambda answer: answer.url.endswith("/settings")):
        page.locator("[data-refresh-choice]").select_option("30")
    page = tab.go("/queues")
    expect(page.locator("[data-refresh-choice]")).to_have_value("30")


@pytest.mark.slow
def test_a_server_that_is_gone_is_told_in_red(app: Jobkit, ids: list[int], browser: Browser) -> None:
    port = free_port()
    context = browser.new_context()
    with serving(Dashboard(app, auth=always("admin")).asgi, port):
        watched = Watched(context, f"http://127.0.0.1:{port}")
        faster(watched)
        expect(watched.page.locator("#refresh-status")).to_contain_text("updated")
    watched.quiet = True
    expect(watched.page.locator("#refresh-status")).to_contain_text("stale", timeout=20_000)
    expect(watched.page.locator("#trouble")).to_contain_text("Can't reach the server", timeout=40_000)
    with serving(Dashboard(app, auth=always("admin")).asgi, port):
        expect(watched.page.locator("#trouble")).to_be_hidden(timeout=60_000)
    context.close()


@pytest.mark.slow
def test_the_confirmation_survives_the_refresh(tab: Watched, site: Site) -> None:
    faster(tab)
    page = tab.page
    page.wait_for_timeout(5_500)
    page.locator(f"#job-{site.ids[0]} input[name=id]").check()
    page.locator("#bulkbar button[value=delete]").click()
    expect(page.locator("dialog[open] h2").first).to_have_text("Delete 1 job")
    page.wait_for_timeout(2_500)
    expect(page.locator("dialog[open] h2").first).to_have_text("Delete 1 job")
    assert site.state(site.ids[0]) == "available"


# -- keys and completion


def test_rows_and_actions_are_reached_by_key(tab: Watched, site: Site) -> None:
    page = tab.go("/jobs")
    page.wait_for_function("document.documentElement.classList.contains('scripted')")
    for key in ("j", "j", "k"):
        page.keyboard.press(key)
    expect(page.locator("tr.here")).to_have_attribute("data-id", str(site.ids[6]))
    page.keyboard.press("x")
    expect(page.locator(f"#job-{site.ids[6]} input[name=id]")).to_be_checked()
    page.keyboard.press("t")
    expect(page.locator("dialog[open] h2").first).to_have_text("Retry 1 job")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page).to_have_url(re.compile("/queues$"))
    page.wait_for_function("document.documentElement.classList.contains('scripted')")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type(str(site.ids[3]))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/jobs/{site.ids[3]}$"))


@pytest.mark.slow
def test_single_keys_can_be_switched_off_and_never_fire_in_fields(tab: Watched, site: Site) -> None:
    page = tab.go("/jobs")
    page.wait_for_function("document.documentElement.classList.contains('scripted')")
    page.locator("#q").fill("")
    page.locator("#q").press_sequentially("gq?x")
    expect(page.locator("#q")).to_have_value("gq?x")
    assert page.url.endswith("/jobs")
    tab.go("/settings")
    page.locator("select[name=keys]").select_option("off")
    page.get_by_role("button", name="Save").click()
    page.wait_for_load_state()
    page.wait_for_function("document.documentElement.classList.contains('scripted')")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_hidden()


def test_queries_are_completed_by_key(tab: Watched, site: Site) -> None:
    page = tab.go("/jobs")
    field = page.get_by_role("combobox", name="Search jobs")
    field.press_sequentially("que")
    option = page.locator("#q-list [role=option]").first
    expect(option).to_contain_text("queue:")
    field.press("ArrowDown")
    expect(option).to_have_attribute("aria-selected", "true")
    field.press("Enter")
    expect(field).to_have_value("queue:")
    field.press_sequentially("ma")
    expect(page.locator("#q-list [role=option]").first).to_contain_text("queue:mail")
    field.press("Escape")
    expect(page.locator("#q-list")).to_be_hidden()


@pytest.mark.slow
def test_ticks_go_along_to_other_pages_of_the_list(tab: Watched, site: Site) -> None:
    add(site.app.core, *[row(queue="many", state="completed") for _ in range(30)])
    page = tab.go("/jobs?q=queue:many&per=25")
    page.locator("tbody input[name=id]").nth(0).check()
    page.keyboard.down("Shift")
    page.locator("tbody input[name=id]").nth(3).click()
    page.keyboard.up("Shift")
    expect(page.locator("#ticked")).to_have_text("(4)")
    page.get_by_role("link", name="Next").click()
    page.wait_for_function("document.documentElement.classList.contains('scripted')")
    page.locator("tbody input[name=id]").nth(0).check()
    page.locator("#bulkbar button[value=retry]").click()
    expect(page.locator("dialog[open] h2").first).to_have_text("Retry 5 jobs")


# -- attacks


def test_hostile_text_does_nothing_in_a_browser(app: Jobkit, browser: Browser) -> None:
    ids = seed(app, hostile=True)
    hostile_fleet(app)
    with serving(Dashboard(app, auth=always("admin")).asgi) as port:
        context = browser.new_context(viewport={"width": 320, "height": 800})
        watched = Watched(context, f"http://127.0.0.1:{port}")
        # The first jobs are ordinary; of the hostile ones, each with all that its page can show.
        for path in dict.fromkeys(hostile_pages(ids)[:2] + hostile_pages(ids)[9:]):
            page = watched.go(path)
            page.wait_for_function("document.documentElement.classList.contains('scripted')")
            if page.locator("#refresh-status").count():
                expect(page.locator("#refresh-status")).to_contain_text("updated")
            assert watched.overflow() <= 0, path
            watched.check()
        watched.shot("hostile-320")
        context.close()


ATTACK = """<!doctype html><title>attack</title>
<form id=f method=post action="{target}/jobs/{job}/retry"><input name=_token value=guess></form>
<form id=q method=post action="{target}/queues/pause" enctype="text/plain"><input name="name" value="mail"></form>
<iframe id=frame src="{target}/jobs"></iframe><img src="{target}/jobs/{job}/retry">
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "evil.test"])
def test_a_page_of_another_origin_can_do_nothing(
    site: Site, browser: Browser, tmp_path: Path, host: str
) -> None:
    job = site.ids[5]

    async def attacker(scope: Any, receive: Any, send: Any) -> None:
        body = ATTACK.format(target=site.base, job=job).encode()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]}
        )
        await send({"type": "http.response.body", "body": body})

    with serving(attacker) as port:
        context = browser.new_context()
        Watched(context, site.base).go("/jobs")
        page = context.new_page()
        page.goto(f"http://{host}:{port}/")
        assert page.frame_locator("#frame").locator("#jobs-form").count() == 0
        refused = page.evaluate(
            """async ([target, job]) => {
                const post = {method: 'POST', mode: 'no-cors', credentials: 'include'};
                const tries = [
                    [`${target}/jobs/${job}/retry`, {...post, body: new URLSearchParams({_token: 'x'})}],
                    [`${target}/queues/pause`, {...post, body: new URLSearchParams({name: 'mail'})}],
                    [`${target}/jobs`, {credentials: 'include'}],
                ];
                const out = [];
                for (const [url, options] of tries) {
                    try {
                        const answer = await fetch(url, options);
                        out.push(answer.type === 'opaque' ? 'opaque' : await answer.text());
                    } catch (e) { out.push('blocked'); }
                }
                return out;
            }""",
            [site.base, job],
        )
        assert all(text in ("opaque", "blocked") for text in refused)
        with page.expect_navigation() as navigation:
            page.evaluate("document.getElementById('f').submit()")
        assert navigation.value.status == 403
        page.goto(f"http://{host}:{port}/")
        with page.expect_navigation() as navigation:
            page.evaluate("document.getElementById('q').submit()")
        assert navigation.value.status in (403, 415)
        context.close()
    assert site.state(job) == "discarded"


def test_a_rebound_name_gets_no_data(app: Jobkit, ids: list[int], browser: Browser) -> None:
    port = free_port()
    dash = Dashboard(app, auth=always("admin"), allowed_hosts=[f"127.0.0.1:{port}"])
    with serving(dash.asgi, port):
        page = browser.new_page()
        with pytest.raises(Error, match="RESPONSE_CODE_FAILURE"):
            page.goto(f"http://rebound.test:{port}/jobs")
        answer = page.request.get(f"http://127.0.0.1:{port}/jobs", headers={"host": f"rebound.test:{port}"})
        assert (answer.status, answer.text()) == (421, "")
        page.close()


@pytest.mark.slow
def test_forms_work_over_http_on_a_name_that_is_not_loopback(
    app: Jobkit, ids: list[int], browser: Browser
) -> None:
    """Browsers send no Sec-Fetch-Site there, so Origin decides."""
    with serving(Dashboard(app, auth=always("admin")).asgi) as port:
        context = browser.new_context()
        watched = Watched(context, f"http://jobs.test:{port}")
        page = watched.go("/queues")
        watched.quiet = True
        page.get_by_role("button", name="Pause mail").click()
        expect(page.locator(".flash")).to_contain_text("is paused")
        context.close()


def test_somebody_without_a_role_sees_nothing(app: Jobkit, ids: list[int], browser: Browser) -> None:
    with serving(Dashboard(app, auth=by_header).asgi) as port:
        page = browser.new_page()
        answer = page.goto(f"http://127.0.0.1:{port}/jobs")
        assert answer is not None and answer.status == 401
        assert "send_mail" not in page.content()
        page.close()
