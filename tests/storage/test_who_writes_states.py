"""Every statement that writes a job's state stands in `jobkit/storage`, and these are all of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("jobkit", "jobkit_cleanup", "jobkit_dashboard")

WRITERS = {
    "native.py": ["UPDATE {jobs}: by shape of change"],
    "portable.py": ["claim", "by fence"],
    "postgres.py": ["claim", "stage"],
    "sqlite.py": ["claim", "stage"],
    "upkeep.py": ["stage"],
}
"""Which files of the storage hold how many statements that set `state` (inserts aside)."""

_JOBS = re.compile(r"\bjobs\b")


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_no_other_room_writes_jobs_by_text() -> None:
    pattern = re.compile(r"UPDATE\s+\S*jobs\b|INSERT\s+INTO\s+\S*jobs\b", re.IGNORECASE)
    guilty = [
        str(path.relative_to(ROOT))
        for path in sources()
        if (ROOT / "jobkit" / "storage") not in path.parents and pattern.search(_strings(path))
    ]
    assert guilty == []


def test_no_other_room_sets_a_state_of_the_jobs_table() -> None:
    guilty = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in sources()
        if (ROOT / "jobkit" / "storage") not in path.parents
        for call in _calls(path, {"values"})
        if _sets_jobs_state(ast.unparse(call))
    ]
    assert guilty == []


def test_the_storage_writes_states_in_these_places_only() -> None:
    found: dict[str, int] = {}
    for path in sorted((ROOT / "jobkit" / "storage").glob("*.py")):
        count = len(re.findall(r"SET state = '", _strings(path)))
        count += sum(_sets_state(call) for call in _calls(path, {"values", "update"}))
        count += path.name == "native.py" and "UPDATE {{jobs}} AS j SET" in path.read_text()
        if count:
            found[path.name] = count
    assert found == {name: len(places) for name, places in WRITERS.items()}


def _sets_jobs_state(source: str) -> bool:
    return bool(_JOBS.search(source) and re.search(r"\bstate\s*=[^=]|['\"]state['\"]", source))


def _strings(path: Path) -> str:
    tree = ast.parse(path.read_text())
    return "\n".join(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _calls(path: Path, names: set[str]) -> list[ast.Call]:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return [call for call in calls if _name(call) in names]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _sets_state(call: ast.Call) -> bool:
    if any(keyword.arg == "state" for keyword in call.keywords):
        return True
    spread = [keyword for keyword in call.keywords if keyword.arg is None]
    return bool(spread) and _name(call) == "values" and "update(self.tables.jobs)" in ast.unparse(call)
