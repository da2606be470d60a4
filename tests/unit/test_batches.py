"""Batches of services under statement timeouts."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError

from jobkit.plugins._batches import Batches


class QueryCanceled(Exception):
    sqlstate = "57014"


def cut_off() -> OperationalError:
    return OperationalError("DELETE", {}, QueryCanceled())


def test_DB9_a_batch_that_is_cut_off_is_tried_again_with_fewer_rows() -> None:
    tried: list[int] = []

    def work(limit: int) -> int:
        tried.append(limit)
        if limit > 20:
            raise cut_off()
        return limit

    batches = Batches(1_000)
    assert batches.run(work) == (15, 15)
    assert tried == [1_000, 250, 62, 15]
    assert batches.run(work) == (17, 17)


def test_batches_grow_again_up_to_the_setting() -> None:
    batches = Batches(100)
    batches.size = 1
    for _ in range(60):
        batches.run(lambda limit: limit)
    assert batches.size == 100


def test_one_row_that_is_cut_off_and_every_other_error_pass_through() -> None:
    def too_slow(limit: int) -> int:
        raise cut_off()

    def broken(limit: int) -> int:
        raise ValueError(limit)

    batches = Batches(4)
    with pytest.raises(OperationalError):
        batches.run(too_slow)
    assert batches.size == 1
    with pytest.raises(ValueError, match="4"):
        Batches(4).run(broken)
