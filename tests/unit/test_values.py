"""Durations, sizes, queue specifications: what is accepted means exactly one thing, the rest is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.config import (
    QueueConfig,
    format_duration,
    format_size,
    parse_duration,
    parse_queues,
    parse_size,
)
from jobkit.errors import ConfigError

NAMES = st.text("abcXYZ019_-./", min_size=1, max_size=128)
LIMITS = st.integers(1, 100_000)
DURATIONS = st.timedeltas(timedelta(0), timedelta(days=36_525))


# ---------------------------------------------------------------- durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("5m", 300),
        ("2h", 7_200),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("250ms", 0.25),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        (" 10s ", 10),
        ("1.5s", 1.5),
        ("0.5h", 1_800),
        ("0", 0),
        ("0s", 0),
        ("0.000001s", 0.000001),
        ("1d2h3m4s5ms", 93_784.005),
    ],
)
def test_SC5_a_duration_means_what_it_says(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "s", "10", "1.5", "-1s", "- 1s", "+1s", "10 s 5", "10S", "10x", "1s1m", "1s1s", "1e3s",
        ".5s", "1.s", "٣s", "１s", "1_0s", "nan", "infs", "never", "P1D", "1,5s", "1m\x00", "40000d",
        "0.0000001s", "9" * 400 + "s",
        5, 1.5, True, False, None, b"1s", [], timedelta(-1), timedelta.max,
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_duration(value)
    assert len(str(caught.value)) < 1_500


def test_a_value_too_large_to_be_shown_is_refused_all_the_same() -> None:
    for parse in (parse_duration, parse_size, parse_queues):
        for value in ("9" * 5_000 + "s", "9" * 5_000 + "MB", "a:" + "9" * 5_000, [10**5_000], -(10**5_000)):
            with pytest.raises(ConfigError) as caught:
                parse(value)
            assert len(str(caught.value)) < 500


@given(DURATIONS)
def test_a_formatted_duration_reads_back_as_itself(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration
    assert parse_duration(duration) == duration


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_config_error(text: str) -> None:
    try:
        duration = parse_duration(text)
    except ConfigError:
        return
    assert duration >= timedelta(0)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (None, "never"),
        (timedelta(0), "0s"),
        (timedelta(days=7), "7d"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(seconds=25), "25s"),
        (timedelta(milliseconds=250), "0.25s"),
        (timedelta(microseconds=1), "0.000001s"),
        (timedelta(seconds=100), "1m40s"),
        (timedelta(seconds=-5), "-5s"),
    ],
)
def test_a_duration_is_written_in_its_largest_units(duration: timedelta | None, text: str) -> None:
    assert format_duration(duration) == text


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512_000_000), ("512mb", 512_000_000), ("64KiB", 65_536), ("1.5 GB", 1_500_000_000),
     ("2M", 2_000_000), ("10B", 10), (7, 7), (0, 0)],
)  # fmt: skip
def test_a_size_means_what_it_says(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "512", "MB", "-1MB", "1XB", "1e3MB", "٣MB", -1, 1.5, True, None, []])
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="is no size; expected one such as 512MB"):
        parse_size(value)


@given(st.integers(0, 2**60) | st.sampled_from([10**9, 2**30, 512 * 10**6]))
def test_a_formatted_size_reads_back_as_itself(size: int) -> None:
    assert parse_size(format_size(size)) == size


# ---------------------------------------------------------------- queues


def test_a_queue_specification_keeps_its_order() -> None:
    assert list(parse_queues("mail:5, default:10 ,a/b-c.d_e:1")) == ["mail", "default", "a/b-c.d_e"]
    assert parse_queues("mail:5") == {"mail": QueueConfig(5)}


@given(st.dictionaries(NAMES, LIMITS, min_size=1, max_size=8))
def test_text_list_and_mapping_of_the_same_queues_are_equal(limits: dict[str, int]) -> None:
    entries = [f"{name}:{limit}" for name, limit in limits.items()]
    expected = {name: QueueConfig(limit) for name, limit in limits.items()}
    assert parse_queues(",".join(entries)) == expected
    assert parse_queues(entries) == expected
    assert parse_queues(limits) == expected
    assert parse_queues(expected) == expected


@pytest.mark.parametrize(
    ("spec", "quoted"),
    [
        ("", "''"),
        (",", "''"),
        ("a:1,", "''"),
        ("a", "'a' has no limit; write a:10"),
        ("a:", "''"),
        (":5", "''"),
        ("a:0", "'0'"),
        ("a:-1", "'-1'"),
        ("a:+1", "'+1'"),
        ("a:1.5", "'1.5'"),
        ("a:ten", "'ten'"),
        ("a:1e2", "'1e2'"),
        ("a:1_0", "'1_0'"),
        ("a:٣", "'٣'"),
        ("a: 1", "' 1'"),
        ("a:1:2", "'1:2'"),
        ("a:100001", "'100001'"),
        ("a:" + "9" * 500, "'999"),
        ("a;b:1", "'a;b'"),
        ("a b:1", "'a b'"),
        ("ä:1", "'ä'"),
        ("x" * 129 + ":1", "xxx"),
        ("a:1 b:2", "'1 b:2'"),
    ],
)
def test_QU2_a_malformed_specification_is_refused_and_quoted(spec: str, quoted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_queues(spec)
    assert quoted in str(caught.value)


@pytest.mark.parametrize("spec", ["*", "*:5", "mail*:5", "ma?l:1"])
def test_QU5_a_wildcard_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="has a wildcard; name each queue in full"):
        parse_queues(spec)


@pytest.mark.parametrize("spec", ["a:1,b:2,a:1", "a:1,a:2", ["a:1", "a:1"]])
def test_QU5_a_repeated_name_is_refused(spec: object) -> None:
    with pytest.raises(ConfigError, match="the queue 'a' is named twice"):
        parse_queues(spec)


@pytest.mark.parametrize(
    "spec",
    [5, None, True, b"a:1", [1], {"a": "5"}, {"a": 0}, {"a": True}, {"a": 1.0}, {"a": None}, {1: 1}, {"*": 1},
     {"a": {"limit": 1, "pause": True}}, {"a": {"limit": 1, "paused": "yes"}}],
)  # fmt: skip
def test_QU2_a_specification_of_another_type_is_refused(spec: object) -> None:
    with pytest.raises(ConfigError):
        parse_queues(spec)


def test_a_mapping_may_name_no_queues_at_all() -> None:
    assert parse_queues({}) == {}


@given(st.text("a1:,*- ", max_size=10))
def test_QU2_any_text_is_a_valid_specification_or_a_config_error(spec: str) -> None:
    try:
        queues = parse_queues(spec)
    except ConfigError:
        return
    assert queues
    assert all(queue.limit >= 1 for queue in queues.values())


@pytest.mark.parametrize("limit", [0, -1, 100_001, True, 1.0, "5", None])
def test_QU2_a_queue_config_refuses_what_is_no_limit(limit: object) -> None:
    with pytest.raises(ConfigError, match="is no whole number from 1 to 100000"):
        QueueConfig(limit)  # type: ignore[arg-type]


def test_a_queue_config_refuses_a_pause_that_is_no_switch() -> None:
    with pytest.raises(ConfigError, match="expected true or false"):
        QueueConfig(1, paused="no")  # type: ignore[arg-type]
