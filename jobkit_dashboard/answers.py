"""From replies and failures to HTTP answers.

Invariant: every answer passes `secured`; what an error says to people is chosen here, and never holds a traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from jobkit.admin import errors
from jobkit.errors import ArgsError, NotMigrated
from jobkit_dashboard.guard.csrf import SAFE_METHODS
from jobkit_dashboard.guard.headers import NO_STORE, security_headers
from jobkit_dashboard.guard.limits import Refused
from jobkit_dashboard.render import to_json
from jobkit_dashboard.replies import Cookie, Download, Json, Page, Redirect, Reply, Unchanged
from jobkit_dashboard.request import Incoming
from jobkit_dashboard.words import say

if TYPE_CHECKING:
    from jobkit_dashboard.app import Dashboard
    from jobkit_dashboard.context import Context

__all__ = ["Failure", "failed", "failure_of", "nowhere", "response", "secured", "sign_in"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, for people: `code` is the word that JSON errors use."""

    status: int
    code: str
    title: str
    text: str
    hint: str = ""
    retry_after: int | None = None
    allow: str = ""
    expected: bool = True


_SLOW: Final = say("narrow the query or the range of time; on the command line --db-timeout gives it longer")
_TABLE: Final[tuple[tuple[type[Exception], int, str, str, str], ...]] = (
    (errors.NotPermitted, 403, "not_permitted", say("Not permitted"), ""),
    (errors.NotFound, 404, "not_found", say("Not found"), ""),
    (
        errors.Conflict,
        409,
        "conflict",
        say("It has changed meanwhile"),
        say("open the page again to see what it is now"),
    ),
    (errors.Invalid, 422, "invalid", say("This cannot be done"), ""),
    (
        errors.QueryRefused,
        400,
        "query",
        say("The query has problems"),
        say("nothing was searched or changed"),
    ),
    (errors.QueryTimeout, 503, "timeout", say("This took too long"), _SLOW),
    (
        errors.DatabaseUnreachable,
        503,
        "database",
        say("The database cannot be used now"),
        say("look at it with: jobkit doctor"),
    ),
    (
        NotMigrated,
        503,
        "schema",
        say("The tables are not up to date"),
        say("bring them up to date with: jobkit migrate"),
    ),
    (errors.AdminError, 500, "failed", say("This could not be shown"), ""),
    (ArgsError, 422, "invalid", say("The job cannot be inserted"), ""),
)


def failure_of(error: Exception) -> Failure:
    """How an error is told."""
    if isinstance(error, Refused):
        title = HTTPStatus(error.status).phrase
        return Failure(error.status, "refused", title, error.text, retry_after=error.retry_after)
    if isinstance(error, Nowhere):
        return Failure(error.status, "not_found", error.title, error.text, allow=error.allow)
    for kind, status, code, title, hint in _TABLE:
        if isinstance(error, kind):
            retry = 2 if status == 503 else None
            return Failure(status, code, title, str(error), hint, retry)
    text = "something went wrong in here; the log tells more under this request id"
    return Failure(500, "failed", "An error of ours", text, expected=False)


class Nowhere(Exception):
    """There is no such address, or not for this method."""

    def __init__(self, allowed: frozenset[str]) -> None:
        super().__init__("no such page")
        self.status = 405 if allowed else 404
        self.allow = ", ".join(sorted(allowed))
        self.title = "Not that way" if allowed else "There is no such page"
        self.text = (
            f"this address answers {self.allow} only"
            if allowed
            else "check the address, or start from the overview"
        )


def nowhere(allowed: frozenset[str]) -> Nowhere:
    """The error for an address without a route."""
    return Nowhere(allowed)


def failed(ctx: Context, failure: Failure, api: bool) -> Response:
    """The answer for a failure: a page, or JSON of one shape."""
    request_id = ctx.request.request_id
    if api:
        body = {"code": failure.code, "message": failure.text, "hint": failure.hint, "request_id": request_id}
        answer = Response(to_json({"error": body}), failure.status, media_type="application/json")
    else:
        page = Page(
            "error.html", failure.title, {"failure": failure, "request_id": request_id}, failure.status
        )
        answer = Response(_error_page(ctx, page, failure), failure.status, media_type="text/html")
    if failure.retry_after is not None:
        answer.headers["retry-after"] = str(failure.retry_after)
    if failure.allow:
        answer.headers["allow"] = failure.allow
    return answer


