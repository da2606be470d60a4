"""What an idle node says to SQLite: nothing but `PRAGMA data_version` between the ticks of services and poll.

    python -m benchmarks.idle_sqlite [--seconds 20] [--queues 2]

Every statement of every connection is seen by SQLite's own trace, counted by the thread that sent it. Ends with
status 1 where the thread that watches for news says anything else, or others more than one round a second each.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool

from jobkit import Jobkit

WATCH = "PRAGMA data_version"
WATCHER = "jobkit-watcher"
Seen = collections.Counter[tuple[str, str]]


def trace(seen: Seen) -> None:
    """Count what every connection that is opened from now on executes."""

    def opened(raw: Any, record: object) -> None:
        raw.set_trace_callback(
            lambda statement: seen.update([(threading.current_thread().name, brief(statement))])
        )

    event.listen(Pool, "connect", opened)


def brief(statement: str) -> str:
    return " ".join(statement.split())[:60]


async def idle(app: Jobkit, queues: str, settle: float, seconds: float, seen: Seen) -> float:
    """Percent of one core that the node takes while it has nothing to do."""
    async with app.node(queues=queues):
        await asyncio.sleep(settle)
        seen.clear()
        cpu = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - cpu
        counted = seen.copy()
    seen.clear()
    seen.update(counted)
    return used / seconds * 100


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--queues", type=int, default=2)
    options = parser.parse_args()
    seen: Seen = collections.Counter()
    trace(seen)
    app = Jobkit(f"sqlite:///{Path(tempfile.mkdtemp(prefix='jobkit-idle-'))}/idle.db")
    app.migrate()
    queues = ",".join(f"queue-{number}:10" for number in range(options.queues))
    cpu = asyncio.run(idle(app, queues, 3.0, options.seconds, seen))
    for (thread, statement), count in seen.most_common():
        print(f"{count / options.seconds:8.2f}/s  {thread:24} {statement}")
    print(f"CPU {cpu:.2f} %")
    watched = {statement for thread, statement in seen if thread == WATCHER}
    others = sum(count for (_, statement), count in seen.items() if statement != WATCH) / options.seconds
    print(f"besides {WATCH}: {others:.1f} statements a second")
    return 0 if watched <= {WATCH} and cpu < 1.0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
