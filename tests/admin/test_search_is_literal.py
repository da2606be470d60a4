"""Search compares texts literally, and alike on both databases."""

from __future__ import annotations

import pytest

from jobkit.admin.reads import Reads
from jobkit.core import Core
from tests.admin.support import ADMIN, add, row


def found(app: Core, query: str) -> list[int]:
    page = Reads(app, ADMIN).jobs(query)
    assert not page.problems, page.problems
    return sorted(job.id for job in page.jobs)


@pytest.mark.parametrize(
    ("text", "query", "finds"),
    [
        *(("100%", '"0%"', True), ("100x", '"0%"', False), ("a_b", '"a_b"', True), ("axb", '"a_b"', False)),
        *(
            ("https://x.io/a;b=c?d#e(f)", '"/a;b=c?d#e(f)"', True),
            ("50*", '"0*"', True),
            ("5000", '"0*"', False),
        ),
        *(('say "hi"', '"\\"hi\\""', True), ("back\\slash", '"k\\\\s"', True), ("ÄRGER", '"ärger"', False)),
        *(("Ärger", '"ÄRGER"', True), ("STRASSE", "strasse", True), ("line\nbreak", '"e\nb"', True)),
        *(("it's", '"it\'s"', True), ("'; DROP TABLE jobs; --", '"DROP TABLE"', True), ("!x", '"!"', True)),
    ],
)
def test_DA5_every_character_stands_for_itself(app: Core, text: str, query: str, finds: bool) -> None:
    ids = add(app, row(args={"v": text}))
    assert found(app, query) == (ids if finds else [])
    assert found(app, f"args:{query}") == (ids if finds else [])


def test_numbers_match_the_json_number_and_the_numeric_string(app: Core) -> None:
    number, string, other = add(
        app, row(args={"u": {"id": 42}}), row(args={"u": {"id": "42"}}), row(args={"u": {"id": 420}})
    )
    assert found(app, "args.u.id:42") == [number, string]
    assert found(app, 'args.u.id:"42"') == [string]
    assert found(app, "args.u.id:>42") == [other]


def test_json_syntax_and_keys_are_no_values(app: Core) -> None:
    add(app, row(args={"customer": {"n": 1}}))
    for query in ("customer", '"{"', '"n\\":"', "true", '", "'):
        assert found(app, query) == [], query


def test_DA10_ids_and_numbers_beyond_32_and_53_bits_are_exact(app: Core) -> None:
    big = 2**62 + 1
    (job_id,) = add(app, row(id=big, args={"n": 2**53 + 1}))
    assert job_id == big
    assert found(app, f"id:{big}") == [big]
    assert found(app, f"args.n:{2**53 + 1}") == [big]
    assert found(app, f"args.n:{2**53}") == []
    assert Reads(app, ADMIN).job(big).args == {"n": 2**53 + 1}
    page = Reads(app, ADMIN).jobs("id:>5")
    assert page.max_id == big


def test_a_row_whose_json_is_broken_hides_no_other(lite: Core) -> None:
    broken, good = add(lite, row(args='{"password": "hunter2", broken'), row(args={"x": "fine"}))
    assert found(lite, "fine") == [good]
    assert found(lite, "args.x:fine") == [good]
    assert broken in found(lite, "")
    assert "hunter2" not in repr(Reads(lite, ADMIN).job(broken))
