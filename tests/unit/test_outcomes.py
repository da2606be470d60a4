from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

from jobkit.outcomes import Cancel, Discard, Done, Outcome, Snooze, outcome_from_json

ALL = [Done(), Snooze(90), Snooze(timedelta(microseconds=1)), Cancel("gone"), Cancel(), Discard("bad input")]


@pytest.mark.parametrize("outcome", ALL, ids=repr)
def test_an_outcome_survives_json_and_pickle_unchanged(outcome: Outcome) -> None:
    assert outcome_from_json(outcome.to_json()) == outcome
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    assert hash(outcome_from_json(outcome.to_json())) == hash(outcome)


def test_outcomes_are_equal_by_class_and_value() -> None:
    assert Snooze(60) == Snooze(timedelta(minutes=1))
    assert Cancel("x") != Discard("x")
    assert Cancel("x") != Cancel("y")


def test_an_outcome_can_be_raised_from_deep_inside() -> None:
    with pytest.raises(Outcome) as caught:
        raise Discard("no such account")
    assert caught.value == Discard("no such account")
    assert str(caught.value) == "no such account"


@pytest.mark.parametrize(
    "delay", [-1, float("nan"), float("inf"), 10**400, timedelta(days=40_000), timedelta(-1)]
)
def test_SC5_a_delay_out_of_range_is_refused(delay: object) -> None:
    with pytest.raises(ValueError, match="100 years"):
        Snooze(delay)  # type: ignore[arg-type]


@pytest.mark.parametrize("delay", [True, "5", None])
def test_a_delay_that_is_no_number_is_refused(delay: object) -> None:
    with pytest.raises(TypeError, match="Snooze"):
        Snooze(delay)  # type: ignore[arg-type]


@pytest.mark.parametrize(("delay", "expected"), [(0, timedelta(0)), (0.25, timedelta(milliseconds=250))])
def test_SC5_zero_and_fractions_mean_what_they_say(delay: float, expected: timedelta) -> None:
    assert Snooze(delay).delay == expected
