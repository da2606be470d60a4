"""An app whose clock is wrong by CHORES_SKEW seconds: `jobkit run --app tests.support.skewed:app`."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from jobkit import Jobkit
from jobkit.clock import SystemClock
from tests.support import chores


class SkewedClock(SystemClock):
    """The machine's clock, off by some seconds; durations are right."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=float(os.environ.get("CHORES_SKEW", "0")))


app = Jobkit(workers=[chores.note, chores.nap, chores.nap_in_thread, chores.FailsOnce], clock=SkewedClock())
