"""All addresses, as data: method, path, permission, handler."""

from __future__ import annotations

from collections.abc import Iterator

from jobkit_dashboard.routing import PUBLIC, SIGNED_IN, Route
from jobkit_dashboard.views import (
    api,
    bulk,
    cron,
    door,
    export,
    fleet,
    form,
    job,
    jobs,
    live,
    overview,
    system,
)

__all__ = ["routes"]


def routes(*, login: bool, with_api: bool) -> Iterator[Route]:
    """The table; without sessions of our own there is no login, without `api` no API."""
    yield from _PAGES
    yield from _WRITES
    yield from _SERVICE
    if login:
        yield from _DOOR
    if with_api:
        yield from _API


_PAGES = (
    Route("GET", "/", "view.overview", overview.overview_page, live=True),
    Route("GET", "/jobs", "view.jobs", jobs.jobs_page, live=True, search=True, mark=jobs.jobs_mark),
    Route("GET", "/jobs/filter", "view.jobs", jobs.add_filter),
    Route("GET", "/jobs/new", "jobs.insert", form.new_form),
    Route("GET", "/jobs/confirm", "view.jobs", bulk.confirm),
    Route("GET", "/jobs/export", "jobs.export", export.export_jobs, search=True),
    Route("GET", "/jobs/{id:int}", "view.jobs", job.job_page, live=True),
    Route("GET", "/jobs/{id:int}/data", "view.jobs", job.data_download),
    Route("GET", "/jobs/{id:int}/edit", "jobs.edit", form.edit_form),
    Route("GET", "/queues", "view.queues", fleet.queues_page, live=True),
    Route("GET", "/queues/show", "view.queues", fleet.queue_page, live=True),
    Route("GET", "/nodes", "view.nodes", fleet.nodes_page, live=True),
    Route("GET", "/nodes/show", "view.nodes", fleet.node_page, live=True),
    Route("GET", "/cron", "view.cron", cron.cron_page, live=True),
    Route("GET", "/cron/show", "view.cron", cron.cron_entry_page, live=True),
    Route("GET", "/operations", "view.jobs", bulk.operations_page, live=True),
    Route("GET", "/operations/{id:int}", "view.jobs", bulk.operation_page, live=True),
    Route("GET", "/plugins", "view.plugins", system.plugins_page),
    Route("GET", "/audit", "view.audit", system.audit_page),
    Route("GET", "/audit/export", "view.audit", export.export_audit),
    Route("GET", "/settings", SIGNED_IN, system.settings_page),
    Route("GET", "/settings/report", SIGNED_IN, system.health_report),
    # The route's own permission is the plugin page's; the handler asks for it.
    Route("GET", "/x/{plugin}", SIGNED_IN, system.plugin_page),
    Route("GET", "/x/{plugin}/{rest:rest}", SIGNED_IN, system.plugin_page),
)

_WRITES = (
    Route("POST", "/jobs/new", "jobs.insert", form.create, writes=True, large=True),
    # Shows what would happen; the ticked ids of 200 rows are too long for an address.
    Route("POST", "/jobs/confirm", "view.jobs", bulk.confirm),
    Route("POST", "/jobs/bulk", "view.jobs", bulk.start, writes=True),
    Route("POST", "/jobs/{id:int}/edit", "jobs.edit", form.edit, writes=True),
    Route("POST", "/jobs/{id:int}/do/{plugin}/{name}", "view.jobs", job.run_plugin_action, writes=True),
    Route("POST", "/jobs/{id:int}/{action}", "view.jobs", job.act, writes=True),
    Route("POST", "/operations/{id:int}/cancel", "operations.cancel", bulk.cancel_operation, writes=True),
    Route("POST", "/queues/{action}", "view.queues", fleet.change_queue, writes=True),
    Route("POST", "/nodes/{action}", "view.nodes", fleet.change_node, writes=True),
    Route("POST", "/cron/{action}", "view.cron", cron.change_cron, writes=True),
    Route("POST", "/x/{plugin}/{rest:rest}", SIGNED_IN, system.plugin_page, writes=True),
)

_SERVICE = (
    Route("GET", "/-/live", SIGNED_IN, live.live),
    Route("GET", "/-/suggest", "view.jobs", live.suggest, search=True),
    Route("GET", "/-/static/{hash}/{name}", PUBLIC, door.static),
    Route("GET", "/-/health", PUBLIC, door.health),
    Route("GET", "/-/ready", PUBLIC, door.ready),
    Route("POST", "/settings", SIGNED_IN, system.save_settings),
)

_DOOR = (
    Route("GET", "/-/login", PUBLIC, door.login_form),
    Route("POST", "/-/login", PUBLIC, door.log_in),
    Route("POST", "/-/logout", SIGNED_IN, door.log_out),
    Route("POST", "/settings/revoke", "sessions.revoke", system.revoke, writes=True),
)

_API = (
    Route("GET", "/api/v1/jobs", "view.jobs", api.jobs, search=True, api=True),
    Route("GET", "/api/v1/jobs/{id:int}", "view.jobs", api.job, api=True),
    Route("GET", "/api/v1/{kind}", SIGNED_IN, api.reads, api=True),
    Route("POST", "/api/v1/jobs", "jobs.insert", api.insert, writes=True, large=True, api=True),
    Route("POST", "/api/v1/jobs/{id:int}/{action}", "view.jobs", api.act, writes=True, api=True),
    Route("POST", "/api/v1/queues/{action}", "view.queues", api.queue, writes=True, api=True),
)
