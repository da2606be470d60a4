"""Django under WSGI: the dashboard polls, so it needs nothing that WSGI does not have."""

import django_site  # noqa: F401
from django.core.wsgi import get_wsgi_application

from jobkit import Jobkit
from jobkit_dashboard import Dashboard
from jobkit_dashboard.contrib.django import django_staff, wsgi

application = wsgi(get_wsgi_application(), "/admin/jobs", Dashboard(Jobkit(), auth=django_staff()))
