"""How long an idle node of another process takes to begin a job, counted from the commit that enqueued it.

    python -m benchmarks.wakeup [--rounds 200] [--url postgresql://...]

Without a URL: a SQLite file in a temporary folder, then a Postgres server made for the purpose.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import create_engine

from jobkit import configure_sqlite
from jobkit.inserting import enqueue_with
from tests.support.chores import note
from tests.support.postgres import PostgresServer
from tests.support.processes import rig, wait_for


def measure(url: str, rounds: int, folder: Path) -> list[float]:
    """The delays in seconds, one a round, sorted."""
    with rig(folder, url) as made:
        made.start()
        engine = create_engine(made.url)
        if engine.dialect.name == "sqlite":
            configure_sqlite(engine)
        delays = []
        for n in range(rounds):
            with engine.begin() as conn:
                enqueue_with(made.core, conn, [note(n=n)])
            committed = time.time()
            lines = wait_for(
                "the job begins",
                lambda n=n: [line for line in made.lines("begin") if line.n == n],
                every=0.005,
            )
            delays.append(lines[0].at - committed)
        engine.dispose()
        return sorted(delays)


def report(name: str, delays: Sequence[float]) -> None:
    """One line: median, 95th and 99th percentile and the worst, in milliseconds."""
    at = [delays[min(int(len(delays) * share), len(delays) - 1)] * 1000 for share in (0.5, 0.95, 0.99, 1.0)]
    print(
        f"{name:9} {len(delays)} jobs: median {at[0]:.1f} ms, 95 % {at[1]:.1f} ms, 99 % {at[2]:.1f} ms, "
        f"worst {at[3]:.1f} ms after the commit"
    )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--url")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jobkit-wakeup-") as name:
        folder = Path(name)
        if given.url:
            report(given.url.partition(":")[0], measure(given.url, given.rounds, folder))
            return
        for kind in ("sqlite", "postgres"):
            (folder / kind).mkdir()
        report("sqlite", measure(f"sqlite:///{folder}/sqlite/jobs.db", given.rounds, folder / "sqlite"))
        server = PostgresServer.create()
        try:
            report("postgres", measure(server.url(), given.rounds, folder / "postgres"))
        finally:
            server.destroy()


if __name__ == "__main__":
    main()
