"""A child that is forked while another thread writes to SQLite can write itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from sqlalchemy import select

from jobkit.storage.engine import make_engine
from jobkit.storage.migrations import up
from jobkit.storage.schema import tables_for
from tests.storage.support import Settings

FORK_WHILE_WRITING = """
import os, sys, threading
from jobkit.config import Config
from jobkit.core import Core
from jobkit.inserting import enqueue_with
from tests.support.chores import note

core = Core(Config(database_url=sys.argv[1]))
forking, writing, forked = threading.Event(), threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)  # what is registered last comes first

def write():
    with core.engine.begin() as conn:
        enqueue_with(core, conn, [note(n=1)])
        writing.set()
        forking.wait(30)
        forked.wait(0.3)

writer = threading.Thread(target=write)
writer.start()
writing.wait(30)
child = os.fork()
if child == 0:
    try:
        enqueue_with(core, None, [note(n=2)])
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)
forked.set()
writer.join()
enqueue_with(core, None, [note(n=3)])
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_FK1_a_child_forked_while_another_thread_writes_enqueues(sqlite_url: str) -> None:
    tables = tables_for()
    engine = make_engine(Settings(sqlite_url))
    up(engine, tables)
    done = subprocess.run(
        [sys.executable, "-c", FORK_WHILE_WRITING, sqlite_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with engine.connect() as conn:
        args = conn.scalars(select(tables.jobs.c.args)).all()
    engine.dispose()
    assert sorted(json.loads(row)["n"] for row in args) == [1, 2, 3]
