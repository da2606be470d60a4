"""The parser never raises, never guesses, and prints what it understood."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.admin._ast import Ago, Compare, Exact, Moment, Order, Range, Term, Wild
from jobkit.admin.query import MAX_TERMS, MAX_VALUES, Query, parse, refuse_hidden
from jobkit.jobs import FINAL, JobState
from jobkit.redact import Redactor

PIECES = st.sampled_from(
    [
        *(
            "state:",
            "is:",
            "args.",
            "args.a.b:",
            "queue:",
            "-",
            '"',
            "\\",
            ",",
            ":",
            "..",
            ">",
            "<=",
            "*",
            " ",
            "\n",
        ),
        *(
            "available",
            "failing",
            "2h",
            "2026-11-30",
            "42",
            "true",
            "null",
            "id:",
            "ran:",
            "sort:",
            "time-desc",
            "é",
        ),
        *("[]", "[0]", ".", "inserted:", "error:", "\0", "\ud800", "x" * 300, "tag:", "a"),
    ]
)


@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=30).map("".join)))
def test_no_text_raises_and_every_printed_query_parses_to_itself(text: str) -> None:
    parsed = parse(text)
    assert all(0 <= problem.start <= len(text) and problem.length >= 0 for problem in parsed.problems)
    if not parsed.problems:
        again = parse(str(parsed.query))
        assert again.query == parsed.query
        assert str(again.query) == str(parsed.query)


@given(
    st.text(
        min_size=1,
        max_size=80,
        alphabet=st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]),
    )
)
def test_any_text_can_be_searched_in_quotes(text: str) -> None:
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    parsed = parse(quoted)
    assert not parsed.problems
    assert parsed.query.terms[0].values == (Exact(text, text),)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        (
            "state:available,retryable",
            Term("state", (Exact("available", "available"), Exact("retryable", "retryable"))),
        ),
        ("states:available", Term("state", (Exact("available", "available"),))),
        ("workers:Mail*", Term("worker", (Wild("Mail", False, True),))),
        ("-queue:low", Term("queue", (Exact("low", "low"),), negated=True)),
        ("id:100..200", Term("id", (Range(100, 200, "100", "200"),))),
        ("attempt:>=3", Term("attempt", (Compare(">=", 3, "3"),))),
        ("args.user.id:42", Term("args", (Exact(42, "42"),), path=("user", "id"))),
        ('args.user.id:"42"', Term("args", (Exact("42", "42"),), path=("user", "id"))),
        ("args.ids[]:7", Term("args", (Exact(7, "7"),), path=("ids", None))),
        ('args.email:"a b"', Term("args", (Exact("a b", "a b"),), path=("email",))),
        ("args.flag:true", Term("args", (Exact(True, "true"),), path=("flag",))),
        ("args.x:null", Term("args", (Exact(None, "null"),), path=("x",))),
        ("ran:>30s", Term("ran", (Compare(">", Ago(timedelta(seconds=30), "30s"), "30s"),))),
        ("duration:>30s", Term("ran", (Compare(">", Ago(timedelta(seconds=30), "30s"), "30s"),))),
        ("tag:user:42", Term("tag", (Exact("user:42", "user:42"),))),
        ("42", Term("", (Exact(42, "42"),))),
        ('"42"', Term("", (Exact("42", "42"),))),
        ("node:web-1:99:ab", Term("node", (Exact("web-1:99:ab", "web-1:99:ab"),))),
    ],
)
def test_terms_mean_what_they_say(text: str, term: Term) -> None:
    parsed = parse(text)
    assert not parsed.problems
    assert parsed.query.terms == (term,)


def test_a_date_is_a_whole_day_and_a_time_without_a_zone_is_utc() -> None:
    day = parse("inserted:2026-11-30").query.terms[0].values[0]
    assert isinstance(day, Compare)
    assert isinstance(day.scalar, Moment)
    assert day.scalar.start == datetime(2026, 11, 30, tzinfo=UTC)
    assert day.scalar.end == datetime(2026, 12, 1, tzinfo=UTC)
    zoned = parse("inserted:>2026-11-30T14:00+02:00").query.terms[0].values[0]
    assert isinstance(zoned, Compare)
    assert isinstance(zoned.scalar, Moment)
    assert zoned.scalar.start == datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start", "length", "suggestion"),
    [
        ("state:availible", 6, 9, "available"),
        ("queue:x stat:available", 8, 4, "state"),
        ("is:faling", 3, 6, "failing"),
        ("worker:a*b", 7, 3, '"a*b"'),
        ("args.n:>abc", 7, 4, '">abc"'),
        ('x"y', 0, 3, '"xy"'),
        ("sort:tim", 5, 3, "time"),
    ],
)
def test_a_problem_has_a_place_and_a_suggestion(text: str, start: int, length: int, suggestion: str) -> None:
    (problem,) = parse(text).problems
    assert (problem.start, problem.length, problem.suggestion) == (start, length, suggestion)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "state:",
            "state:a,,b",
            '"open',
            "-",
            "id:x",
            "id:-1",
            "id:99999999999999999999",
            "priority:10",
            "x\0y",
        ),
        *(
            "inserted:2026-13-01",
            "inserted:yesterday",
            "ran:30s",
            "https://x",
            "args.a..b:1",
            "-sort:id",
            "sort:id,time",
        ),
        *(
            "args.a.b.c.d.e.f.g.h.i:1",
            'a"b"',
            '"a"b',
            "x" * 1_001,
            "inserted:0001-01-01T00:00+14:00",
            "wait:200000d>",
        ),
        *("inserted:9999-12-31T23:59-14:00", "\ud800", "args.a:>1e999"),
    ],
)
def test_what_is_wrong_is_a_problem_and_never_another_query(text: str) -> None:
    assert parse(text).problems


def test_terms_and_values_are_bounded() -> None:
    assert not parse(" ".join(["a"] * MAX_TERMS)).problems
    assert parse(" ".join(["a"] * (MAX_TERMS + 1))).problems
    assert not parse("id:" + ",".join(["1"] * MAX_VALUES)).problems
    assert parse("id:" + ",".join(["1"] * (MAX_VALUES + 1))).problems


def test_paths_to_secrets_are_refused_under_any_spelling() -> None:
    redactor = Redactor()
    for text in (
        *(
            "args.password:x",
            "-args.password:x",
            "args.user.api_key:*",
            "args.items[].pin:1",
            'args."password":x',
        ),
        *(
            "meta.token:x",
            "args.card.number:4*",
            "args.PASSWORD:x",
            "args.password[0]:x",
            "args.password.x:1",
        ),
    ):
        assert refuse_hidden(parse(text), redactor.is_secret_path).problems, text
    assert not refuse_hidden(parse("args.author:x args.token_count:3"), redactor.is_secret_path).problems


def test_a_query_knows_which_states_can_match() -> None:
    assert parse("").query.states == frozenset(JobState)
    assert parse("is:final -state:completed").query.states == FINAL - {JobState.COMPLETED}
    assert parse("is:orphaned").query.states == {JobState.EXECUTING}
    assert parse("state:available is:final").query.states == frozenset()
    assert parse("is:snoozed,orphaned").query.states == frozenset(JobState)
    assert parse("-is:orphaned").query.states == frozenset(JobState)


def test_the_order_stands_in_the_query() -> None:
    assert parse("sort:time").query.order == Order("time", None)
    assert parse("sort:time-asc sort:id-desc").query.order == Order("id", True)
    assert Query().order is None
