"""The tables of the documentation that are made from the code. `python -m tests.docs.tables` writes them anew."""

from __future__ import annotations

import inspect
from pathlib import Path

from jobkit import events
from jobkit.config import SETTINGS
from tests.docs.pages import ROOT, between, replace_between


def settings_table() -> str:
    """Every setting with its default, form and meaning."""
    lines = ["| setting | default | form | what it decides |", "|---|---|---|---|"]
    for name, spec in SETTINGS.items():
        default = spec.plain(spec.default)
        shown = "" if default in (None, []) else f"`{_toml(default)}`"
        lines.append(f"| `{name}` | {shown} | {spec.form} | {_cell(spec.help)} |")
    return "\n".join(lines) + "\n"


def spellings_table() -> str:
    """How each setting is spelled in the environment and on the command line."""
    lines = ["| setting | environment | command line |", "|---|---|---|"]
    for name, spec in SETTINGS.items():
        options = ", ".join(f"`{option}`" for option in spec.options)
        more = " (repeatable)" if spec.repeatable else ""
        lines.append(f"| `{name}` | `{spec.env}` | {options}{more} |")
    return "\n".join(lines) + "\n"


def events_table() -> str:
    """Every event with its dotted name, its fields and the first line of its docstring."""
    lines = ["| event | name | fields besides `at` | when |", "|---|---|---|---|"]
    for name in events.__all__:
        cls = getattr(events, name)
        if cls.name == "event":
            continue
        fields = ", ".join(f"`{each}`" for each in cls.__dataclass_fields__ if each != "at")
        doc = " ".join(inspect.cleandoc(cls.__doc__).partition("\n\n")[0].split())
        lines.append(f"| `{name}` | `{cls.name}` | {fields} | {_cell(doc)} |")
    return "\n".join(lines) + "\n"


GENERATED = {
    ("configuration.md", "settings"): settings_table,
    ("configuration.md", "spellings"): spellings_table,
    ("plugins.md", "events"): events_table,
}


def page(name: str) -> Path:
    return ROOT / "docs" / name


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for (name, marker), make in GENERATED.items():
        if between(page(name), marker) != make():
            replace_between(page(name), marker, make())
