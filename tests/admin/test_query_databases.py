"""Both databases find the same jobs as the plain evaluator, for any query and any jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from jobkit.admin._facts import Facts
from jobkit.admin._fields import CONDITIONS
from jobkit.admin._match import Surroundings, matches
from jobkit.admin._orders import walk_of
from jobkit.admin._search import Searcher
from jobkit.admin.query import parse
from jobkit.core import Core
from jobkit.jobs import JobState
from tests.admin.support import NOW, add, error, row

LIVE = frozenset({"a:1:x", "b:2:y"})
AROUND = Surroundings(
    NOW,
    live=LIVE,
    paused=frozenset({"mail"}),
    timeouts={"Send": timedelta(seconds=10), "Slow": None},
)

WORDS = st.sampled_from(
    [
        *("a", "Ab", "AB", "é", "É", "ß", "x y", 'q"q', "back\\slash", "100%", "a_b", "!", "*", "[]", "\n"),
        *("42", "0", "-1", "1.5", "true", "null", "[redacted]", "token=s3cr3t", "中", "\x7f", ",", "e", "-"),
        *("\U0001f600", "Timeout", "]", "redacted"),
    ]
)
SCALARS = st.one_of(
    WORDS, st.integers(-3, 50), st.booleans(), st.none(), st.sampled_from([1.5, 0.25, 2**40, 2**70, -0.5])
)
KEYS = st.sampled_from(["a", "b", "x y", "é", "password", "ids", 'k"q', "0"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
SPANS = st.sampled_from([0, 1, 9, 10, 11, 60, 299, 300, 301, 3600, 86_400]).map(
    lambda s: timedelta(seconds=s)
)
TIMES = st.builds(lambda span, micro: NOW - span + timedelta(microseconds=micro), SPANS, st.integers(-2, 2))
ERRORS = st.builds(
    lambda cls, text: error(f"{cls}: {text}\nTraceback\n  {text}"),
    st.sampled_from(["ValueError", "pkg.mod.Timeout", "É"]),
    WORDS,
)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    state = draw(st.sampled_from(list(JobState)))
    started = draw(st.one_of(st.none(), TIMES))
    args = draw(st.dictionaries(KEYS, VALUES, max_size=3))
    meta: dict[str, Any] = draw(st.dictionaries(KEYS, VALUES, max_size=2))
    meta |= draw(
        st.sampled_from(
            [{}, {"cron": "nightly"}, {"snoozed": 2}, {"secret_paths": ["a", "b.a"]}, {"unique_key": "k"}]
        )
    )
    values: dict[str, Any] = {
        "state": state.value,
        "queue": draw(st.sampled_from(["default", "mail", "mail/x"])),
        "worker": draw(st.sampled_from(["Send", "Slow", "send.mail"])),
        "args": args,
        "meta": meta,
        "tags": draw(st.lists(WORDS, max_size=2)),
        "errors": draw(st.lists(ERRORS, max_size=2)),
        "attempt": draw(st.integers(0, 3)),
        "max_attempts": draw(st.sampled_from([1, 3, 20])),
        "priority": draw(st.integers(0, 9)),
        "attempted_by": draw(st.sampled_from([None, "a:1:x", "c:3:z"])),
        "attempted_at": started,
        "inserted_at": draw(TIMES),
        "scheduled_at": draw(TIMES),
    }
    if state.final:
        values[f"{state.value}_at"] = draw(TIMES)
    return row(**values)


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


QUOTED = WORDS.map(quote)
NAMES = st.sampled_from(
    ["mail*", "*x", "*a*", "*", "default", "Send", "send*", "a:1:x", "*:z", "nightly", "k"]
)
LITERALS = st.sampled_from(
    [
        "42",
        "1.5",
        "true",
        "null",
        "*",
        "a*",
        "*b",
        ">5",
        "<=1.5",
        "0..42",
        "-1",
        "..0",
        str(2**40),
        str(2**70),
    ]
)
PATHS = st.sampled_from(
    ["a", "b", "ids[]", "b.a", '"x y"', "é", "ids[0]", "b[].a", '"k\\"q"', '"0"', "a[][]"]
)
WHEN = st.sampled_from(
    [
        "<10s",
        ">5m",
        "<=1h",
        "=5m",
        "10s..1h",
        "..5m",
        "2026-12-01",
        "<2026-12-01T12:00",
        ">2026-12-01T11:59:50Z",
    ]
)


def _values(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, min_size=1, max_size=3).map(",".join)


def _of(names: list[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda name, value: f"{name}:{value}", st.sampled_from(names), _values(values))


TERMS = st.one_of(
    QUOTED,
    st.sampled_from(["42", "Send", "redacted", "s3cr3t"]),
    _of(["state"], st.sampled_from([state.value for state in JobState])),
    _of(
        ["is"],
        st.sampled_from(CONDITIONS),
    ),
    _of(["has"], st.sampled_from(["error", "tags", "meta", "unique"])),
    _of(["queue", "worker", "node", "cron", "unique", "tag", "error.class"], NAMES),
    _of(["tag", "error", "args", "meta"], QUOTED),
    _of(["id", "attempt", "max"], st.sampled_from(["1", "2..4", ">3", "<=2", "..3", "20"])),
    _of(["priority"], st.sampled_from(["1", "2..4", ">3", "..3"])),
    _of(["inserted", "scheduled", "started", "finished"], WHEN),
    _of(["ran", "wait"], st.sampled_from([">10s", "<=10s", "=5m", "0s..1m", "1m.."])),
    st.builds(
        lambda root, path, value: f"{root}.{path}:{value}",
        st.sampled_from(["args", "meta"]),
        PATHS,
        _values(st.one_of(LITERALS, QUOTED)),
    ),
)
QUERIES = st.lists(
    st.builds(lambda sign, term: sign + term, st.sampled_from(["", "", "-"]), TERMS), max_size=3
).map(" ".join)


def found_by_database(app: Core, query: str) -> list[int]:
    parsed = parse(query)
    assert not parsed.problems, (query, parsed.problems)
    with app.read_engine.connect() as conn:
        searcher = Searcher(app, conn, parsed.query, AROUND, timedelta(minutes=1))
        walk = walk_of(searcher.compiler, searcher.base, parsed.query, "id", False)
        assert walk is not None
        jobs = [job.id for job in searcher.walk(walk, 1_000).jobs]
        assert sum(searcher.tally(1_000).counts.values()) == len(jobs)
        return jobs


def found_by_evaluator(app: Core, query: str, rows: Mapping[int, dict[str, Any]]) -> list[int]:
    tree = parse(query).query
    facts = [Facts({"id": id, **values}, app.redactor, NOW) for id, values in sorted(rows.items())]
    return [job.id for job in facts if matches(tree, job, AROUND)]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(jobs(), min_size=1, max_size=8), st.lists(QUERIES, min_size=1, max_size=12))
def test_both_databases_find_what_the_plain_evaluator_finds(
    app: Core, rows: list[dict[str, Any]], queries: list[str]
) -> None:
    with app.engine.begin() as conn:
        conn.execute(delete(app.tables.jobs))
    by_id = dict(zip(add(app, *rows), rows, strict=True))
    for query in queries:
        assert found_by_database(app, query) == found_by_evaluator(app, query, by_id), query
