"""Log lines: their shape, and how few an outage writes."""

from __future__ import annotations

import logging

import pytest

from jobkit.runtime.logs import Outage, Throttle, log_event
from tests.runtime.support import HandClock


def test_a_line_has_words_for_people_and_fields_for_machines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "jobkit")
    log_event(logging.INFO, "job.stop", {"job_id": 7, "worker": "a b", "ms": 1.25, "none": None})
    [record] = caplog.records
    assert record.getMessage() == "job.stop job_id=7 worker='a b' ms=1.2"
    assert record.jobkit == {"event": "job.stop", "job_id": 7, "worker": "a b", "ms": 1.25, "none": None}  # type: ignore[attr-defined]


def test_an_errors_text_follows_on_its_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    log_event(logging.WARNING, "job.exception", {"job_id": 7}, detail="ValueError: x\n  File ...")
    assert caplog.records[0].getMessage() == "job.exception job_id=7\nValueError: x\n  File ..."


def test_DB2_an_outage_of_any_length_writes_one_warning_then_a_line_each_half_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    told: list[object] = []
    outage = Outage(clock.monotonic, lost=told.append, restored=told.append)
    for _ in range(3_600 * 4):
        outage.failed("claimer", "no server")
        clock.advance(0.25)
    assert outage.active
    assert 119 <= len(caplog.records) <= 121
    outage.succeeded()
    assert not outage.active
    assert "works again after 3600.0 s and 14400 failed tries" in caplog.records[-1].getMessage()
    assert told == ["no server", 3_600.0]


def test_a_flapping_database_writes_no_more_than_a_lasting_outage(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    outage = Outage(clock.monotonic)
    for _ in range(1_200):
        outage.failed("claimer", "no server")
        outage.succeeded()
        clock.advance(0.25)
    assert len(caplog.records) <= 2 * 11


def test_another_kind_of_trouble_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(HandClock().monotonic)
    outage.failed("claimer", "no server", "lost")
    outage.failed("claimer", "read-only", "readonly")
    outage.failed("claimer", "read-only", "readonly")
    assert len(caplog.records) == 2


def test_a_throttle_counts_what_it_holds_back() -> None:
    clock = HandClock()
    throttle = Throttle(clock.monotonic, every=10)
    assert throttle.passes("a") == 0
    assert throttle.passes("a") is None
    assert throttle.passes("a") is None
    assert throttle.passes("b") == 0
    clock.advance(10)
    assert throttle.passes("a") == 2
