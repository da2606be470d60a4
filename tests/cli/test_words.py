"""Times and values: as people type them, and as people and machines read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.cli.jobtext import quoted
from jobkit.cli.terminal import clean, json_safe, line
from jobkit.cli.times import parse_time, zone_named
from jobkit.cli.words import absolute, ago, duration, human

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)  # a Tuesday

TIMES = {
    "now": NOW,
    "-2h": NOW - timedelta(hours=2),
    "+30m": NOW + timedelta(minutes=30),
    "in 2h": NOW + timedelta(hours=2),
    "1h30m ago": NOW - timedelta(hours=1, minutes=30),
    "2026-12-24": datetime(2026, 12, 24, tzinfo=UTC),
    "2026-12-24T18:00": datetime(2026, 12, 24, 18, tzinfo=UTC),
    "2026-12-24T18:00+02:00": datetime(2026, 12, 24, 16, tzinfo=UTC),
    "2026-12-24T18:00:00Z": datetime(2026, 12, 24, 18, tzinfo=UTC),
    "tomorrow": datetime(2026, 12, 2, tzinfo=UTC),
    "tomorrow 09:00": datetime(2026, 12, 2, 9, tzinfo=UTC),
    "today 23:59:59": datetime(2026, 12, 1, 23, 59, 59, tzinfo=UTC),
    "Yesterday  8:15": datetime(2026, 11, 30, 8, 15, tzinfo=UTC),
    "friday 17:30": datetime(2026, 12, 4, 17, 30, tzinfo=UTC),
    "tue": datetime(2026, 12, 8, tzinfo=UTC),
    "18:00": datetime(2026, 12, 1, 18, tzinfo=UTC),
}


@pytest.mark.parametrize("text", TIMES)
def test_times_are_read_as_people_type_them(text: str) -> None:
    assert parse_time(text, NOW) == TIMES[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "someday",
        "25:00",
        "tomorrow 9",
        "2h",
        "-2 fortnights",
        "2026-13-01",
        "friday noon",
        "-999999999999d",
    ],
)
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_time(text, NOW)


def test_a_time_without_a_zone_is_meant_in_the_zone_that_was_asked_for() -> None:
    paris = ZoneInfo("Europe/Paris")
    assert parse_time("tomorrow 09:00", NOW, paris) == datetime(2026, 12, 2, 8, tzinfo=UTC)
    assert parse_time("2026-07-01T09:00", NOW, paris) == datetime(2026, 7, 1, 7, tzinfo=UTC)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_a_plain_refusal(text: str) -> None:
    try:
        assert parse_time(text, NOW).tzinfo is UTC
    except ValueError:
        pass


def test_zones_have_names() -> None:
    assert zone_named(None) is UTC
    assert zone_named("UTC") is UTC
    with pytest.raises(ValueError, match="unknown"):
        zone_named("Mars/Olympus")
    with pytest.raises(ValueError, match="unknown"):
        zone_named("../../etc/passwd")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0412, "41 ms"),
        (3.2, "3.2 s"),
        (59.96, "1 m"),
        (250, "4 m 10 s"),
        (7_500, "2 h 5 m"),
        (273_600, "3 d 4 h"),
        (-5, "-5.0 s"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


def test_distances_say_before_or_after() -> None:
    assert ago(NOW - timedelta(minutes=3), NOW) == "3m ago"
    assert ago(NOW + timedelta(hours=2), NOW) == "in 2h"
    assert ago(NOW, NOW) == "now"


def test_absolute_times_have_their_zone() -> None:
    assert absolute(NOW, UTC) == "2026-12-01 12:00:00 UTC"
    assert absolute(NOW, ZoneInfo("Europe/Paris")) == "2026-12-01 13:00:00 +01:00 CET"
    assert absolute(NOW, ZoneInfo("America/Sao_Paulo")) == "2026-12-01 09:00:00 -03:00"


def test_values_are_readable() -> None:
    assert human(None) == "–"
    assert human(True) == "yes"
    assert human(1_234_567) == "1,234,567"
    assert human(["a", "b"]) == "a, b"
    assert human({"a": 1}) == "a=1"


@given(st.text())
def test_cleaned_text_has_nothing_that_a_terminal_obeys(text: str) -> None:
    for shown in (clean(text), line(text), json_safe(text)):
        assert not any(ord(c) < 32 and c not in "\n\t" for c in shown)
        assert not any(0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in shown)
        assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u2028")
    assert "\n" not in line(text)
    assert clean(clean(text)) == clean(text)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
def test_an_option_becomes_a_term_that_means_just_that_text(text: str) -> None:
    from jobkit.admin.query import parse

    if text.strip("*") != text or "," in text:
        return
    parsed = parse(f"queue:{quoted(text)}")
    assert not parsed.problems, parsed.problems
    (term,) = parsed.query.terms
    assert [getattr(value, "value", None) for value in term.values] == [text]
