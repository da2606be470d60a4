"""Every command that looks, once on each database: for people, for pipes, and as JSON that its schema describes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import click
import pytest

from jobkit.cli.commands.schema import all_shapes
from jobkit.cli.framework import LazyGroup
from jobkit.cli.root import COMMANDS
from jobkit.cli.root import cli as root
from tests.cli.support import Cli, Seeded, check_document, seed
from tests.support.postgres import PostgresServer

READS: dict[str, Callable[[Seeded], list[str]]] = {
    "jobs list": lambda s: ["jobs", "list"],
    "jobs by default": lambda s: ["jobs"],
    "jobs list, filtered": lambda s: [
        "jobs",
        "list",
        "worker:send",
        "--state",
        "discarded,retryable",
        "--since",
        "1d",
    ],
    "jobs list --all": lambda s: ["jobs", "list", "--all", "--sort", "id-asc"],
    "jobs list --count": lambda s: ["jobs", "list", "--queue", "mail", "--count"],
    "jobs show": lambda s: ["jobs", "show", str(s["discarded"]), str(s["executing"])],
    "jobs wait": lambda s: ["jobs", "wait", str(s["completed"])],
    "queues list": lambda s: ["queues"],
    "queues show": lambda s: ["queues", "show", "mail"],
    "nodes list": lambda s: ["nodes"],
    "nodes show": lambda s: ["nodes", "show", "web-1"],
    "cron list": lambda s: ["cron"],
    "cron list --declared": lambda s: ["cron", "list", "--declared"],
    "cron next": lambda s: ["cron", "next", "--declared"],
    "cron simulate": lambda s: ["cron", "simulate", "0 9 * * MON", "--tz", "Europe/Paris"],
    "cron validate": lambda s: ["cron", "validate", "0 9 * * MON"],
    "workers list": lambda s: ["workers"],
    "workers show": lambda s: ["workers", "show", "send"],
    "plugins list": lambda s: ["plugins"],
    "plugins show": lambda s: ["plugins", "show", "pruner"],
    "plugins doctor": lambda s: ["plugins", "doctor"],
    "stats": lambda s: ["stats", "--by", "worker", "--by", "queue", "--percentiles"],
    "why": lambda s: ["why", str(s["scheduled"])],
    "audit list": lambda s: ["audit"],
    "migrate status": lambda s: ["migrate", "status"],
    "migrate": lambda s: ["migrate"],
    "config show": lambda s: ["config", "show"],
    "config check": lambda s: ["config", "check"],
    "schema": lambda s: ["schema"],
    "version": lambda s: ["version"],
    "doctor": lambda s: ["doctor", "--only", "database", "--only", "schema"],
    "help exit-codes": lambda s: ["help", "exit-codes"],
    "help settings": lambda s: ["help", "settings"],
    "help query": lambda s: ["help", "query"],
    "prune --dry-run": lambda s: ["prune", "--dry-run"],
    "stage --dry-run": lambda s: ["stage", "--dry-run"],
    "rescue --dry-run": lambda s: ["rescue", "--dry-run"],
    "enqueue --dry-run": lambda s: ["enqueue", "add", "a=1", "--dry-run"],
    "retry --dry-run": lambda s: ["jobs", "retry", "--query", "state:discarded", "--dry-run"],
    "scale --dry-run": lambda s: ["queues", "scale", "mail", "3", "--dry-run"],
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cli, Seeded]]:
    """One seeded database of each kind for all of these: they only look."""
    folder = tmp_path_factory.mktemp("shared")
    if request.param == "sqlite":
        name, url = "", f"sqlite:///{folder / 'jobkit.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        name = server.new_database()
        url = server.url(name)
    cli = Cli(url, folder)
    app = cli.app()
    yield cli, seed(app)
    app.close()
    if name:
        server.drop_database(name)


@pytest.mark.parametrize("name", READS)
def test_a_command_prints_json_that_its_schema_describes(shared: tuple[Cli, Seeded], name: str) -> None:
    cli, seeded = shared
    result = cli.ok(*READS[name](seeded), "--json")
    check_document(json.loads(result.stdout))


@pytest.mark.parametrize("name", READS)
def test_a_command_prints_a_table_for_people_without_anything_a_terminal_obeys(
    shared: tuple[Cli, Seeded], name: str
) -> None:
    cli, seeded = shared
    result = cli.ok(*READS[name](seeded), "--table", "--color", "never")
    assert result.stdout or result.stderr
    assert not _unsafe(result.stdout + result.stderr)


@pytest.mark.parametrize("name", READS)
def test_a_command_in_a_pipe_prints_lines_without_colour_or_control_characters(
    shared: tuple[Cli, Seeded], name: str
) -> None:
    cli, seeded = shared
    result = cli.ok(*READS[name](seeded))
    assert not _unsafe(result.stdout + result.stderr)


def _unsafe(text: str) -> set[str]:
    return {
        char
        for char in text
        if (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 or char == "\u202e"
    }


def _leaves(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(path, command)]
    names = list(command.entries) if isinstance(command, LazyGroup) else list(command.commands)
    context = click.Context(command)
    found = []
    for name in names:
        below = command.get_command(context, name)
        assert below is not None
        found += _leaves(below, (*path, name))
    return found


LEAVES = _leaves(root, ())


@pytest.mark.parametrize("path", [path for path, _ in LEAVES], ids=" ".join)
def test_each_command_has_help_with_examples(lite: Cli, path: tuple[str, ...]) -> None:
    result = lite.ok(*path, "--help")
    assert "Examples" in result.stdout
    assert "Common options" in result.stdout


def test_the_help_lists_every_command_by_topic(lite: Cli) -> None:
    text = lite.ok("--help").stdout
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert text == lite.ok().stdout


def test_each_example_names_a_command_and_options_that_exist() -> None:
    for path, command in LEAVES:
        options = {
            name
            for param in command.get_params(click.Context(command))
            for name in (*param.opts, *param.secondary_opts)
        }
        for line, _ in getattr(command, "examples", ()):
            own = line.split("|")[-1] if "| jobkit" in line else line
            words = own.split()
            used = {word.partition("=")[0] for word in words if word.startswith("--") and "'" not in word}
            if "jobs list is:failing" in own or path == ("jobs", "retry"):
                continue
            assert used <= options | {"--help", "--version"}, f"{' '.join(path)}: {line}"


def test_every_shape_has_a_documented_schema(lite: Cli) -> None:
    for name, shape in all_shapes().items():
        printed = json.loads(lite.ok("schema", name).stdout)
        assert printed["$id"] == f"jobkit.{name}/{shape.version}"
        for field in shape.fields:
            assert field.help or name == "plugins.list", f"{name}.{field.name} says nothing"


def test_an_unknown_schema_is_not_found(lite: Cli) -> None:
    assert lite("schema", "nonsense").exit_code == 5
