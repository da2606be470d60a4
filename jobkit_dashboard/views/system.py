"""Pages about the installation: plugins, audit, settings; and pages that plugins bring."""

from __future__ import annotations

from jobkit.admin.errors import NotFound, NotPermitted
from jobkit_dashboard.context import Context
from jobkit_dashboard.extend import GoTo, PluginPage
from jobkit_dashboard.links import docs_of
from jobkit_dashboard.prefs import CHOICES, zones
from jobkit_dashboard.replies import Cookie, Download, Page, Redirect, Reply
from jobkit_dashboard.report import NAME, redaction_rules, report, retention
from jobkit_dashboard.times import parse_local
from jobkit_dashboard.version import schema_version, version
from jobkit_dashboard.words import say

__all__ = [
    "audit_page",
    "health_report",
    "plugin_page",
    "plugins_page",
    "revoke",
    "save_settings",
    "settings_page",
]

_YEAR = 365 * 24 * 3600


def plugins_page(ctx: Context) -> Page:
    """`R/plugins`: what is loaded, and what is not, with the reason."""
    views = ctx.reads.plugins()
    states = {state.name: state for state in ctx.app.registry.plugins}
    rows = [
        (view, states.get(view.name), docs_of(view.distribution) if view.distribution else None)
        for view in views
    ]
    return Page(
        "plugins.html",
        say("Plugins"),
        {"rows": rows, "problems": ctx.app.registry.problems},
        nav="plugins",
    )


def audit_page(ctx: Context) -> Page:
    """`R/audit`."""
    query, zone = ctx.query, ctx.prefs.tz
    before = query.get("before", "")
    found = ctx.reads.audit(
        actor=query.text("actor", 200) or None,
        action=query.text("action", 100) or None,
        result=query.text("result")
        if query.text("result") in ("ok", "denied", "conflict", "failed")
        else None,
        since=parse_local(query.text("since"), zone),
        until=parse_local(query.text("until"), zone),
        before_id=int(before) if before.isdecimal() and len(before) < 20 else None,
    )
    filters = {name: query.text(name, 200) for name in ("actor", "action", "result")}
    # What is no time is not put back into the field either: browsers would warn of it.
    filters |= {
        name: query.text(name) if parse_local(query.text(name), zone) else "" for name in ("since", "until")
    }
    return Page("audit.html", say("Audit"), {"found": found, "filters": filters}, nav="audit")


def settings_page(ctx: Context) -> Page:
    """`R/settings`: personal settings, sessions, and what runs here."""
    from sqlalchemy import __version__ as sqlalchemy_version

    from jobkit.config import mask_url

    sessions = ctx.dash.store.living("session") if ctx.dash.has_login and ctx.may("sessions.revoke") else ()
    about = [
        ("jobkit", version()),
        ("SQLAlchemy", sqlalchemy_version),
        (say("Tables"), schema_version(ctx)),
        (say("Database"), ctx.app.dialect),
        (say("Finished jobs are kept"), retention(ctx.app)),
    ]
    if ctx.may("view.plugins"):
        about.insert(4, (say("Database URL"), mask_url(ctx.app.config.database_url)))
    data: dict[str, object] = {
        "choices": CHOICES,
        "zones": sorted(zones()),
        "sessions": sessions,
        "about": about,
    }
    data["rules"] = redaction_rules(ctx.app)
    return Page("settings.html", say("Settings"), data, nav="settings")


def health_report(ctx: Context) -> Reply:
    """`R/settings/report`: what a bug report needs, as a file. Changes nothing, so it is no row of the audit."""
    text = report(ctx)
    return Download(NAME, "application/json", lambda: (text,))


def save_settings(ctx: Context) -> Reply:
    """`POST R/settings`: into the cookie; values that are on no list are left out."""
    given = dict(ctx.form)
    if "col" in ctx.form:
        given["columns"] = ",".join(ctx.form.all("col"))
    prefs = ctx.prefs.changed(given)
    back = ctx.back(ctx.form.get("back"), "/settings")
    return Redirect(back, (Cookie("prefs", prefs.cookie() or None, _YEAR),))


def revoke(ctx: Context) -> Reply:
    """`POST R/settings/revoke`: end another session."""
    from jobkit_dashboard.audit import note

    if not ctx.dash.has_login:
        raise NotFound("this dashboard has no sessions of its own")
    handle = ctx.form.text("session", 40)
    if not ctx.dash.store.revoke("session", handle):
        raise NotFound("there is no such session any more")
    note(
        ctx.app,
        ctx.actor,
        "sessions.revoke",
        "ok",
        kind="session",
        ids=(handle,),
        request_id=ctx.request.request_id,
    )
    return Redirect(ctx.url("/settings"))


def plugin_page(ctx: Context) -> Reply:
    """`R/x/{plugin}/{rest}`: a page of a plugin, with its own permission."""
    plugin, path = ctx.values["plugin"], ctx.values.get("rest", "").strip("/")
    route = ctx.dash.plugin_routes.get((plugin, path))
    method = "POST" if ctx.request.method == "POST" else "GET"
    if route is None or method not in route.methods:
        raise NotFound("there is no such page")
    if not ctx.may(route.permission):
        raise NotPermitted(route.permission)
    extensions = ctx.dash.extensions
    given = extensions.context(plugin, ctx)
    answer = extensions.call(plugin, f"page {path or '/'}", lambda: route.handler(given), 2.0)
    if isinstance(answer, GoTo):
        return Redirect(ctx.url(f"/x/{plugin}/{answer.path}"))
    if not isinstance(answer, PluginPage):
        if answer is not None:
            extensions.failed(plugin, "page", TypeError(f"it gave {answer!r:.100}, expected a PluginPage"))
        data = {
            "plugin": plugin,
            "error": say("the page failed; the plugins page tells more"),
            "content": None,
        }
        return Page("plugin_page.html", plugin, data, status=502, nav=plugin)
    shown: dict[str, object] = {"plugin": plugin, "error": "", "content": answer}
    return Page("plugin_page.html", answer.title, shown, nav=plugin)
