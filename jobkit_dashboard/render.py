"""From a page's data to HTML.

Invariant: everything printed is escaped and free of invisible characters, whatever a template forgets; an undefined
name is an error, never an empty place.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from jinja2 import (
    BaseLoader,
    BytecodeCache,
    ChoiceLoader,
    Environment,
    PackageLoader,
    StrictUndefined,
    TemplateNotFound,
)
from jinja2.bccache import Bucket
from markupsafe import Markup

from jobkit_dashboard import text
from jobkit_dashboard.guard.csrf import FIELD
from jobkit_dashboard.navigation import navigation
from jobkit_dashboard.version import schema_version, version
from jobkit_dashboard.words import TemplateWords, say

if TYPE_CHECKING:
    from jobkit_dashboard.context import Context
    from jobkit_dashboard.replies import Page
    from jobkit_dashboard.tracebacks import Frame

__all__ = ["PREFIX", "Renderer", "stamp"]

PREFIX: Final = "plugin:"
"""Before the names of plugins' templates: `plugin:acme/panel.html`."""


def stamp(value: object) -> str:
    """A short hash of what a page shows."""
    return hashlib.blake2s(repr(value).encode("utf-8", "backslashreplace"), digest_size=9).hexdigest()


class _PluginLoader(BaseLoader):
    """Templates of plugins, from the `templates` folder of the package that the plugin's hooks are in."""

    def __init__(self, package_of: Callable[[str], str | None]) -> None:
        self._package_of = package_of

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str | None, Callable[[], bool]]:
        plugin, _, name = template.removeprefix(PREFIX).partition("/")
        package = self._package_of(plugin) if template.startswith(PREFIX) else None
        if package is None or not name or ".." in name.split("/") or name.startswith("/"):
            raise TemplateNotFound(template)
        try:
            source = (resources.files(package) / "templates" / name).read_text("utf-8")
        except (OSError, ModuleNotFoundError):
            raise TemplateNotFound(template) from None
        return source, template, lambda: True


class _Compiled(BytecodeCache):
    """Compiled templates, kept in memory: the dashboards of one process compile each template once."""

    kept: Final[dict[str, bytes]] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self.kept:
            bucket.bytecode_from_string(self.kept[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.kept[bucket.key] = bucket.bytecode_to_string()

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        return f"{name} {filename}"


class Renderer:
    """Draws templates."""

    def __init__(self, package_of: Callable[[str], str | None]) -> None:
        self.environment = Environment(
            loader=ChoiceLoader([PackageLoader("jobkit_dashboard"), _PluginLoader(package_of)]),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=text.finalize,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            bytecode_cache=_Compiled(),
            extensions=["jinja2.ext.loopcontrols", TemplateWords],
        )
        self.environment.filters.update(
            exact=text.exact,
            visible=text.visible,
            number=text.number,
            plain=text.plain,
            term=text.term,
            compact=text.compact,
            duration=text.duration,
            clock=lambda value, zone: text.clock_text(value, zone),
            iso=lambda value: value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            json=text.json_text,
        )
        self.environment.tests.update(tree=text.is_mapping, branch=text.is_list)
        # Drawn parts are shared between viewers; each gets a token of their own when it is sent.
        self._place = secrets.token_hex(22)
        self.environment.globals.update(
            form_field=FIELD,
            form_token=self._place,
            stamp=stamp,
            navigation=navigation,
            version=version,
            editor_link=_editor_link,
            schema_version=schema_version,
            say=say,
            allowed_actions=_allowed_actions,
            plugin_html=self._plugin_html,
        )

    def _plugin_html(self, plugin: str, template: str, data: Mapping[str, Any], ctx: Context) -> Markup:
        """A plugin's template, drawn with autoescape; where that fails, a line that says so."""
        try:
            found = self.environment.get_template(f"{PREFIX}{plugin}/{template}")
            return Markup(found.render({**data, "ctx": ctx, "now": ctx.now}))
        except Exception as error:  # noqa: BLE001 - whatever a plugin's template does
            ctx.dash.extensions.failed(plugin, f"template {template}", error)
            return Markup('<p class="problem">{}</p>').format(
                f"{template} of the plugin {plugin} could not be drawn"
            )

    def page(self, page: Page, ctx: Context) -> str:
        """A whole page."""
        return self._signed(self._draw(page.template, page.data, ctx, page), ctx)

    def regions(self, page: Page, ctx: Context) -> str:
        """The parts that a refresh replaces, with places for tokens; `signed` fills them in."""
        return self._draw("_regions.html", page.data, ctx, page)

    def signed(self, html: str, ctx: Context) -> str:
        """Shared parts, for one viewer."""
        return self._signed(html, ctx)

    def _draw(self, template: str, data: Mapping[str, Any], ctx: Context, page: Page) -> str:
        values = {"ctx": ctx, "page": page, "regions": page.regions, "now": ctx.now, **data}
        return self.environment.get_template(template).render(values)

    def _signed(self, html: str, ctx: Context) -> str:
        return html.replace(self._place, ctx.form_token)


def _allowed_actions(ctx: Context) -> list[tuple[str, str]]:
    """What the menu of a row offers."""
    actions = (("retry", "Retry…"), ("run_now", "Run now…"), ("cancel", "Cancel…"), ("delete", "Delete…"))
    return [(action, label) for action, label in actions if ctx.may(f"jobs.{action}")]


def _editor_link(ctx: Context, frame: Frame) -> str:
    """Where an editor opens a line of a traceback; empty where no pattern is configured."""
    pattern = ctx.dash.settings.editor_url
    return pattern.replace("{file}", quote(frame.file)).replace("{line}", str(frame.line)) if pattern else ""


def to_json(value: object) -> str:
    """For API answers."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)


def _plain(value: object) -> object:
    import dataclasses
    from datetime import timedelta

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    return str(value)
