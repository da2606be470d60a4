"""The health report: what a bug report needs, as one JSON document that can be handed to strangers.

Invariant: it says no more than its reader may see on the pages, and is redacted even where redaction is switched off.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from jobkit.redact import Redactor
from jobkit_dashboard.health import health
from jobkit_dashboard.render import to_json
from jobkit_dashboard.text import json_source, plain
from jobkit_dashboard.version import schema_version, version
from jobkit_dashboard.words import say

if TYPE_CHECKING:
    from jobkit.core import Core
    from jobkit_dashboard.context import Context

__all__ = ["NAME", "redaction_rules", "report", "retention"]

NAME: Final = "jobkit-health.json"
_LIBRARIES: Final = (
    "SQLAlchemy", "pluggy", "msgspec", "croniter", "alembic", "psycopg", "psycopg2", "asyncpg", "aiosqlite",
    "starlette", "Jinja2", "uvicorn",
)  # fmt: skip
_HOOK: Final = "jobkit_redact"


def report(ctx: Context) -> str:
    """The document, indented. What this reader may not see is None, and so is what could not be read."""
    told = {
        "written_at": ctx.now,
        "versions": _versions(ctx),
        "redaction": redaction_rules(ctx.app),
        "retention": retention(ctx.app),
        "health": _if(ctx, "view.overview", lambda: _findings(ctx)),
        "nodes": _if(ctx, "view.nodes", ctx.reads.nodes),
        "queues": _if(ctx, "view.queues", ctx.reads.queues),
        "plugins": _if(ctx, "view.plugins", ctx.reads.plugins),
        "problems": _if(ctx, "view.plugins", lambda: ctx.app.registry.problems),
        "settings": _if(ctx, "view.plugins", lambda: _settings(ctx.app)),
        "set_by": _if(ctx, "view.plugins", lambda: _set(ctx.app)),
    }
    shown = _redactor(ctx.app).value(json.loads(to_json(told)), path="report", kind="log")
    return json_source(shown) + "\n"


def _if(ctx: Context, permission: str, read: Callable[[], object]) -> object:
    return read() if ctx.may(permission) else None


def _redactor(app: Core) -> Redactor:
    """The app's own; where that is switched off, its rules all the same."""
    rules = app.config.redaction
    return Redactor(replace(rules, off=False)) if rules.off else app.redactor


def _versions(ctx: Context) -> Mapping[str, object]:
    from importlib_metadata import PackageNotFoundError
    from importlib_metadata import version as found

    libraries = {}
    for name in _LIBRARIES:
        try:
            libraries[name] = found(name)
        except PackageNotFoundError:
            continue
    return {
        "jobkit": version(),
        "tables": schema_version(ctx),
        "database": ctx.app.dialect,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": libraries,
    }


def _findings(ctx: Context) -> Mapping[str, object]:
    checked = ctx.dash.samples.get(("health", ctx.audience), lambda: health(ctx), least=5.0, behind=0.0).value
    return {
        "checked_at": checked.at,
        "passed": checked.passed,
        "findings": [finding for finding, _ in checked.findings],
    }


def _settings(app: Core) -> Mapping[str, object]:
    """Every setting. Of the site's own patterns only the number is told: they are half a secret."""
    found = {setting.name: setting.value for setting in app.config.describe()}
    found["redaction.patterns"] = len(app.config.redaction.patterns)
    return found


def _set(app: Core) -> Mapping[str, list[str]]:
    """Where the settings that are not the default come from: kind -> names."""
    kinds: dict[str, list[str]] = {}
    for setting in app.config.describe():
        if setting.origin.kind != "default":
            kinds.setdefault(setting.origin.kind, []).append(setting.name)
    return kinds


def redaction_rules(app: Core) -> list[str]:
    """The rules in force, by name; never a pattern. Empty where redaction is off."""
    from jobkit.redact import finders
    from jobkit.redact.names import Names

    rules = app.config.redaction
    if rules.off:
        return []
    found = [say("paths that workers declare secret"), say("key names"), *finders(Names(()))]
    hooks = sorted({implementation.plugin for implementation in app.registry.implementations(_HOOK)})
    own = (
        (say("hooks of {names}", names=", ".join(hooks)), hooks),
        (say("key names of this installation: {names}", names=", ".join(rules.keys)), rules.keys),
        (say("patterns of this installation: {count}", count=len(rules.patterns)), rules.patterns),
        (say("shown all the same: {names}", names=", ".join(rules.allow)), rules.allow),
    )
    return found + [text for text, there in own if there]


def retention(app: Core) -> str:
    """How long finished jobs are kept, in words."""
    return plain(app.config.prune_after) if app.config.prune_after is not None else say("for ever")
