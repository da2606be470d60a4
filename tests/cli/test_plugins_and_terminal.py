"""Commands that plugins add, plugins and workers as they are shown, and the command line on a real terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest

from jobkit.cli.exitcodes import ExitCode
from tests.cli.support import Cli, Seeded, audited, heed_interrupts, seed, wait_until
from tests.support.distributions import Site, visible

COMMANDS = """
import click
from jobkit.cli.framework import Command
from jobkit.cli.session import session_of

@hookimpl
def jobkit_commands(group):
    @group.command("tide", cls=Command)
    @click.option("--high", is_flag=True)
    @click.pass_context
    def tide(ctx, high):
        "Print the tide."
        session_of(ctx).out.write(f"{session_of(ctx).config.table_prefix} {high}")

    @group.command("jobs")
    def jobs():
        raise SystemExit(77)
"""
BROKEN = """
@hookimpl
def jobkit_commands(group):
    raise ZeroDivisionError("no commands today")
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Two distributions: one with commands, one whose commands raise."""
    made = Site(tmp_path / "site")
    made.install("acme-tide", "2.1", plugins={"tide": "acme_tide"}, modules={"acme_tide": COMMANDS})
    made.install("acme-broken", plugins={"broken": "acme_broken"}, modules={"acme_broken": BROKEN})
    with visible(made):
        yield made


def test_a_plugins_command_runs_with_the_common_options(lite: Cli, site: Site) -> None:
    result = lite.ok("tide", "--high", "--table-prefix", "other_", "--json")
    assert result.stdout.strip() == "other_ True"
    assert "Print the tide." in lite.ok("tide", "--help").stdout


def test_a_plugin_cannot_take_a_name_of_jobkits_own(lite: Cli, site: Site) -> None:
    lite.ok("migrate")
    assert json.loads(lite.ok("jobs", "--json").stdout)["items"] == []


def test_a_plugin_whose_commands_raise_breaks_no_other(lite: Cli, site: Site) -> None:
    text = lite.ok("--help").stdout
    assert "tide" in text
    assert "queues" in text


def test_plugins_and_workers_are_listed_with_distribution_and_version(lite: Cli, site: Site) -> None:
    site.install(
        "acme-jobs",
        "1.2",
        workers={"greet": "acme_jobs:greet", "gone": "acme_gone:gone"},
        modules={"acme_jobs": '@worker\ndef greet() -> None:\n    "Say hello."\n'},
    )
    plugins = {row["name"]: row for row in lite.json("plugins")["items"]}
    assert (plugins["tide"]["distribution"], plugins["tide"]["version"]) == ("acme-tide", "2.1")
    workers = {row["name"]: row for row in lite.json("workers", "--registered")["items"]}
    assert (workers["greet"]["distribution"], workers["greet"]["version"]) == ("acme-jobs", "1.2")
    assert workers["greet"]["doc"] == "Say hello."
    assert workers["gone"]["status"] == "broken"
    assert "acme_gone" in workers["gone"]["error"]
    doctor = lite("plugins", "doctor", "--json")
    assert doctor.exit_code == ExitCode.PROBLEMS
    assert any("acme_gone" in row["problem"] for row in json.loads(doctor.stdout)["items"])


def test_workers_that_jobs_wait_for_and_no_node_has_are_missing(cli: Cli, seeded: Seeded) -> None:
    cli.ok("enqueue", "elsewhere", "--unknown")
    result = cli("workers", "list", "--missing", "--json")
    assert result.exit_code == ExitCode.PROBLEMS
    assert "elsewhere" in {row["name"] for row in json.loads(result.stdout)["items"]}


# -- output


def test_fields_are_picked_by_name_in_every_format(cli: Cli, seeded: Seeded) -> None:
    items = json.loads(cli.ok("jobs", "list", "--json=id,state").stdout)["items"]
    assert set(items[0]) == {"id", "state"}
    lines = cli.ok("jobs", "list", "--columns", "state,id", "--header").stdout.splitlines()
    assert lines[0] == "state\tid"
    table = cli.ok("jobs", "list", "--table", "--columns", "id,tags").stdout.splitlines()
    assert table[0].split() == ["ID", "TAGS"]
    streamed = [json.loads(row) for row in cli.ok("jobs", "list", "--jsonl").stdout.splitlines()]
    assert len(streamed) == len(seeded.ids)


def test_options_may_stand_before_the_command(cli: Cli, seeded: Seeded) -> None:
    before = cli.ok("--json", "--tz", "Europe/Paris", "queues", "list").stdout
    assert json.loads(before)["schema"] == "jobkit.queues.list/1"


def test_quiet_leaves_only_data_and_errors(cli: Cli, seeded: Seeded) -> None:
    assert cli.ok("jobs", "list", "queue:nowhere", "-q").stderr == ""


def test_large_ids_are_exact(cli: Cli, seeded: Seeded) -> None:
    app = cli.app()
    jobs = app.tables.jobs
    big = 2**53 + 1
    with app.engine.begin() as conn:
        conn.execute(jobs.update().where(jobs.c.id == seeded["discarded"]).values(id=big))
    app.close()
    assert cli.json("jobs", "show", str(big))["items"][0]["id"] == big
    assert str(big) in cli.ok("jobs", "list", "state:discarded").stdout
    cli.ok("jobs", "retry", str(big))


# -- bulk, interrupted


def test_an_interrupted_operation_is_cancelled_and_ends_with_130(
    cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def at_once() -> Iterator[threading.Event]:
        stop = threading.Event()
        stop.set()
        yield stop

    monkeypatch.setattr("jobkit.cli.bulk._interruptible", at_once)
    result = cli("jobs", "cancel", "--query", "is:incomplete", "--yes", "--json")
    assert result.exit_code in (ExitCode.INTERRUPTED, ExitCode.FAILED, ExitCode.PARTLY)
    assert json.loads(result.stdout)["state"] in ("cancelled", "done")
    assert audited(cli)


# -- a real terminal


def _in_the_foreground() -> None:
    ioctl(0, termios.TIOCSCTTY, 0)
    heed_interrupts()


class Terminal:
    """A command on a pseudo-terminal of a size."""

    def __init__(self, cli: Cli, *args: str, columns: int = 80, **env: str) -> None:
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {k: v for k, v in cli.environment(TERM="xterm", **env).items() if k != "COLUMNS"}
        self.process = subprocess.Popen(
            cli.command(*args),
            env=environment,
            cwd=cli.folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_in_the_foreground,
        )
        os.close(slave)
        self.seen = ""

    def until(self, text: str, seconds: float = 60.0) -> None:
        """Read until that text has come."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if not self._read():
                assert text in self.seen, self.seen
                return

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], 1)
        if not ready:
            return True
        try:
            found = os.read(self.master, 4096)
        except OSError:
            return False
        self.seen += found.decode()
        return bool(found)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupted(self) -> bool:
        """Press Ctrl-C; true once that was heard. The key is lost where it comes just before the reading."""
        self.type("\x03")
        end = time.monotonic() + 5
        while "interrupted" not in self.seen and time.monotonic() < end and self._read():
            pass
        return "interrupted" in self.seen

    def end(self, seconds: float = 60.0) -> int:
        """Read what is left, and wait for the end."""
        stop = time.monotonic() + seconds
        while self._read():
            if time.monotonic() > stop:
                self.process.kill()
                raise AssertionError(self.seen)
            if self.process.poll() is not None and not select.select([self.master], [], [], 0)[0]:
                break
        os.close(self.master)
        return self.process.wait(60)


