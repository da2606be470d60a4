"""FastAPI: `app.mount`, and an auth callable of the program's own."""

from fastapi import FastAPI
from starlette.requests import HTTPConnection

from jobkit import Jobkit
from jobkit.hookspecs import Actor
from jobkit_dashboard import Dashboard


async def who(connection: HTTPConnection) -> Actor | None:
    """Stands for the program's real sign-in."""
    name = connection.headers.get("x-user")
    return Actor(name, name, "web", frozenset({"admin"})) if name == "ana" else None


app = FastAPI()
app.mount("/admin/jobs", Dashboard(Jobkit(), auth=who).asgi)


@app.get("/")
def home() -> str:
    return "the host program"
