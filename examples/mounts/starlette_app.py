"""Starlette: `Mount`, and the user of its own AuthenticationMiddleware."""

from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from jobkit import Jobkit
from jobkit_dashboard import Dashboard
from jobkit_dashboard.auth import starlette_user


class ByHeader(AuthenticationBackend):
    """Stands for the program's real sign-in."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        name = conn.headers.get("x-user")
        return (AuthCredentials(["authenticated"]), SimpleUser(name)) if name else None


async def home(request: HTTPConnection) -> PlainTextResponse:
    return PlainTextResponse("the host program")


jobs = Jobkit()
dashboard = Dashboard(jobs, auth=starlette_user(lambda user: "admin" if user.display_name == "ana" else None))
app = Starlette(
    routes=[Route("/", home), Mount("/admin/jobs", app=dashboard.asgi)],
    middleware=[Middleware(AuthenticationMiddleware, backend=ByHeader())],
)
