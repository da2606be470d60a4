"""jobkit: `jobkit run`, on Postgres or, as the variant "sqlite", on a SQLite file with synchronous=FULL.

Nothing is switched off for the figures: leases, redaction, history and hooks stay on.
"""

import sqlalchemy as sa

from benchmarks.peers.base import URL, VARIANT, Adapter, Load, script
from benchmarks.peers.ticks import tick
from jobkit import Jobkit, Unique, worker

SQLITE = VARIANT == "sqlite"


@worker(name="noop_async")
async def noop_async(number: int) -> None:
    tick(number)


@worker(name="noop_sync")
def noop_sync(number: int) -> None:
    tick(number)


NOOPS = {"async": noop_async, "sync": noop_sync}
app = Jobkit(f"sqlite:///{URL}" if SQLITE else URL, workers=[noop_async, noop_sync]) if URL else None


class JobkitAdapter(Adapter):
    def open(self):
        self.engine = sa.create_engine(app.engine.url)
        if SQLITE:
            from jobkit import configure_sqlite

            configure_sqlite(self.engine)
        self.engine.connect().close()
        jobs = app.tables.jobs
        left = sa.select(sa.literal(1)).where(
            jobs.c.state.in_(("available", "executing", "scheduled", "retryable"))
        )
        self.left = left.limit(1)

    def close(self):
        self.engine.dispose()
        app.close()

    def setup(self, load: Load):
        app.migrate()

    def enqueue_one(self, kind: str, number: int):
        app.enqueue(NOOPS[kind](number=number))

    def enqueue_many(self, kind: str, count: int):
        noop = NOOPS[kind]
        app.enqueue_all([noop(number=number) for number in range(count)])

    def enqueue_unique(self, kind: str, count: int):
        noop, unique = NOOPS[kind], Unique.args()
        app.enqueue_all([noop(number=number).job(unique=unique) for number in range(count)])

    def enqueue_in_transaction(self, kind: str, number: int):
        with self.engine.begin() as conn:
            app.enqueue(NOOPS[kind](number=number), conn=conn)

    def drained(self) -> bool:
        with app.core.read_engine.connect() as conn:
            return conn.execute(self.left).first() is None

    def worker(self, load: Load) -> list[list[str]]:
        queues = ",".join(f"{queue}:{load.concurrency}" for queue in load.queues)
        module = "benchmarks.peers.jobkit_adapter:app"
        command = script("jobkit", "run", "--app", module, "--queues", queues, "--quiet")
        return [command for _ in range(load.processes)]


ADAPTER = JobkitAdapter()
