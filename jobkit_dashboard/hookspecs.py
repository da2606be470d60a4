"""The hooks that the dashboard adds for others to implement.

Every one is *isolated*: an implementation that raises, answers with something else, or takes longer than 200 ms is
logged with its plugin's name, counted on the plugins page, and left out; the page is drawn all the same. All run in a
thread of the dashboard's. Pages of other distributions need no extra: mark hooks with `optionalhook=True` where the
plugin must also work without the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jobkit.hookspecs import Actor, hookspec

if TYPE_CHECKING:
    from jobkit.admin.views import JobDetail
    from jobkit_dashboard.extend import Action, Asset, NavItem, Panel, PluginContext, PluginRoute


@hookspec
def jobkit_dashboard_nav() -> Iterable[NavItem] | None:
    """Give links for the navigation, each with the permission that it needs. Asked once per dashboard. Since api 1."""


@hookspec
def jobkit_dashboard_routes() -> Iterable[PluginRoute] | None:
    """Give pages under `R/x/PLUGIN/`. Asked once per dashboard; a handler has two seconds. Since api 1."""


@hookspec
def jobkit_dashboard_panels(ctx: PluginContext, job: JobDetail) -> Iterable[Panel] | None:
    """Give panels for a job's page; all that `job` holds is redacted. Asked at each drawing. Since api 1."""


@hookspec
def jobkit_dashboard_job_actions(ctx: PluginContext, job: JobDetail) -> Iterable[Action] | None:
    """Give actions for a job's page. Asked at each drawing and again before one runs. Since api 1."""


@hookspec
def jobkit_dashboard_assets() -> Iterable[Asset] | None:
    """Give style sheets and ES modules; the strict content policy holds for them too. Asked once. Since api 1."""


@hookspec
def jobkit_dashboard_authenticate(request: object) -> Actor | None:
    """Say who sends a request (a Starlette `HTTPConnection`), where the dashboard's own `auth=` does not know.

    The first answer that is no None wins. Raising counts as None. Since api 1.
    """
