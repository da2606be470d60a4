"""Drives the real engine and the model side by side, in random order.

After every step all rows are read back: they must say what the model says.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import msgspec
import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from jobkit import JobInfo, Jobkit, Worker
from jobkit.admin.actions import Actions
from jobkit.hookspecs import Actor
from jobkit.jobs import FINAL, JobState, Lease, Unique
from jobkit.outcomes import Cancel, Discard, Done, Outcome, Snooze
from jobkit.runtime.executor import run_claimed
from jobkit.storage.base import ClaimedJob
from jobkit.storage.engine import atomic, reading
from jobkit.testing import FrozenClock
from tests.model.jobs_model import Model, ModelJob

START = datetime(2030, 1, 1, tzinfo=UTC)
BACKOFF = timedelta(seconds=30)
MACHINES = ("alpha", "beta")
QUEUE = "default"
script: list[Outcome | Exception] = []
"""What the next run returns or raises."""


class Scripted(Worker, name="scripted"):
    """Does what the script says."""

    subject: str = ""

    async def perform(self, job: JobInfo) -> Outcome:
        result = script.pop()
        if isinstance(result, Outcome):
            return result
        raise result

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        return BACKOFF


class QueueMachine(RuleBasedStateMachine):
    """`app` is set by the test: one database, emptied before each run."""

    app: ClassVar[Jobkit]
    clock: ClassVar[FrozenClock]

    leases = Bundle("leases")
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.claims: dict[Lease, ClaimedJob] = {}
        self.last_at: dict[str, datetime] = {}
        self.born = 0
        self.storage = self.app.core.storage
        self.actions = Actions(self.app.core, Actor("tester@host", via="cli"))

    @initialize(target=ids)
    def begin(self) -> object:
        """An empty database, two nodes, and a few jobs, so that short sequences get somewhere, too."""
        self.empty()
        plain = self.insert_one(0, 0, 2, "", "incomplete")
        keyed = [self.insert_one(0, 1, n, key, "incomplete") for n, key in enumerate("ab", 1)]
        return multiple(*[id for id in (plain, *keyed) if id is not None])

    def empty(self) -> None:
        tables = self.app.tables
        with self.app.engine.begin() as conn:
            for table in (tables.jobs, tables.nodes, tables.queues, tables.audit):
                conn.execute(sa.delete(table))
        script.clear()
        for machine in MACHINES:
            self.boot(machine)

    # -- nodes and time

    def boot(self, machine: str) -> None:
        self.born += 1
        node = self.model.live[machine] = f"{machine}:1:{self.born:08x}"
        with self.app.engine.connect() as conn:
            self.storage.register_node(conn, node, now=self.now, queues={QUEUE: 5}, info={})

    @property
    def now(self) -> datetime:
        return self.clock.now()

    @rule(seconds=st.sampled_from([0.5, 1, 5, 31, 3600]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @rule(seconds=st.sampled_from([1, 45, 600]))
    def the_wall_clock_steps_back(self, seconds: float) -> None:
        self.clock.set(self.now - timedelta(seconds=seconds))

    @rule(machine=st.sampled_from(MACHINES))
    def a_node_crashes_and_is_rescued(self, machine: str) -> None:
        """Another node sees that the row stands still; the machine starts again as a new node."""
        node = self.model.live.pop(machine)
        with self.app.engine.connect() as conn:
            beat = next(row.beat for row in self.storage.live_nodes(conn) if row.node == node)
        self.rescue({node: beat})
        self.boot(machine)

    def rescue(self, dead: dict[str, int]) -> None:
        orphans = self.model.orphans()
        with self.app.engine.connect() as conn:
            rescued = self.storage.rescue(conn, dead, now=self.now, limit=1000, error_text="orphaned")
        assert rescued.available + rescued.discarded == len(orphans)
        for job in orphans:
            if job.attempt < job.max_attempts:
                job.reopen(JobState.AVAILABLE)
            else:
                job.errors += 1
                job.finish(JobState.DISCARDED, self.now)

    @rule()
    def rescue_finds_nothing_where_all_nodes_live(self) -> None:
        self.rescue({})

    # -- inserting and claiming

    @rule(
        target=ids,
        delay=st.sampled_from([None, 0, 10, 100]),
        priority=st.integers(0, 2),
        max_attempts=st.integers(1, 3),
        subject=st.sampled_from(["", "a", "b"]),
        states=st.sampled_from(["incomplete", "all"]),
    )
    def insert(
        self, delay: float | None, priority: int, max_attempts: int, subject: str, states: str
    ) -> object:
        id = self.insert_one(delay, priority, max_attempts, subject, states)
        return multiple() if id is None else id

    def insert_one(
        self, delay: float | None, priority: int, max_attempts: int, subject: str, states: str
    ) -> int | None:
        """The new job's id; None for a duplicate."""
        unique = Unique.args("subject", states=states) if subject else False
        new = Scripted(subject=subject).job(
            schedule_in=delay, priority=priority, max_attempts=max_attempts, unique=unique
        )
        holder = self.model.holder(subject) if subject else None
        inserted = self.app.enqueue(new)
        assert inserted.duplicate == (holder is not None)
        if holder is not None:
            assert inserted.id == holder.id
            return None
        assert inserted.id not in self.model.jobs
        at = self.now + timedelta(seconds=delay or 0)
        self.model.jobs[inserted.id] = ModelJob(
            inserted.id,
            JobState.SCHEDULED if at > self.now else JobState.AVAILABLE,
            max_attempts,
            priority,
            at,
            subject or None,
            states,
            holds_key=bool(subject),
        )
        return inserted.id

    @rule(target=leases, machine=st.sampled_from(MACHINES), limit=st.integers(1, 4))
    def claim(self, machine: str, limit: int) -> object:
        return multiple(*self.claim_on(machine, limit))

    def claim_on(self, machine: str, limit: int) -> list[Lease]:
        node = self.model.live[machine]
        at = max(self.now, self.last_at.get(node, START) + timedelta(microseconds=1))
        self.last_at[node] = at
        with self.app.engine.connect() as conn:
            settings = self.storage.queue_settings(conn, node=node, now=self.now).get(QUEUE)
        assert (settings is not None and settings.paused) == self.model.paused
        if self.model.paused:
            return []
        expected = self.model.claimable(at, limit)
        with self.app.engine.connect() as conn:
            claimed = self.storage.claim(conn, QUEUE, limit, node=node, at=at)
        assert [c.id for c in claimed] == [j.id for j in expected]
        for each, job in zip(claimed, expected, strict=True):
            job.attempt += 1
            job.state, job.lease = JobState.EXECUTING, each.lease
            assert each.attempt == job.attempt
            self.claims[each.lease] = each
        return [each.lease for each in claimed]

    @rule(
        target=leases,
        machine=st.sampled_from(MACHINES),
        crash=st.booleans(),
        late=st.sampled_from([Done(), Snooze(20)]),
    )
    def a_job_runs_again_when_the_result_of_its_lost_run_comes(
        self, machine: str, crash: bool, late: Outcome
    ) -> object:
        """On another node, or under another claim of the same one."""
        first = self.claim_on(machine, 1)
        if not first:
            return multiple()
        lease = first[0]
        if crash:
            self.a_node_crashes_and_is_rescued(machine)
        else:
            self.a_run_is_given_back(lease)
        claimed = self.claim_on(machine, 4)
        script.append(late)
        assert self.record(lease) is None
        return multiple(lease, *claimed)

    # -- results of runs, lost leases among them

    @rule(lease=leases, outcome=st.sampled_from([Done(), Snooze(20), Snooze(0), Cancel("c"), Discard("d")]))
    def a_run_ends_with(self, lease: Lease, outcome: Outcome) -> None:
        script.append(outcome)
        job = self.record(lease)
        if job is None:
            return
        if isinstance(outcome, Done):
            job.finish(JobState.COMPLETED, self.now)
        elif isinstance(outcome, Snooze):
            job.attempt -= 1
            job.snoozed += 1
            job.reopen(JobState.SCHEDULED, self.now + outcome.delay)
        else:
            job.errors += 1
            job.finish(JobState.CANCELLED if isinstance(outcome, Cancel) else JobState.DISCARDED, self.now)

    @rule(
        target=leases,
        machine=st.sampled_from(MACHINES),
        outcome=st.sampled_from([Done(), Snooze(20), Cancel("c"), Discard("d"), None]),
    )
    def a_job_runs(self, machine: str, outcome: Outcome | None) -> object:
        """From its claim to its end, without anything in between; None fails."""
        claimed = self.claim_on(machine, 1)
        for lease in claimed:
            if outcome is None:
                self.a_run_fails(lease)
            else:
                self.a_run_ends_with(lease, outcome)
        return multiple(*claimed)

    @rule(lease=leases)
    def a_run_fails(self, lease: Lease) -> None:
        script.append(ValueError("it failed"))
        job = self.record(lease)
        if job is None:
            return
        job.errors += 1
        if job.attempt < job.max_attempts:
            job.reopen(JobState.RETRYABLE, self.now + BACKOFF)
        else:
            job.finish(JobState.DISCARDED, self.now)

    @rule(lease=leases)
    def a_run_is_given_back(self, lease: Lease) -> None:
        job = self.model.executing(lease)
        with self.app.engine.connect() as conn:
            back = self.storage.give_back(conn, [lease], now=self.now)
        assert back == ([lease] if job is not None else [])
        if job is not None:
            job.attempt -= 1
            job.reopen(JobState.AVAILABLE)

    def record(self, lease: Lease) -> ModelJob | None:
        """Run and record; a lease that was lost must write nothing."""
        job = self.model.executing(lease)
        ended = asyncio.run(run_claimed(self.app.core, self.claims[lease]))
        assert ended.settled.change is not None
        with self.app.engine.connect() as conn:
            landed = self.storage.transition(conn, [ended.settled.change])
        assert len(landed) == (1 if job is not None else 0)
        return job

    # -- services

    @rule()
    def stage(self) -> None:
        due = self.model.stageable(self.now)
        with self.app.engine.connect() as conn:
            assert self.storage.stage(conn, now=self.now, limit=1000).count == len(due)
        for job in due:
            job.reopen(JobState.AVAILABLE)

    @rule(age=st.sampled_from([0, 60, 4000]))
    def prune(self, age: int) -> None:
        before = self.now - timedelta(seconds=age)
        gone = self.model.prunable(before)
        with self.app.engine.connect() as conn:
            assert self.storage.prune(conn, before=before, limit=1000) == len(gone)
        for job in gone:
            del self.model.jobs[job.id]

    # -- operators

    @rule(paused=st.booleans())
    def pause_or_resume(self, paused: bool) -> None:
        if paused:
            self.actions.pause_queue(QUEUE)
        else:
            self.actions.resume_queue(QUEUE)
        self.model.paused = paused

    @rule(id=ids)
    def operator_cancels(self, id: int) -> None:
        job = self.model.jobs.get(id)
        done = self.actions.cancel([id]).done
        assert done == (job is not None and job.state not in FINAL)
        if job is not None and done:
            job.finish(JobState.CANCELLED, self.now)

    @rule(id=ids)
    def operator_runs_now(self, id: int) -> None:
        job = self.model.jobs.get(id)
        done = self.actions.run_now([id]).done
        assert done == (job is not None and job.state in (JobState.SCHEDULED, JobState.RETRYABLE))
        if job is not None and done:
            job.reopen(JobState.AVAILABLE, self.now)

    @rule(id=ids)
    def operator_retries(self, id: int) -> None:
        job = self.model.jobs.get(id)
        rival = self.model.holder(job.key) if job is not None and job.key else None
        allowed = job is not None and job.state in (*FINAL, JobState.RETRYABLE)
        free = rival is None or rival is job
        result = self.actions.retry([id])
        assert result.done == (allowed and free), result
        if allowed and not free:
            assert rival is not None
            assert str(rival.id) in result.results[0].text
        if job is not None and result.done:
            job.max_attempts = max(job.max_attempts, job.attempt + 1)
            job.holds_key = job.key is not None
            job.reopen(JobState.AVAILABLE, self.now)

    @rule(id=ids)
    def operator_deletes(self, id: int) -> None:
        job = self.model.jobs.get(id)
        done = self.actions.delete([id]).done
        assert done == (job is not None and job.state is not JobState.EXECUTING)
        if done:
            del self.model.jobs[id]

    # -- what must hold after every step

    @invariant()
    def rows_agree_with_the_model(self) -> None:
        jobs = self.app.tables.jobs
        with self.app.engine.connect() as conn, reading(conn):
            rows = {row.id: row for row in conn.execute(sa.select(jobs))}
        assert rows.keys() == self.model.jobs.keys()
        keys = [row.unique_key for row in rows.values() if row.unique_key is not None]
        assert len(keys) == len(set(keys))
        for id, row in rows.items():
            self.row_agrees(row, self.model.jobs[id])

    def row_agrees(self, row: sa.Row[tuple[object, ...]], job: ModelJob) -> None:
        assert row.state == job.state
        assert (row.attempt, row.max_attempts) == (job.attempt, job.max_attempts)
        assert 0 <= row.attempt <= row.max_attempts
        assert row.scheduled_at == job.scheduled_at
        assert (row.unique_key is not None) == job.holds_key
        assert msgspec.json.decode(row.meta).get("snoozed", 0) == job.snoozed
        assert len(msgspec.json.decode(row.errors)) == job.errors
        for state in FINAL:
            moment = getattr(row, f"{state.value}_at")
            assert moment == (job.final_at if job.state is state else None)
        if job.lease is not None:
            assert (row.attempted_by, row.attempted_at) == (job.lease.node, job.lease.at)


__all__ = ["START", "QueueMachine", "Scripted", "atomic"]
