"""The engine against a plain model, in random order: nothing may be lost, doubled, or written by a lost lease."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from jobkit import Jobkit
from jobkit.config import Config
from jobkit.testing import FrozenClock
from tests.model.machine import START, QueueMachine, Scripted

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def drive(database_url: str, arm: str, *, examples: int, steps: int) -> None:
    clock = FrozenClock(START)
    app = Jobkit(database_url, config=Config(arm=arm), workers=[Scripted], clock=clock)
    app.migrate()
    machine = type("Machine", (QueueMachine,), {"app": app, "clock": clock})
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=CHECKS
            ),
        )
    finally:
        app.close()


def test_the_engine_agrees_with_the_model(database_url: str, arm: str) -> None:
    drive(database_url, arm, examples=8, steps=30)


@pytest.mark.slow
def test_the_engine_agrees_with_the_model_for_long(database_url: str, arm: str) -> None:
    drive(database_url, arm, examples=60, steps=60)
