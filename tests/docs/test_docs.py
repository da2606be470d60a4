"""The documentation is true: its code runs, its tables are the code's, its links lead somewhere.

The python blocks of a page run in order, as one module, in an empty folder with a SQLite file of its own. A
block after `<!-- no-run -->` is shown only.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from jobkit import hookspecs
from jobkit.cli.root import cli
from jobkit.config import Config
from jobkit.testing import reset
from tests.docs.pages import ROOT, between, blocks, pages
from tests.docs.tables import GENERATED, page

PAGES = pages()
MOST_NOT_RUN = 4
"""Blocks of python in all pages that may be shown without being run."""


def ids(path: Path) -> str:
    return path.stem.lower()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """An empty module in an empty folder; its default database is that folder's `jobkit.db`."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("documented")
    monkeypatch.setitem(sys.modules, "documented", module)
    yield module
    reset()


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_the_python_of_each_page_runs(path: Path, module: types.ModuleType) -> None:
    for block in blocks(path):
        if block.language == "python" and block.runs:
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_every_block_of_python_is_python(path: Path) -> None:
    for block in blocks(path):
        if block.language == "python":
            compile(block.text, f"{path.name}:{block.line}", "exec", dont_inherit=True)


def test_few_blocks_are_not_run() -> None:
    shown = [b for path in PAGES for b in blocks(path) if b.language == "python" and not b.runs]
    assert len(shown) <= MOST_NOT_RUN


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_every_configuration_shown_is_accepted(path: Path, tmp_path: Path) -> None:
    for block in blocks(path):
        if block.language != "toml":
            continue
        found = tomllib.loads(block.text)
        if "# jobkit.toml" in block.text:
            file = tmp_path / "jobkit.toml"
            file.write_text(block.text)
            Config.load(file=file, environ={})
        elif "jobkit" in found.get("tool", {}):
            file = tmp_path / "pyproject.toml"
            file.write_text(block.text)
            Config.load(file=file, environ={})


@pytest.mark.parametrize(("name", "marker"), GENERATED, ids=lambda part: str(part))
def test_tables_are_those_of_the_code(name: str, marker: str) -> None:
    expected = GENERATED[name, marker]()
    assert between(page(name), marker) == expected, "run: python -m tests.docs.tables"


def test_every_hook_is_described() -> None:
    text = (ROOT / "docs" / "plugins.md").read_text()
    hooks = [name for name in vars(hookspecs) if name.startswith("jobkit_")]
    assert hooks
    missing = [name for name in hooks if f"`{name}(" not in text]
    assert not missing


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_every_link_within_the_project_leads_somewhere(path: Path) -> None:
    for target in LINK.findall(without_code(path)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{path.name} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{path.name} links to {target}"


def without_code(path: Path) -> str:
    text = path.read_text()
    for block in blocks(path):
        text = text.replace(block.text, "") if block.text else text
    return text


def anchors(path: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ +(.+)$", without_code(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def commands() -> list[tuple[str, str]]:
    """Each `jobkit ...` line of a console block, with its page."""
    return [
        (path.name, line.strip().removeprefix("$ "))
        for path in PAGES
        for block in blocks(path)
        if block.language in ("console", "bash", "sh")
        for line in block.text.splitlines()
        if line.strip().startswith(("$ jobkit ", "jobkit "))
    ]


@pytest.mark.parametrize(("name", "line"), commands())
def test_every_command_shown_exists(name: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = cli
    context = click.Context(cli)
    for word in words:
        if word.startswith("-") or not isinstance(command, click.Group):
            break
        found = command.get_command(context, word)
        assert found is not None, f"{name} shows {line!r}; there is no command {word!r}"
        command, context = found, click.Context(found, parent=context)
    options = {option for param in command.get_params(context) for option in param.opts}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in options, f"{name} shows {line!r}, without an option {word}"
