"""One job with its story, what changed lately, completion, and the qualifiers that plugins add."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import ColumnElement, FromClause

from jobkit.admin.actions import Actions
from jobkit.admin.errors import NotFound
from jobkit.admin.reads import Reads
from jobkit.core import Core
from jobkit.hookspecs import Qualifier, hookimpl
from jobkit.jobs import JobState
from tests.admin.conftest import make_app
from tests.admin.support import ADMIN, NOW, add, ago, error, put, put_node, row


def test_a_job_tells_its_story_in_order(app: Core) -> None:
    failures = [
        error("ValueError: first\nTraceback", 1, ago(minutes=50)),
        error("acme.Timeout: second", 2, ago(minutes=10)),
    ]
    (job_id,) = add(
        app,
        row(
            state="discarded",
            errors=failures,
            attempt=2,
            max_attempts=2,
            inserted_at=ago(hours=1),
            scheduled_at=ago(minutes=20),
            attempted_at=ago(minutes=12),
            attempted_by="n",
            discarded_at=ago(minutes=10),
            meta={"snoozed": 2, "source": "import"},
        ),
    )
    detail = Reads(app, ADMIN).job(job_id)
    assert [event.kind for event in detail.timeline] == [
        "inserted",
        "failed",
        "started",
        "failed",
        "discarded",
    ]
    assert detail.timeline[1].gap == timedelta(minutes=10)
    assert [(e.attempt, e.cls, e.message, e.traceback) for e in detail.errors] == [
        (2, "acme.Timeout", "second", ""),
        (1, "ValueError", "first", "Traceback"),
    ]
    assert [(a.attempt, a.outcome, a.node) for a in detail.attempts] == [
        (2, "discarded", "n"),
        (1, "failed", None),
    ]
    assert (detail.job.duration, detail.job.wait) == (timedelta(minutes=2), timedelta(minutes=8))
    assert (detail.job.snoozed, detail.job.markers) == (2, ("snoozed",))
    assert detail.actions["retry"].allowed
    assert not detail.actions["cancel"].allowed
    assert detail.actions["cancel"].reason == f"job {job_id} is already discarded"
    Actions(app, ADMIN).retry([job_id], reason="again")
    assert "retried by ana@host (again)" in [event.text for event in Reads(app, ADMIN).job(job_id).timeline]


def test_a_job_that_is_gone_may_have_been_pruned(app: Core) -> None:
    with pytest.raises(NotFound, match=r"job 7 is not here; it may have been pruned .*7 days"):
        Reads(app, ADMIN).job(7)


def test_large_args_are_listed_by_their_size(app: Core) -> None:
    (job_id,) = add(app, row(args={"text": "x" * 100_000}))
    reads = Reads(app, ADMIN)
    assert reads.jobs().jobs[0].args == "(97 KB)"
    assert reads.job(job_id).args_size > 100_000
    (small,) = add(app, row(args={"text": "y" * 500}))
    shown = reads.summaries([small])[small].args
    assert (len(shown), shown[-1]) == (120, "…")


def test_what_changed_lately_comes_oldest_change_first(app: Core) -> None:
    old = ago(hours=3)
    ids = add(
        app,
        row(state="completed", inserted_at=old, completed_at=ago(minutes=5)),
        row(state="executing", inserted_at=old, attempted_at=ago(minutes=2)),
        row(inserted_at=ago(minutes=1)),
        row(state="completed", inserted_at=old, completed_at=ago(hours=2)),
        row(
            state="retryable",
            inserted_at=old,
            attempted_at=ago(minutes=4),
            errors=[error("E: x", 1, ago(minutes=3))],
        ),
    )
    reads = Reads(app, ADMIN)
    changed = [change.job.id for change in reads.changes_since("", since=ago(minutes=10)).changes]
    assert changed == [ids[0], ids[4], ids[1], ids[2]]
    final = reads.changes_since("is:final", since=ago(minutes=10)).changes
    assert [change.job.id for change in final] == [ids[0]]
    assert reads.newer("", ids[1]) == 3
    assert reads.newer("state:completed", ids[1], cap=1) == 1


def test_the_pages_of_what_changed_leave_out_nothing_and_follow_each_other_in_time(app: Core) -> None:
    old = ago(hours=3)
    rows = []
    for n in range(40):
        at = ago(minutes=60 - n)
        rows += [
            row(state="completed", inserted_at=old, completed_at=at),
            row(state="discarded", inserted_at=old, discarded_at=at, queue="other"),
            row(inserted_at=ago(minutes=60 - n, seconds=(n * 7) % 20)),
            row(state="executing", inserted_at=old, attempted_at=at),
            row(
                state="retryable",
                inserted_at=old,
                attempted_at=ago(hours=2),  # it ran for an hour and more
                errors=[error("E: x", 1, at)],
            ),
        ]
    rows.sort(key=lambda values: values["inserted_at"])
    ids = add(app, *rows)
    reads, cursor, told = Reads(app, ADMIN), None, []
    while True:
        page = reads.changes_since("", since=ago(minutes=60), limit=7, cursor=cursor)
        told += [(change.at, change.job.id) for change in page.changes]
        cursor = page.next
        if cursor is None:
            break
    assert sorted(job for _, job in told) == sorted(ids)
    assert [at for at, _ in told] == sorted(at for at, _ in told)


def test_a_page_of_changes_without_a_match_is_not_the_last_one(app: Core) -> None:
    add(app, *(row(inserted_at=ago(minutes=9), args={"note": f"x{n}"}) for n in range(30)))
    (last,) = add(app, row(inserted_at=ago(minutes=1), args={"note": "wanted"}))
    reads, cursor, found = Reads(app, ADMIN), None, []
    while True:
        page = reads.changes_since('"wanted"', since=ago(minutes=10), limit=5, cursor=cursor)
        found += [change.job.id for change in page.changes]
        cursor = page.next
        if cursor is None:
            break
    assert found == [last]


def test_completion_offers_qualifiers_then_values(app: Core) -> None:
    put(app, "queues", name="mail", updated_at=NOW)
    put_node(app, "web-1:7:ab")
    add(app, row(args={"user": {"id": 42}, "tags": ["a b"]}, tags=["t:1"], errors=[error("ValueError: x")]))
    reads = Reads(app, ADMIN)
    assert [s.text for s in reads.suggest("qu")] == ["queue:"]
    assert [s.text for s in reads.suggest("-state:comp")] == ["completed"]
    assert [s.text for s in reads.suggest("queue:m")] == ["mail"]
    assert [s.text for s in reads.suggest("x queue:low,m")] == ["mail"]
    assert [s.text for s in reads.suggest("args.us")] == ["args.user.id:"]
    assert [s.text for s in reads.suggest("args.user.id:")] == ["42"]
    assert [s.text for s in reads.suggest("args.tags[]:a")] == ['"a b"']
    assert [s.text for s in reads.suggest("error.class:V")] == ["ValueError"]
    assert [s.text for s in reads.suggest("tag:")] == ["t:1"]
    found = reads.suggest("state:d worker:w", 7)[0]
    assert (found.text, found.start, found.length) == ("discarded", 6, 1)
    for text in ("", '"open', "args.", "nope:", "args..:x", "\0"):
        reads.suggest(text)


class Big:
    """A plugin's word: jobs whose priority is at least so much."""

    @hookimpl
    def jobkit_query_qualifiers(self) -> Sequence[object]:
        def at_least(jobs: FromClause, value: object) -> ColumnElement[bool]:
            return jobs.c.priority >= value

        big = Qualifier(
            "big", int, at_least, at_least, lambda prefix: ["5", "7"], help="big:5", aliases=("large",)
        )
        secret = Qualifier("secretive", str, at_least, at_least, redacted=True)
        return [big, secret, Qualifier("state", int, at_least, at_least), "no qualifier"]


def test_a_plugins_qualifier_is_a_word_like_any_other(database_url: str) -> None:
    app = make_app(database_url, plugins=[Big()])
    low, high = add(app, row(priority=1), row(priority=7))
    reads = Reads(app, ADMIN)
    assert [job.id for job in reads.jobs("big:5").jobs] == [high]
    assert [job.id for job in reads.jobs("-large:5").jobs] == [low]
    assert reads.count("big:5").count.value == 1
    assert reads.parse("big:five").problems
    assert "hidden" in reads.parse("secretive:x").problems[0].message
    assert reads.jobs("state:available").jobs
    assert [s.text for s in reads.suggest("big:")] == ["5", "7"]
    assert str(reads.parse("large:5").query) == "big:5"
    assert JobState.AVAILABLE in reads.states("big:5").counts
    app.close()
