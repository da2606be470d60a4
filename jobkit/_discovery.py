"""Finds what installed distributions offer: entry points, one by one, each distribution once.

Invariant: nothing is imported here, and one unreadable distribution hides no other.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import importlib_metadata

__all__ = ["OWN", "PLUGINS", "WORKERS", "Offer", "discover", "normalized"]

log = logging.getLogger("jobkit.plugins")

PLUGINS: Final = "jobkit"
WORKERS: Final = "jobkit.workers"
OWN: Final = "jobkit-queue"
"""The distribution that brings the built-ins."""

if TYPE_CHECKING:
    from importlib_metadata import Distribution, IDistribution

    _Distribution: TypeAlias = Distribution | IDistribution

_Key: TypeAlias = "tuple[tuple[str, int], ...]"
_remembered: dict[_Key, tuple[Offer, ...]] = {}


@dataclass(frozen=True, slots=True)
class Offer:
    """One entry point: `value` is `module` or `module:attribute`; `distribution` is as its metadata spells
    it.
    """

    group: str
    name: str
    value: str
    distribution: str
    version: str

    @property
    def built_in(self) -> bool:
        """True for what jobkit itself brings."""
        return normalized(self.distribution) == OWN

    @property
    def place(self) -> str:
        """The entry point in words, for messages."""
        return f"{self.value} ({self.distribution} {self.version})"

    def load(self) -> object:
        """Import what it points to; raises whatever that raises."""
        return importlib_metadata.EntryPoint(self.name, self.value, self.group).load()


def normalized(distribution: str) -> str:
    """The name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def discover() -> tuple[Offer, ...]:
    """All entry points of both groups: jobkit's own first, then by distribution, each by name.

    Remembered until a folder of `sys.path` changes.
    """
    key = tuple(_stamps(sys.path))
    found = _remembered.get(key)
    if found is None:
        _remembered.clear()
        found = _remembered[key] = tuple(sorted(_offers(), key=_order))
    return found


def _order(offer: Offer) -> tuple[bool, str, str, str]:
    return (not offer.built_in, normalized(offer.distribution), offer.group, offer.name)


def _stamps(path: Iterable[str]) -> Iterator[tuple[str, int]]:
    for entry in path:
        try:
            yield entry, os.stat(entry or ".").st_mtime_ns
        except OSError:
            yield entry, 0


def _offers() -> Iterator[Offer]:
    seen: set[str] = set()
    for found in importlib_metadata.distributions():
        try:
            if "jobkit" not in (found.read_text("entry_points.txt") or ""):
                continue
            name = _field(found, "Name") or _name_in_path(found)
            if normalized(name) not in seen:
                seen.add(normalized(name))
                yield from _offers_of(_first_on_path(name, found), name)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it is its own affair
            log.warning("cannot read the distribution at %s: %s", getattr(found, "_path", found), error)


def _first_on_path(name: str, found: _Distribution) -> _Distribution:
    """What Python itself takes for this distribution where several installations of it are visible."""
    try:
        return importlib_metadata.distribution(name)
    except importlib_metadata.PackageNotFoundError:
        return found


def _offers_of(distribution: _Distribution, name: str) -> Iterator[Offer]:
    for entry in distribution.entry_points:
        if entry.group in (PLUGINS, WORKERS):
            yield Offer(entry.group, entry.name, entry.value, name, _field(distribution, "Version") or "?")


def _field(distribution: _Distribution, name: str) -> str | None:
    try:
        return distribution.metadata.get(name)
    except importlib_metadata.PackageNotFoundError:
        return None


def _name_in_path(distribution: _Distribution) -> str:
    folder = os.path.basename(str(getattr(distribution, "_path", ""))) or "unnamed"
    return re.sub(r"\.(dist|egg)-info$", "", folder).split("-")[0]
