"""Flask: mounted in front of its WSGI application."""

from flask import Flask
from starlette.requests import HTTPConnection

from jobkit import Jobkit
from jobkit.hookspecs import Actor
from jobkit_dashboard import Dashboard
from jobkit_dashboard.contrib.wsgi import mount

app = Flask(__name__)


@app.get("/")
def home() -> str:
    return "the host program"


def who(connection: HTTPConnection) -> Actor | None:
    """Stands for the program's real sign-in; `flask_login` of `jobkit_dashboard.auth` asks flask-login instead."""
    name = connection.headers.get("x-user")
    return Actor(name, name, "web", frozenset({"admin"})) if name == "ana" else None


application = mount(app.wsgi_app, "/admin/jobs", Dashboard(Jobkit(), auth=who))
