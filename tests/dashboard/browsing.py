"""A real browser that notices what must not happen: console errors, policy reports, requests to anywhere else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from jobkit import Jobkit

CHROMIUM = Path("/usr/bin/chromium")
BUILD = Path(__file__).parents[2] / "build"
SCREENSHOTS = BUILD / "screenshots"
AXE_SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.test 127.0.0.1",
]

# In a page before anything else: remembers each policy report.
_WATCH = """
window.__reports = [];
document.addEventListener('securitypolicyviolation', (e) =>
    window.__reports.push(e.violatedDirective + ' ' + e.blockedURI));
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium; without one tests are skipped, but never where CI is set."""
    if not CHROMIUM.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{CHROMIUM} is missing")
        pytest.skip(f"{CHROMIUM} is missing")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGS)
        yield browser
        browser.close()


def axe_source() -> str:
    """axe-core, fetched once from the npm registry and kept under build/."""
    BUILD.mkdir(exist_ok=True)
    archive = BUILD / "axe-core-4.14.1.tgz"
    if not archive.exists() or hashlib.sha256(archive.read_bytes()).hexdigest() != AXE_SHA256:
        subprocess.run(
            ["npm", "pack", "--silent", "axe-core@4.14.1"],
            cwd=BUILD,
            check=True,
            capture_output=True,
            timeout=120,
        )
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == AXE_SHA256
    with tarfile.open(archive) as tar:
        member = tar.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


class Site:
    """A dashboard that is being served."""

    def __init__(self, app: Jobkit, ids: list[int], base: str) -> None:
        self.app, self.ids, self.base = app, ids, base

    def set(self, job_id: int, **values: Any) -> None:
        jobs = self.app.tables.jobs
        with self.app.engine.begin() as conn:
            conn.execute(sa.update(jobs).where(jobs.c.id == job_id).values(**values))

    def state(self, job_id: int) -> str | None:
        jobs = self.app.tables.jobs
        with self.app.engine.connect() as conn:
            return conn.scalar(sa.select(jobs.c.state).where(jobs.c.id == job_id))


class Watched:
    """A tab whose misdeeds are kept; `base` is where the dashboard stands."""

    def __init__(self, context: BrowserContext, base: str, *, scripts: bool = True) -> None:
        self.base = base
        self.misdeeds: list[str] = []
        self.dialogs = 0
        self.scripts = scripts
        if scripts:
            context.add_init_script(_WATCH)
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.misdeeds.append(f"error: {error}"))
        self.page.on("request", self._request)
        self.page.on("dialog", self._dialog)
        self.quiet = False

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not self.quiet:
            self.misdeeds.append(f"{message.type}: {message.text}")

    def _request(self, request: Any) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.base).netloc:
            self.misdeeds.append(f"foreign request: {request.url}")

    def _dialog(self, dialog: Any) -> None:
        self.dialogs += 1
        dialog.dismiss()

    def go(self, path: str) -> Page:
        """Open a page below the root."""
        answer = self.page.goto(self.base + path)
        assert answer is not None and answer.status == 200, (path, answer and answer.status)
        return self.page

    def check(self) -> None:
        """Nothing that must not happen has happened."""
        if self.scripts:
            self.misdeeds += self.page.evaluate("window.__reports || []")
        assert not self.misdeeds
        assert self.dialogs == 0

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        return int(
            self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        )

    def axe(self, source: str) -> list[str]:
        """What axe finds, in words."""
        self.page.evaluate(source)
        result = self.page.evaluate(
            "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],"
            " resultTypes: ['violations']})"
        )
        return [
            f"{v['id']}: {v['nodes'][0]['html'][:160]} {v['nodes'][0]['failureSummary'][:200]}"
            for v in result["violations"]
        ]

    def shot(self, name: str) -> None:
        """Keep a picture for people to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
