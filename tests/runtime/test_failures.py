"""Exceptions as stored text: bounded, readable, never failing."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit import worker
from jobkit.runtime.body import perform_sync
from jobkit.runtime.executor import job_info
from jobkit.runtime.failures import MAX_STORED, Failure, clean, cut, describe, headline, stored_text
from tests.runtime.support import claimed


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc
    except BaseException as caught:
        return caught


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Fatal(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NotText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


@pytest.mark.parametrize("kind", [Unprintable, Fatal, NotText])
def test_ER1_an_exception_that_cannot_be_turned_into_text_is_still_described(kind: type[Exception]) -> None:
    text = describe(raised(kind("x")))
    assert text.startswith(f"{kind.__name__}: <no text")
    assert "in raised" in text


@worker
def refuses(number: int) -> None:
    raise ValueError(f"no {number}")


def test_a_functions_traceback_begins_with_the_function() -> None:
    job = refuses(number=7)
    try:
        perform_sync(job, job_info(claimed(), {}, bool), ())
    except ValueError as error:
        lines = describe(error).splitlines()

    frames = [line for line in lines if line.startswith("  File")]
    assert lines[0] == "ValueError: no 7"
    assert frames[-1].endswith("in refuses")
    assert not any("_functions.py" in line or "body.py" in line for line in frames)


def chain(length: int) -> BaseException:
    exc: BaseException = ValueError("first")
    for number in range(length):
        following = ValueError(f"number {number}")
        following.__cause__ = exc
        exc = following
    return exc


def endless_chain() -> BaseException:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    return first


def deep_stack() -> BaseException:
    def down(n: int) -> None:
        if n:
            down(n - 1)
        raise RecursionError("deep")

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5_000)
    try:
        down(3_000)
    except RecursionError as exc:
        return exc
    finally:
        sys.setrecursionlimit(limit)
    raise AssertionError


def wide_group() -> BaseException:
    return ExceptionGroup("many", [ValueError(str(n)) for n in range(200_000)])


def nested_groups() -> BaseException:
    exc: Exception = ValueError("x")
    for _ in range(300):
        exc = ExceptionGroup("g", [exc, ValueError("y")])
    return exc


HUGE: list[tuple[str, Callable[[], BaseException]]] = [
    ("a chain of 100,000 causes", lambda: chain(100_000)),
    ("a chain in a circle", endless_chain),
    ("a group of 200,000", wide_group),
    ("groups 300 deep", nested_groups),
    ("a deep stack", deep_stack),
    ("a message of 50 MB", lambda: ValueError("x" * 50_000_000)),
    ("a list of a million", lambda: ValueError(list(range(1_000_000)))),
    ("many arguments", lambda: ValueError(*range(100_000))),
    ("a key of 10 MB", lambda: KeyError("k" * 10_000_000)),
    ("a number of a million digits", lambda: ValueError(10**1_000_000)),
    ("bytes", lambda: ValueError(b"x" * 10_000_000)),
    ("a nested dict", lambda: ValueError({n: {m: list(range(100)) for m in range(100)} for n in range(100)})),
]


@pytest.mark.parametrize(("what", "make"), HUGE, ids=[name for name, _ in HUGE])
def test_ER2_describing_takes_bounded_time_and_memory(what: str, make: Callable[[], BaseException]) -> None:
    exc = make()
    tracemalloc.start()
    started = time.perf_counter()
    text = describe(exc)
    elapsed = time.perf_counter() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert elapsed < 1.0
    assert peak < 4_000_000
    assert len(text) <= 17_000
    assert text.startswith(type(exc).__name__)
    del exc


def test_ER4_a_stored_error_keeps_its_start_and_is_at_most_4_KB() -> None:
    text = stored_text("ValueError: head\n" + "€" * 10_000, lambda text: text)
    assert text.startswith("ValueError: head\n")
    assert len(text.encode()) <= MAX_STORED


@given(st.text(max_size=50) | st.text(alphabet="aé€😀", max_size=60), st.integers(4, 80))
def test_ER4_cutting_never_splits_a_character(text: str, limit: int) -> None:
    short = cut(clean(text), limit)
    assert len(short.encode()) <= limit
    if len(clean(text).encode()) <= limit:
        assert short == clean(text)


@given(st.text(st.characters(), max_size=40))
def test_ER3_any_text_can_be_stored(text: str) -> None:
    stored = clean(text + "\0\ud800")
    assert "\0" not in stored
    stored.encode("utf-8")


def test_ER5_the_whole_text_is_redacted_before_it_is_cut() -> None:
    seen: list[int] = []

    def redact(text: str) -> str:
        seen.append(len(text))
        return text

    stored_text("x" * 9_000, redact)
    assert seen == [9_000]


def test_ER5_a_redactor_that_fails_hides_everything() -> None:
    def redact(text: str) -> str:
        raise RuntimeError("secret")

    assert stored_text("password=hunter2", redact) == "[redaction failed]"


def test_the_text_begins_with_class_and_message_then_the_traceback() -> None:
    first, second, *_ = describe(raised(ValueError("wrong"))).splitlines()
    assert first == "ValueError: wrong"
    assert "test_failures.py" in second


def test_causes_and_contexts_are_named() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as exc:
            raise ValueError("outer") from exc
    except ValueError as exc:
        text = describe(exc)
    assert text.startswith("ValueError: outer\n")
    assert "caused by KeyError: 'inner'" in text


def test_members_of_a_group_are_named() -> None:
    text = describe(ExceptionGroup("several", [ValueError("one"), TypeError("two")]))
    assert text.startswith("ExceptionGroup: several (2 sub-exceptions)")
    assert "[1] ValueError: one" in text
    assert "[2] TypeError: two" in text


def test_the_innermost_frames_of_a_deep_stack_are_kept() -> None:
    text = describe(deep_stack())
    assert "frames left out" in text
    assert "raise RecursionError" in text
    assert len(text.splitlines()) < 60


def test_an_error_from_a_child_is_its_text() -> None:
    failure = Failure("ValueError: wrong\n  File ...", "ValueError")
    assert describe(failure) == "ValueError: wrong\n  File ..."
    assert headline(failure) == "ValueError: wrong"
    assert str(failure) == "wrong"
