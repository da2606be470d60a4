"""Pages of jobs: every job once, in an order that an index serves, from any place on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobkit.admin.reads import Reads
from jobkit.core import Core
from jobkit.jobs import JobState
from tests.admin.support import ADMIN, NOW, add, ago, row


def walk(reads: Reads, query: str, **options: object) -> list[int]:
    """All ids, page by page, checking that each page's `previous` leads back."""
    ids: list[int] = []
    page = reads.jobs(query, limit=3, **options)  # type: ignore[arg-type]
    assert page.previous is None
    while True:
        ids += [job.id for job in page.jobs]
        if page.next is None:
            return ids
        before, page = page, reads.jobs(query, limit=3, cursor=page.next, **options)  # type: ignore[arg-type]
        if page.jobs and before.jobs:
            assert page.previous is not None
            back = reads.jobs(query, limit=3, cursor=page.previous, **options)  # type: ignore[arg-type]
            assert [job.id for job in back.jobs] == [job.id for job in before.jobs]


@pytest.mark.parametrize(
    "query", ["", "queue:q1", "state:completed", "is:incomplete", '"hello"', "state:scheduled,retryable"]
)
@pytest.mark.parametrize("sort", ["id", "time", "scheduled", "priority", "attempt", "duration"])
@pytest.mark.parametrize("descending", [True, False])
def test_every_job_comes_once_in_every_order_although_all_times_are_equal(
    lite: Core, query: str, sort: str, descending: bool
) -> None:
    states = [state.value for state in JobState]
    rows = [
        row(state=states[n % 7], queue=f"q{n % 2}", args={"t": "hello"}, priority=n % 3) for n in range(30)
    ]
    add(lite, *rows)
    reads = Reads(lite, ADMIN)
    everything = sorted(job.id for job in reads.jobs(query, limit=200).jobs)
    assert sorted(walk(reads, query, sort=sort, descending=descending)) == everything


def test_both_databases_walk_alike(app: Core) -> None:
    states = [state.value for state in JobState]
    rows = [
        row(state=states[n % 7], attempt=n % 4, scheduled_at=ago(minutes=n % 5), priority=n % 3)
        for n in range(20)
    ]
    add(app, *rows)
    reads = Reads(app, ADMIN)
    for sort in ("id", "time", "scheduled", "priority", "attempt", "duration"):
        assert len(walk(reads, "", sort=sort)) == 20
    by_attempt = [job.attempt for job in reads.jobs(sort="attempt", limit=200).jobs]
    assert by_attempt == sorted(by_attempt, reverse=True)


def test_each_state_begins_with_what_needs_attention(app: Core) -> None:
    add(
        app,
        *(row(state="completed", completed_at=ago(hours=n)) for n in (3, 1, 2)),
        *(row(state="scheduled", scheduled_at=NOW + timedelta(hours=n)) for n in (3, 1, 2)),
        *(row(state="executing", attempted_at=ago(minutes=n)) for n in (1, 3, 2)),
    )
    reads = Reads(app, ADMIN)
    assert [job.id for job in reads.jobs("state:completed").jobs] == [2, 3, 1]
    assert [job.id for job in reads.jobs("state:scheduled").jobs] == [5, 6, 4]
    assert [job.id for job in reads.jobs("state:executing").jobs] == [8, 9, 7]
    assert [job.id for job in reads.jobs().jobs] == list(range(9, 0, -1))


def test_the_last_page_and_the_way_back_from_it(app: Core) -> None:
    ids = add(app, *(row() for _ in range(8)))
    reads = Reads(app, ADMIN)
    last = reads.jobs(end=True, limit=3)
    assert [job.id for job in last.jobs] == ids[2::-1]
    assert last.next is None
    assert last.previous is not None
    before = reads.jobs(cursor=last.previous, limit=3)
    assert [job.id for job in before.jobs] == ids[5:2:-1]


def test_a_jump_to_a_time_starts_there(app: Core) -> None:
    ids = add(app, *(row(inserted_at=ago(hours=10 - n)) for n in range(10)))
    reads = Reads(app, ADMIN)
    assert next(iter(reads.jobs(at=ago(hours=5)).jobs)).id == ids[5]
    assert reads.jobs(at=ago(hours=5, minutes=30)).jobs[0].id == ids[4]
    assert reads.jobs(at=ago(days=9)).jobs == ()
    assert reads.jobs(at=NOW).jobs[0].id == ids[-1]
    add(app, *(row(state="completed", completed_at=ago(hours=n)) for n in (1, 2, 3)))
    assert [job.finished_at for job in reads.jobs("state:completed", at=ago(hours=2)).jobs] == [
        ago(hours=2),
        ago(hours=3),
    ]


@pytest.mark.parametrize("cursor", ["", "!!!", "e30", "x" * 600, "eyJ2IjoxfQ", "é", "bnVsbA", "WzFd"])
def test_a_cursor_that_is_none_gives_the_first_page(lite: Core, cursor: str) -> None:
    add(lite, row())
    page = Reads(lite, ADMIN).jobs(cursor=cursor)
    assert len(page.jobs) == 1
    assert bool(page.note) is bool(cursor)


