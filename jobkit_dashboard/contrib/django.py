"""The dashboard in a Django program, under ASGI or WSGI: mounting, and who may come in.

application = asgi(get_asgi_application(), "/admin/jobs", Dashboard(app, auth=django_staff()))
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from starlette.requests import HTTPConnection

from jobkit.hookspecs import Actor
from jobkit_dashboard.auth import Auth
from jobkit_dashboard.contrib.asgi import mount as asgi
from jobkit_dashboard.contrib.wsgi import mount as wsgi

__all__ = ["asgi", "django_staff", "wsgi"]


def django_staff(*, app_label: str = "jobkit") -> Auth:
    """Active staff users, by Django's own session.

    Superusers, and users with the permission `jobkit.admin`, are admins; `jobkit.operate` makes an operator; all
    other staff with `jobkit.view` are viewers. Others may not come in.
    """

    def authenticate(connection: HTTPConnection) -> Actor | None:
        user = _user(connection)
        if user is None or not (user.is_authenticated and user.is_active and user.is_staff):
            return None
        for permission, role in (("admin", "admin"), ("operate", "operator"), ("view", "viewer")):
            if user.has_perm(f"{app_label}.{permission}"):
                return Actor(f"django:{user.pk}", user.get_username(), "web", frozenset({role}))
        return None

    return authenticate


def _user(connection: HTTPConnection) -> Any:
    """The user of the session that the request's cookie names."""
    settings: Any = import_module("django.conf").settings
    close_old_connections = import_module("django.db").close_old_connections
    close_old_connections()
    try:
        request: Any = import_module("django.http").HttpRequest()
        engine: Any = import_module(settings.SESSION_ENGINE)
        request.session = engine.SessionStore(connection.cookies.get(settings.SESSION_COOKIE_NAME))
        return import_module("django.contrib.auth").get_user(request)
    finally:
        close_old_connections()
