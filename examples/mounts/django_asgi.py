"""Django under ASGI."""

import django_site  # noqa: F401
from django.core.asgi import get_asgi_application

from jobkit import Jobkit
from jobkit_dashboard import Dashboard
from jobkit_dashboard.contrib.django import asgi, django_staff

application = asgi(get_asgi_application(), "/admin/jobs", Dashboard(Jobkit(), auth=django_staff()))
