"""`jobkit run` as a process: signals, draining, limits, health, logs, several processes, reloading."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.supervise import child_command
from tests.cli import samplejobs
from tests.cli.support import Cli, wait_until
from tests.support.postgres import free_port


class Node:
    """A `jobkit run` process whose log is a file."""

    def __init__(self, cli: Cli, *args: str, **env: str) -> None:
        self.log_file = cli.folder / f"node-{time.monotonic_ns()}.log"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                cli.command("run", *args),
                env=cli.environment(**env),
                cwd=cli.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def wait_for(self, pattern: str, seconds: float = 60.0) -> None:
        """Wait for a line of the log."""
        wait_until(lambda: self._found(pattern), seconds)

    def _found(self, pattern: str) -> bool:
        found = re.search(pattern, self.log) is not None
        assert found or self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log}"
        return found

    def end(self, number: int = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextmanager
def running(cli: Cli, *args: str, **env: str) -> Iterator[Node]:
    """A node that has started; killed at the end where it still lives."""
    node = Node(cli, *args, **env)
    try:
        yield node
    finally:
        if node.process.poll() is None:
            for child in psutil.Process(node.process.pid).children(recursive=True):
                child.kill()
            node.process.kill()
            node.process.wait(10)


def states(cli: Cli) -> list[str]:
    """The states of all jobs, oldest first."""
    return [job["state"] for job in cli.json("jobs", "list", "--sort", "id-asc", "--all")["items"]]


@pytest.fixture
def ready(cli: Cli) -> Cli:
    """A database with its tables."""
    cli.ok("migrate")
    return cli


def test_a_drained_node_has_done_what_was_due_and_ends_with_0(ready: Cli) -> None:
    ready.ok("enqueue", "add", "a=1")
    ready.ok("enqueue", "fail", "--queue", "mailers")
    ready.ok("enqueue", "add", "a=2", "--in", "1h")
    with running(ready, "--drain", "--no-cron") as node:
        assert node.process.wait(90) == ExitCode.OK, node.log
    assert states(ready) == ["completed", "discarded", "scheduled"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_an_idle_node_at_once(ready: Cli, number: signal.Signals) -> None:
    with running(ready, "--no-cron") as node:
        node.wait_for("node.start")
        started = time.monotonic()
        assert node.end(number) == ExitCode.OK
        assert time.monotonic() - started < 5
        assert "node.stop " in node.log


def test_jobs_that_the_grace_does_not_suffice_for_are_given_back_with_11(ready: Cli) -> None:
    ready.ok("enqueue", "doze", "seconds:=120")
    with running(ready, "--no-cron", "--grace", "0.2s") as node:
        node.wait_for("job.start")
        assert node.end() == ExitCode.LEFT_RUNNING
    assert states(ready) == ["available"]


def test_the_second_signal_ends_it_at_once_with_its_own_code(lite: Cli) -> None:
    lite.ok("migrate")
    lite.ok("enqueue", "doze", "seconds:=120")
    with running(lite, "--no-cron", "--grace", "60s") as node:
        node.wait_for("job.start")
        node.process.send_signal(signal.SIGINT)
        node.wait_for("node.stopping")
        started = time.monotonic()
        assert node.end(signal.SIGINT) == ExitCode.INTERRUPTED
        assert time.monotonic() - started < 5


def test_a_node_ends_after_so_many_jobs(ready: Cli) -> None:
    ready.app().enqueue_all([samplejobs.add(a=n) for n in range(5)])
    with running(ready, "--no-cron", "--max-jobs", "3") as node:
        assert node.process.wait(90) == ExitCode.OK
    assert states(ready).count("completed") == 3


@pytest.mark.slow
def test_a_node_ends_once_it_is_larger_than_allowed(lite: Cli) -> None:
    lite.ok("migrate")
    with running(lite, "--no-cron", "--max-memory", "17MB") as node:
        assert node.process.wait(90) == ExitCode.OK
        assert "of memory" in node.log


def test_the_banner_names_what_runs_and_masks_the_password(lite: Cli) -> None:
    (lite.folder / "ours.py").write_text(
        "from jobkit import PluginInfo, hookimpl\njobkit_plugin = PluginInfo(api=1, replaces='pruner')\n"
        "@hookimpl\ndef jobkit_services(app, node):\n    return []\n"
    )
    (lite.folder / "wrong.py").write_text(
        "from jobkit import hookimpl\n@hookimpl\ndef jobkit_servces(app):\n    pass\n"
    )
    env = {"JOBKIT_IMPORTS": "ours,wrong,tests.cli.samplejobs", "JOBKIT_DISABLE": "cron"}
    lite.ok("migrate")
    with running(lite, "--drain", **env) as node:
        node.process.wait(90)
        for words in (
            "replaced  'pruner' by 'ours'",
            "skipped   'wrong'",
            "jobkit_services",
            "disabled  'cron'",
            "default:10",
        ):
            assert words in node.log


def test_a_check_loads_everything_and_starts_nothing(lite: Cli) -> None:
    lite.ok("migrate")
    assert "everything is in order" in lite.ok("run", "--check").stderr
    assert lite.json("nodes")["items"] == []
    assert lite("run", "--check", "--set", "plugins.pruner.batch=0").exit_code == ExitCode.CONFIG


@pytest.mark.empty_database
def test_a_node_refuses_tables_that_are_out_of_date(lite: Cli) -> None:
    import sqlite3

    sqlite3.connect(lite.url.removeprefix("sqlite:///")).execute(
        "CREATE TABLE theirs (id)"
    ).connection.close()
    with running(lite) as node:
        assert node.process.wait(60) == ExitCode.SCHEMA
        assert "jobkit migrate" in node.log


def test_services_may_be_left_out(lite: Cli) -> None:
    lite.ok("migrate")
    lite.ok("enqueue", "add", "a=1", "--in", "0.2s")
    with running(lite, "--only-queues") as node:
        node.wait_for("node.start")
        wait_until(lambda: lite.json("nodes")["items"] != [])
        info = lite.json("nodes")["items"][0]["info"]
        assert not {name for name in info["services"] if "heartbeat" not in name}
        node.end()


def test_a_node_may_have_a_name(lite: Cli) -> None:
    lite.ok("migrate")
    with running(lite, "--node", "blue", "--no-cron") as node:
        node.wait_for("node.start node=blue:")
        node.end()
    assert lite("run", "--node", "not a name").exit_code == ExitCode.USAGE


def test_plugin_settings_come_from_the_command_line(lite: Cli) -> None:
    result = lite.ok("config", "show", "plugins.pruner.batch", "--set", "plugins.pruner.batch=7", "--json")
    assert json.loads(result.stdout)["items"][0]["origin_kind"] == "command line"


# -- health


def ask(port: int, path: str) -> tuple[int, dict[str, object]]:
    """The status and the body of an answer; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    except OSError:
        return 0, {}


