"""The way in and out, and what is served without an actor: files, health."""

from __future__ import annotations

import zlib
from typing import Final

from jobkit.admin.errors import AdminError, NotFound
from jobkit.errors import NotMigrated
from jobkit.hookspecs import Actor
from jobkit_dashboard.audit import note
from jobkit_dashboard.context import Context
from jobkit_dashboard.guard.headers import IMMUTABLE
from jobkit_dashboard.guard.limits import Refused
from jobkit_dashboard.guard.redirects import safe_target
from jobkit_dashboard.replies import Cookie, Page, Raw, Redirect, Reply
from jobkit_dashboard.store import ABSOLUTE
from jobkit_dashboard.words import say

__all__ = ["health", "log_in", "log_out", "login_form", "ready", "static"]

_WRONG: Final = say("that did not work: the link was used or is too old, or name and password do not fit")


def login_form(ctx: Context) -> Page:
    """`R/-/login`: with a link's token, a button; else name and password, where there are passwords.

    Looking at it uses nothing up, so that previews and prefetchers cannot take the link away.
    """
    return _form(ctx, ctx.query.text("token", 100), ctx.query.get("next", ""))


def _form(ctx: Context, token: str, after: str, problem: str = "") -> Page:
    sign_in = ctx.dash.sign_in
    data = {
        "token": token,
        "after": after if safe_target(after, ctx.request.root) == after else "",
        "passwords": sign_in is not None and sign_in.users is not None,
        "problem": problem,
    }
    return Page("login.html", say("Sign in"), data, status=401 if problem else 200)


def log_in(ctx: Context) -> Reply:
    """`POST R/-/login`: a new session for a link or a password."""
    address = ctx.request.address or "unknown"
    try:
        ctx.dash.logins.check(address)
    except Refused:
        note(ctx.app, Actor(f"address:{address}", "", "web"), "login", "denied", reason="too many tries")
        raise
    actor = _prove(ctx)
    if actor is None:
        ctx.dash.logins.failed(address)
        note(
            ctx.app, Actor(f"address:{address}", "", "web"), "login", "denied",
            request_id=ctx.request.request_id,
        )  # fmt: skip
        return _form(ctx, "", ctx.form.get("next", ""), _WRONG)
    ctx.dash.logins.succeeded(address)
    _end(ctx)
    ctx.dash.store.sweep()
    secret = ctx.dash.store.make("session", actor, ABSOLUTE, name=address)
    note(ctx.app, actor, "login", "ok", request_id=ctx.request.request_id)
    seconds = int(ABSOLUTE.total_seconds())
    return Redirect(
        safe_target(ctx.form.get("next"), ctx.request.root), (Cookie("session", secret, seconds),)
    )


def _prove(ctx: Context) -> Actor | None:
    token = ctx.form.text("token", 100)
    if token:
        stored = ctx.dash.store.take(token)
        return None if stored is None else stored.actor
    sign_in = ctx.dash.sign_in
    if sign_in is None or sign_in.users is None:
        return None
    return sign_in.users.check(ctx.form.get("name", "")[:200], ctx.form.get("password", "")[:1_000])


def _end(ctx: Context) -> None:
    secret = ctx.request.cookies.get(ctx.dash.cookie_name("session", ctx.request))
    if secret is not None:
        ctx.dash.store.end("session", secret)


def log_out(ctx: Context) -> Reply:
    """`POST R/-/logout`."""
    _end(ctx)
    note(ctx.app, ctx.actor, "logout", "ok", request_id=ctx.request.request_id)
    return Redirect(ctx.url("/-/login"), (Cookie("session", None),))


def health(ctx: Context) -> Reply:
    """`R/-/health`: the process answers. No version, no number."""
    return Raw("ok\n", "text/plain")


def ready(ctx: Context) -> Reply:
    """`R/-/ready`: whether the database can be reached; no reason, for anybody may ask."""
    from jobkit_dashboard.health import reachable

    try:
        up = ctx.dash.samples.get("ready", lambda: reachable(ctx.app)).value
    except (AdminError, NotMigrated):
        up = False
    return Raw("ready\n" if up else "not ready\n", "text/plain", 200 if up else 503)


def static(ctx: Context) -> Reply:
    """`R/-/static/{hash}/{name}`: from a dictionary; the path never reaches a file system."""
    found = ctx.dash.assets.find(ctx.values["hash"], ctx.values["name"])
    if found is None:
        raise NotFound("there is no such file")
    headers = {"cache-control": IMMUTABLE, "etag": f'"{zlib.crc32(found.content):08x}"'}
    return Raw(found.content, found.media_type, headers=headers)
