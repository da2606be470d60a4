"""From an ASGI request to an answer: the order of the checks.

limits, host, request id and log, headers, who asks, forgery, permission, handler. Invariant: an answer without the
security headers cannot leave, and no error shows its traceback.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.responses import Response

from jobkit.admin.errors import NotPermitted
from jobkit.hookspecs import Actor
from jobkit_dashboard import answers
from jobkit_dashboard.audit import note
from jobkit_dashboard.auth import ask
from jobkit_dashboard.context import NOBODY, Context
from jobkit_dashboard.guard import csrf
from jobkit_dashboard.guard.limits import (
    MAX_ARGS_BODY,
    MAX_BODY,
    Disconnected,
    Receive,
    Refused,
    parse_form,
    read_body,
)  # fmt: skip
from jobkit_dashboard.replies import Reply
from jobkit_dashboard.request import Fields, Incoming, incoming
from jobkit_dashboard.routing import PUBLIC, SIGNED_IN, Match, Route

if TYPE_CHECKING:
    from jobkit_dashboard.app import Dashboard

__all__ = ["Server"]

T = TypeVar("T")
log = logging.getLogger("jobkit.dashboard")
access = logging.getLogger("jobkit.dashboard.access")
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

THREADS: Final = 3
"""As many as the dashboard may use connections, so that it never starves workers of them."""
_FORM: Final = "application/x-www-form-urlencoded"


class Server:
    """The ASGI application of one dashboard."""

    def __init__(self, dash: Dashboard) -> None:
        self._dash = dash
        self._pool = ThreadPoolExecutor(THREADS, "jobkit-dashboard")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003})
        elif scope["type"] == "http":
            try:
                response = await self._answer(scope, receive)
            except Disconnected:
                return
            await response(scope, receive, send)

    async def in_thread(self, function: Callable[..., T], *args: object) -> T:
        """Run what may block."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        dash, begun = self._dash, time.monotonic()
        status = dash.host_rule.refuses(scope["headers"])
        if status is not None:
            return answers.secured(dash, None, Response(status_code=status, media_type="text/plain"))
        try:
            request = incoming(
                scope,
                mount_path=dash.mount_path,
                proxies=dash.trusted_proxies,
                tls_proxy=dash.behind_tls_proxy,
            )
        except Refused as refused:
            plain = Response(refused.text, refused.status, media_type="text/plain")
            return answers.secured(dash, None, plain)
        ctx = Context(dash, request, NOBODY)
        response = await self._guarded(ctx, receive)
        millis = (time.monotonic() - begun) * 1000
        # Without the query string, which may hold what somebody searched for.
        access.info(
            "%s %s %d %.0f ms %s %s",
            request.method, answers.log_path(request), response.status_code, millis, request.address,
            request.request_id,
        )  # fmt: skip
        return answers.secured(dash, request, response)

    async def _guarded(self, ctx: Context, receive: Receive) -> Response:
        found = ctx.dash.router.find(ctx.request.method, ctx.request.path)
        api = ctx.request.path.startswith("/api/")
        try:
            return await self._routed(ctx, found, receive)
        except Disconnected:
            raise
        except Exception as error:
            failure = answers.failure_of(error)
            if failure.status >= 500 and not failure.expected:
                log.exception("request %s failed", ctx.request.request_id)
            return await self.in_thread(answers.failed, ctx, failure, api)

    async def _routed(self, ctx: Context, found: Match | frozenset[str], receive: Receive) -> Response:
        if not (isinstance(found, Match) and found.route.permission == PUBLIC):
            actor = await self._who(ctx)
            if actor is None:
                return answers.sign_in(ctx)
            ctx.actor = actor
        ctx.form_token = _form_token(ctx)
        if not isinstance(found, Match):
            raise answers.nowhere(found)
        ctx.values = found.values
        if found.route.method == "POST":
            await self._take(ctx, found.route, receive)
        return await self.in_thread(self._respond, found.route, ctx)

    async def _who(self, ctx: Context) -> Actor | None:
        request = ctx.request
        if request.path.startswith("/api/"):
            token = request.bearer
            return None if token is None else await self.in_thread(self._dash.token_actor, token)
        actor = await ask(self._dash.auth, request.connection, self.in_thread)
        if actor is None and self._dash.core.registry.has("jobkit_dashboard_authenticate"):
            given = await self.in_thread(self._from_plugins, ctx)
            actor = given if isinstance(given, Actor) else None
        return actor

    def _from_plugins(self, ctx: Context) -> object:
        return self._dash.core.registry.first(
            "jobkit_dashboard_authenticate",
            accept=lambda answer: isinstance(answer, Actor),
            request=ctx.request.connection,
        )

    async def _take(self, ctx: Context, route: Route, receive: Receive) -> None:
        """Check where a write comes from, read its body, and check its token."""
        request, dash = ctx.request, self._dash
        own = (*request.origins, *dash.public_origins)
        refusal = csrf.origin_refusal(request.headers, own, bearer=request.bearer is not None)
        if refusal is not None:
            raise Refused(403, refusal)
        limit = MAX_ARGS_BODY if route.large else MAX_BODY
        request.body = await read_body(receive, limit=limit, declared=request.headers.get("content-length"))
        if route.api:
            return
        if request.headers.get("content-type", _FORM).partition(";")[0].strip().lower() != _FORM:
            raise Refused(415, f"a form is sent as {_FORM}")
        request.form = ctx.form = Fields(parse_form(request.body))
        refusal = csrf.token_refusal(
            request.cookies.get(dash.cookie_name("form", request)), ctx.form.get(csrf.FIELD)
        )
        if refusal is not None:
            raise Refused(403, refusal)

    def _respond(self, route: Route, ctx: Context) -> Response:
        """Handler and drawing in one turn of a thread: each more costs a poll as much as what it asks."""
        return answers.response(ctx, self._run(route, ctx))

    def _run(self, route: Route, ctx: Context) -> Reply:
        """Check the permission and the rate, then call the handler; in a thread."""
        if route.permission not in (PUBLIC, SIGNED_IN):
            self._permit(route, ctx)
        if route.writes:
            self._dash.rates.write(ctx.actor.id)
        searching = route.search and (ctx.query.text("q") or ctx.live)
        with self._dash.searches.enter(ctx.actor.id) if searching else nullcontext():
            reply = route.handler(ctx)
        if route.writes:
            self._dash.samples.clear()
        return reply

    def _permit(self, route: Route, ctx: Context) -> None:
        try:
            ctx.require(route.permission)
        except NotPermitted:
            if route.writes:
                note(ctx.app, ctx.actor, route.permission, "denied", request_id=ctx.request.request_id)
            raise


def _form_token(ctx: Context) -> str:
    """The token of this browser, or a new one."""
    found = ctx.request.cookies.get(ctx.dash.cookie_name("form", ctx.request))
    return found if found is not None and csrf.valid_token(found) else csrf.new_token()


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


def client_of(request: Incoming) -> str:
    """What logins are counted by."""
    return request.address or "unknown"
