"""A Django project in one file, shared by the two ways of serving it."""

import os

import django
from django.conf import settings

if not settings.configured:
    settings.configure(
        SECRET_KEY=os.environ.get("DJANGO_SECRET_KEY", "for this example only"),
        ALLOWED_HOSTS=["127.0.0.1", "localhost"],
        ROOT_URLCONF="django_site",
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": os.environ.get("DJANGO_DB", "django.db"),
            }
        },
        USE_TZ=True,
    )
    django.setup()

from django.http import HttpRequest, HttpResponse
from django.urls import path


def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse("the host program")


urlpatterns = [path("", home)]
