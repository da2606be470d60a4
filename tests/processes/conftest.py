"""Rigs of real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Rig


@pytest.fixture
def rig(tmp_path: Path, database_url: str) -> Iterator[Rig]:
    """A database of either backend, and no node yet."""
    made = Rig(tmp_path, database_url)
    yield made
    made.close()