def test_health_tells_ready_and_live(ready: Cli) -> None:
    port = free_port()
    with running(ready, "--no-cron", "--health", f"127.0.0.1:{port}") as node:
        wait_until(lambda: ask(port, "/ready")[0] == 200, 60)
        status, body = ask(port, "/live")
        assert (status, body["state"]) == (200, "running")
        assert ask(port, "/elsewhere")[0] == 404
        node.end()
        assert ask(port, "/live")[0] == 0


def test_health_is_not_ready_while_the_database_is_away(lite: Cli) -> None:
    port = free_port()
    url = f"postgresql://postgres@127.0.0.1:{free_port()}/nowhere?connect_timeout=1"
    with running(lite, "--health", f"127.0.0.1:{port}", JOBKIT_DATABASE_URL=url) as node:
        wait_until(lambda: ask(port, "/live")[0] == 200, 60)
        assert ask(port, "/ready")[0] == 503
        node.wait_for("database trouble")
        assert node.end() == ExitCode.OK


def test_a_port_that_is_taken_is_told(lite: Cli) -> None:
    import socket

    lite.ok("migrate")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = lite("run", "--drain", "--health", f"127.0.0.1:{taken.getsockname()[1]}")
    assert result.exit_code == ExitCode.FAILED
    assert "--health" in result.stderr