def _error_page(ctx: Context, page: Page, failure: Failure) -> str:
    """The page for an error; where even that cannot be drawn, plain words."""
    try:
        return ctx.dash.renderer.page(page, ctx)
    except Exception:  # noqa: BLE001 - the last resort must not fail
        return (
            f"<!doctype html><html lang=en><title>Error</title><h1>Error {failure.status}</h1>"
            f"<p>request {ctx.request.request_id}</p></html>"
        )


def sign_in(ctx: Context) -> Response:
    """To whom nobody vouches: the login page where there is one, else 401."""
    challenge = getattr(ctx.dash.auth, "challenge", None)
    if ctx.request.path.startswith("/api/"):
        failure = Failure(401, "signed_out", "Signed out", "a valid bearer token is needed")
        answer = failed(ctx, failure, True)
        answer.headers["www-authenticate"] = "Bearer"
        return answer
    if ctx.dash.has_login and ctx.request.method in SAFE_METHODS and ctx.request.path != "/-/live":
        here = ctx.here() if ctx.request.path != "/" else None
        return Response(status_code=303, headers={"location": ctx.url("/-/login", next=here)})
    failure = Failure(401, "signed_out", "Signed out", "sign in to see this page")
    answer = failed(ctx, failure, False)
    if challenge:
        answer.headers["www-authenticate"] = challenge
    return answer


def response(ctx: Context, reply: Reply) -> Response:
    """The answer for what a handler gave."""
    if isinstance(reply, Page):
        answer = Response(ctx.dash.renderer.page(reply, ctx), reply.status, media_type="text/html")
    elif isinstance(reply, Redirect):
        answer = Response(status_code=303, headers={"location": reply.url})
        for cookie in reply.cookies:
            set_cookie(ctx.dash, ctx.request, answer, cookie)
    elif isinstance(reply, Json):
        answer = Response(to_json(reply.data), reply.status, media_type="application/json")
    elif isinstance(reply, Unchanged):
        return Response(status_code=204)
    elif isinstance(reply, Download):
        answer = _download(reply)
    else:
        answer = Response(reply.content, reply.status, dict(reply.headers), reply.media_type)
    if isinstance(reply, Page) and ctx.form_token and _token_missing(ctx):
        set_cookie(ctx.dash, ctx.request, answer, Cookie("form", ctx.form_token))
    return answer


def _token_missing(ctx: Context) -> bool:
    return ctx.request.cookies.get(ctx.dash.cookie_name("form", ctx.request)) != ctx.form_token


def _download(reply: Download) -> Response:
    def encoded() -> Iterator[bytes]:
        for chunk in reply.chunks():
            yield chunk.encode("utf-8", "replace")

    name = "".join(char for char in reply.name if char.isascii() and (char.isalnum() or char in "._-"))
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(encoded(), media_type=reply.media_type, headers=headers)


def set_cookie(dash: Dashboard, request: Incoming, answer: Response, cookie: Cookie) -> None:
    """HttpOnly, SameSite=Lax, below our root; `__Host-` where the browser came over TLS."""
    answer.set_cookie(
        dash.cookie_name(cookie.kind, request),
        cookie.value or "",
        max_age=cookie.seconds if cookie.value is not None else 0,
        path="/" if request.secure else request.root or "/",
        secure=request.secure,
        httponly=True,
        samesite="lax",
    )


def secured(dash: Dashboard, request: Incoming | None, answer: Response) -> Response:
    """With the headers that every answer carries."""
    headers = security_headers(frame_ancestors=dash.frame_ancestors, hsts=dash.own_tls)
    for name, value in headers.items():
        answer.headers[name] = value
    if "cache-control" not in answer.headers:
        answer.headers["cache-control"] = NO_STORE
    return answer


def log_path(request: Incoming) -> str:
    """The path for the log: no query string, no control characters."""
    return quote(request.path, safe="/-._~:@!$&'()*+,;=")[:300]