def test_a_terminal_gets_tables_in_colour_that_fit_its_width(lite: Cli) -> None:
    app = lite.app()
    seed(app)
    app.close()
    for columns in (60, 100):
        terminal = Terminal(lite, "jobs", "list", columns=columns)
        assert terminal.end() == 0
        assert "\x1b[1;31m" in terminal.seen or "\x1b[" in terminal.seen
        assert "discarded" in terminal.seen
        import re

        for row in re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen).splitlines():
            assert len(row) <= columns, row


def test_a_terminal_is_asked_before_jobs_are_deleted(lite: Cli) -> None:
    app = lite.app()
    seeded = seed(app)
    app.close()
    terminal = Terminal(lite, "jobs", "delete", str(seeded["completed"]))
    terminal.until("[y/N]")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert lite("jobs", "show", str(seeded["completed"])).exit_code == ExitCode.NOT_FOUND


def test_ctrl_c_at_a_question_ends_with_130_and_changes_nothing(lite: Cli) -> None:
    app = lite.app()
    seeded = seed(app)
    app.close()
    terminal = Terminal(lite, "jobs", "delete", str(seeded["completed"]))
    terminal.until("[y/N]")
    wait_until(terminal.interrupted)
    assert terminal.end() == ExitCode.INTERRUPTED
    assert "Traceback" not in terminal.seen
    lite.ok("jobs", "show", str(seeded["completed"]))


def test_the_count_of_many_jobs_has_to_be_typed(lite: Cli) -> None:
    app = lite.app()
    seed(app)
    app.close()
    terminal = Terminal(lite, "jobs", "delete", "--query", "is:final")
    terminal.until("Type 3 to go on")
    terminal.type("3\n")
    assert terminal.end() == 0
    assert lite.ok("jobs", "list", "is:final", "--count").stdout.strip() == "0"
