"""The rooms of the house: what stands above what, and what `import jobkit` may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jobkit

ROOT = Path(jobkit.__file__).parent

ROOMS: list[set[str]] = [
    {"clock", "errors", "redact", "outcomes", "_forks"},
    {"jobs", "unique", "_canonical", "_encoding", "_names"},
    {"config", "_settings", "_sources", "_urls", "_values", "_plugin_settings"},
    {"workers", "_codec", "_definition", "_functions", "_hints", "_prepare"},
    {"schedules", "_cron", "_cronfields", "_cronwords"},
    {"events"},
    {"storage"},
    {"hookspecs", "_hooktypes", "_admintypes"},
    {"registry", "_discovery", "_hooktable", "_known", "_loader", "_plugins", "_standing"},
    {"core"},
    {"wakeup", "_commits"},
    {"inserting"},
    {"runtime"},
    {"plugins"},
    {"admin"},
    {"app"},
    {
        "testing",
        "pytest_plugin",
        *(f"_testing_{part}" for part in ("clock", "drain", "failed", "find")),
        *(f"_testing_{part}" for part in ("match", "perform", "reach")),
    },
    {"cli", "__main__"},
]
"""From the ground up. A room imports from its own and from those below."""

LEVEL = {name: level for level, names in enumerate(ROOMS) for name in names}
MAY_IMPORT_CRONITER = {"schedules.py", "_cron.py", "_cronfields.py"}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported at run time, also inside functions; not what only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        else:
            yield from imports(node)


def imported_rooms(path: Path) -> set[str]:
    found = {name for name in imports(ast.parse(path.read_text())) if name.startswith("jobkit.")}
    return {name.split(".")[1] for name in found} & set(LEVEL)


def test_every_module_has_its_room() -> None:
    assert {room_of(path) for path in modules()} <= set(LEVEL)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_imports_upward(path: Path) -> None:
    level = LEVEL[room_of(path)]
    upward = {name for name in imported_rooms(path) if LEVEL[name] > level}
    assert not upward, f"{path.relative_to(ROOT)} imports {upward}, which stand above it"


def test_no_module_imports_relatively() -> None:
    for path in modules():
        levels = [n.level for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
        assert not any(levels), path


def test_there_is_no_circle_among_modules() -> None:
    graph = {_dotted(path): _own_imports(path) for path in modules()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for following in graph.get(name, ()):
                visit(following, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def _dotted(path: Path) -> str:
    return ".".join(("jobkit", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def _own_imports(path: Path) -> set[str]:
    """What is imported while the module is, by the module that really holds it."""
    own, known = _dotted(path), {_dotted(other) for other in modules()}
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    for node in _top_level(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{name.name}" for name in node.names} & known
            found |= inner or {node.module}
    return (found & known) - {own}


def _top_level(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _top_level(node)


def test_only_the_schedules_import_croniter() -> None:
    for path in modules():
        if any(name.split(".")[0] == "croniter" for name in imports(ast.parse(path.read_text()))):
            assert path.name in MAY_IMPORT_CRONITER


HEAVY = ("alembic", "rich", "click", "croniter", "starlette", "jinja2", "psycopg")


def loaded_by(code: str) -> set[str]:
    """The heavy packages that are loaded once `code` has run in a fresh interpreter."""
    script = f"{code}\nimport sys\nprint(*({HEAVY!r} & sys.modules.keys()))".replace(
        repr(HEAVY), f"set({HEAVY!r})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_jobkit_loads_nothing_heavy() -> None:
    assert loaded_by("import jobkit") == set()


def test_using_every_public_name_loads_nothing_heavy() -> None:
    assert loaded_by("import jobkit\nfor name in jobkit.__all__: getattr(jobkit, name)") == set()


def test_every_public_name_is_there() -> None:
    names = """Jobkit Worker worker JobInfo JobState NewJob Inserted Unique Recurring QueueConfig Service
    PluginInfo Done Snooze Cancel Discard Outcome hookimpl enqueue aenqueue enqueue_all aenqueue_all
    current_job configure configure_sqlite"""
    assert set(names.split()) == set(jobkit.__all__)
    assert all(getattr(jobkit, name) is not None for name in jobkit.__all__)
    assert set(jobkit.__all__) <= set(dir(jobkit))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Jobkitt'"):
        _ = jobkit.Jobkitt  # type: ignore[attr-defined]