# -- several processes


def children(node: Node) -> list[psutil.Process]:
    return psutil.Process(node.process.pid).children()


def test_several_processes_share_the_work_and_one_signal_stops_them_all(ready: Cli) -> None:
    ready.app().enqueue_all([samplejobs.add(a=n) for n in range(50)])
    with running(ready, "--processes", "2", "--no-cron") as node:
        node.wait_for("all 2 processes are ready", 90)
        pids = [child.pid for child in children(node)]
        assert len(pids) == 2
        wait_until(lambda: set(states(ready)) == {"completed"}, 60)
        assert node.end() == ExitCode.OK
        assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.slow
def test_a_process_that_dies_is_started_again(lite: Cli) -> None:
    lite.ok("migrate")
    port = free_port()
    with running(lite, "--processes", "2", "--no-cron", "--health", f"127.0.0.1:{port}") as node:
        node.wait_for("all 2 processes are ready", 90)
        wait_until(lambda: ask(port, "/ready")[0] == 200)
        children(node)[0].kill()
        node.wait_for("ended with signal 9; started again in 1 s")
        wait_until(lambda: node.log.count("all 2 processes are ready") == 2, 90)
        assert node.end(signal.SIGINT) == ExitCode.OK


@pytest.mark.slow
def test_processes_are_replaced_after_so_many_jobs(lite: Cli) -> None:
    lite.ok("migrate")
    lite.app().enqueue_all([samplejobs.add(a=n) for n in range(6)])
    with running(lite, "--processes", "2", "--max-jobs", "2", "--no-cron") as node:
        wait_until(lambda: set(states(lite)) == {"completed"}, 90)
        node.wait_for("replaced")
        node.end()


def test_processes_that_cannot_ever_start_end_the_supervisor(lite: Cli) -> None:
    with running(lite, "--processes", "2", JOBKIT_IMPORTS="no_such_module") as node:
        assert node.process.wait(90) == ExitCode.CONFIG
        assert "no_such_module" in node.log


def test_drained_processes_are_not_started_again(lite: Cli) -> None:
    lite.ok("migrate")
    lite.ok("enqueue", "add", "a=1")
    with running(lite, "--processes", "2", "--drain", "--no-cron") as node:
        assert node.process.wait(90) == ExitCode.OK
    assert states(lite) == ["completed"]


@pytest.mark.slow
def test_processes_end_with_a_supervisor_that_was_killed(lite: Cli) -> None:
    lite.ok("migrate")
    with running(lite, "--processes", "2", "--no-cron") as node:
        node.wait_for("all 2 processes are ready", 90)
        found = children(node)
        os.kill(node.process.pid, signal.SIGKILL)
        wait_until(lambda: not any(child.is_running() and child.status() != "zombie" for child in found), 30)


def test_the_supervisor_keeps_its_own_options_from_the_children() -> None:
    found = child_command(
        ["run", "--processes=4", "--health", ":9000", "--queues", "a:1", "--reload", "--drain"]
    )
    assert found[2:] == ["jobkit", "run", "--queues", "a:1", "--drain"]


@pytest.mark.slow
def test_reload_restarts_when_a_file_changes(lite: Cli) -> None:
    lite.ok("migrate")
    module = lite.folder / "mine.py"
    module.write_text("from jobkit import worker\n\n@worker\ndef first() -> None: ...\n")
    with running(lite, "--reload", "--no-cron", JOBKIT_IMPORTS="mine") as node:
        node.wait_for("node.start", 90)
        Path(module).write_text("from jobkit import worker\n\n@worker\ndef second_one() -> None: ...\n")
        node.wait_for("mine.py changed; restarting", 30)
        node.wait_for("second_one", 90)
        node.end()