def test_a_cursor_of_another_filter_or_order_gives_the_first_page_with_a_note(lite: Core) -> None:
    add(lite, *(row() for _ in range(5)))
    reads = Reads(lite, ADMIN)
    cursor = reads.jobs(limit=2).next
    assert not reads.jobs(cursor=cursor, limit=2).note
    assert reads.jobs("queue:default", cursor=cursor, limit=2).note
    assert reads.jobs(sort="time", cursor=cursor, limit=2).note
    assert reads.jobs(descending=False, cursor=cursor, limit=2).note


def test_a_search_in_slices_says_how_far_it_came_and_goes_on_from_there(
    lite: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobkit.admin._orders.SPARSE", 10)
    monkeypatch.setattr("jobkit.admin._search._FIRST_WINDOW", 20)
    monkeypatch.setattr("jobkit.admin._search._LARGEST_WINDOW", 20)
    add(
        lite,
        *(row(queue="rare" if n == 5 else "other", inserted_at=ago(minutes=100 - n)) for n in range(100)),
    )
    reads = Reads(lite, ADMIN)
    page = reads.jobs("queue:rare", budget=timedelta(0))
    assert page.jobs == ()
    assert page.searched is not None
    assert not page.searched.complete
    assert (page.searched.rows, page.searched.to_id) == (20, 81)
    assert page.searched.to_time == ago(minutes=20)
    for _ in range(10):
        if page.next is None:
            break
        page = reads.jobs("queue:rare", budget=timedelta(0), cursor=page.next)
        if page.jobs:
            break
    assert [job.id for job in page.jobs] == [6]
    whole = reads.jobs("queue:rare")
    assert [job.id for job in whole.jobs] == [6]
    assert whole.searched is not None
    assert whole.searched.complete


def test_an_order_without_an_index_is_said_to_be_none(lite: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobkit.admin._orders.SPARSE", 3)
    add(lite, *(row(queue="a", priority=n % 3) for n in range(10)))
    reads = Reads(lite, ADMIN)
    offered = {choice.name: choice for choice in reads.sorts("state:available")}
    assert not offered["duration"].enabled
    assert offered["duration"].reason
    assert not offered["priority"].enabled
    assert {choice.name for choice in reads.sorts("state:available queue:a") if choice.enabled} == {
        "id",
        "inserted",
        "priority",
    }
    assert reads.jobs("sort:attempt").note
    priorities = [job.priority for job in reads.jobs("state:available queue:a").jobs]
    assert priorities == sorted(priorities)


def test_counts_follow_the_filter_and_say_how_precise_they_are(app: Core) -> None:
    add(app, *(row(state="completed", queue="a") for _ in range(6)), *(row(queue="b") for _ in range(4)))
    reads = Reads(app, ADMIN)
    assert reads.count().count.text == "10"
    assert reads.count(cap=3).count.precision != "exact"
    assert reads.count("queue:a").count.text == "6"
    capped = reads.count("queue:a", cap=4).count
    assert (capped.value, capped.text) == (4, "4+")
    states = reads.states("queue:a state:available")
    assert states.counts[JobState.COMPLETED].value == 6
    assert states.counts[JobState.AVAILABLE].value == 0
    assert states.total.value == 6


def test_facets_are_terms_that_narrow_the_list(app: Core) -> None:
    add(app, *(row(queue="a b" if n else "x", tags=["t:1"], meta={"cron": "nightly"}) for n in range(3)))
    reads = Reads(app, ADMIN)
    facets = {facet.qualifier: facet.values for facet in reads.facets().facets}
    assert [(value.value, value.count) for value in facets["queue"]] == [("a b", 2), ("x", 1)]
    for values in facets.values():
        for value in values:
            assert len(reads.jobs(value.term).jobs) == value.count


def test_counts_by_time_of_the_end_are_those_of_the_list(app: Core) -> None:
    add(
        app,
        *(
            row(state=state, **{f"{state}_at": ago(hours=n)})
            for n in range(5)
            for state in ("completed", "discarded")
        ),
    )
    add(app, row())
    reads = Reads(app, ADMIN)
    for query in (
        "finished:<150m",
        "finished:1h..3h",
        "state:completed finished:>90m",
        "finished:<2h finished:>30m",
    ):
        counts = reads.states(query).counts
        assert sum(count.value for count in counts.values()) == len(
            reads.jobs(query.removeprefix("state:completed ")).jobs
        )
        assert reads.count(query).count.value == len(reads.jobs(query).jobs)


def test_a_time_of_insertion_bounds_the_search_and_loses_nothing(
    lite: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobkit.admin._orders.SPARSE", 5)
    add(lite, *(row(inserted_at=ago(hours=200 - n, minutes=(n * 37) % 40)) for n in range(200)))
    reads = Reads(lite, ADMIN)
    page = reads.jobs("inserted:10h..20h", limit=200)
    assert page.searched is not None
    assert page.searched.rows < 20
    by_hand = [
        job.id for job in reads.jobs("", limit=200).jobs if ago(hours=20) <= job.inserted_at <= ago(hours=10)
    ]
    assert [job.id for job in page.jobs] == by_hand
