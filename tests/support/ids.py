"""Names for parameters that are the same in every process, as xdist needs them."""

from __future__ import annotations

import re


def stable(value: object) -> str:
    """`repr` without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
