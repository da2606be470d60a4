"""What a list of migrations is made of.

Invariant: a list's versions are 1, 2, 3, ...; a released step never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobkit.errors import ConfigError

if TYPE_CHECKING:
    from alembic.operations import Operations

    from jobkit.storage.schema import Tables

__all__ = ["Migrations", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One version. `up` and `down` get Alembic's operations and the core's tables (for prefix and schema).

    They use `op` only, so that they can be printed as SQL; indexes on tables in use are best built with
    `postgresql_concurrently=True` in a step with `transactional=False`, which then must be repeatable.
    """

    version: int
    title: str
    up: Callable[[Operations, Tables], None]
    down: Callable[[Operations, Tables], None]
    transactional: bool = True


@dataclass(frozen=True, slots=True)
class Migrations:
    """The steps of one owner: the core, or a plugin by its own name.

    Raises ConfigError where the versions are not 1, 2, 3, ...
    """

    name: str
    steps: Sequence[Step]

    def __post_init__(self) -> None:
        versions = [step.version for step in self.steps]
        if versions != list(range(1, len(versions) + 1)):
            raise ConfigError(f"migrations of {self.name!r}: versions must be 1, 2, 3, ..., found {versions}")

    @property
    def head(self) -> int:
        """The newest version, 0 where there are no steps."""
        return len(self.steps)
