"""The samples of a run, and where and when they were taken; the JSON file is all there is to know of a run."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.harness.roster import Setting
from benchmarks.harness.stage import Bench
from benchmarks.harness.stats import Spread


@dataclass(slots=True)
class Results:
    """Samples by key (`kind|name|setting`), failures, and the machine."""

    machine: dict[str, str] = field(default_factory=dict)
    samples: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)

    def add(self, key: str, sample: Mapping[str, float]) -> None:
        self.samples.setdefault(key, []).append(dict(sample))

    def spread(self, key: str, figure: str = "value") -> Spread | None:
        """Spread of one figure over the rounds, None where it was not measured."""
        values = [sample[figure] for sample in self.samples.get(key, ()) if figure in sample]
        return Spread.of(values) if values else None

    def names(self, kind: str) -> list[tuple[str, str]]:
        """The (name, setting) pairs that a kind was measured for."""
        parts = [key.split("|") for key in self.samples]
        return [(name, setting) for found, name, setting in parts if found == kind]

    def median(self, kind: str, name: str, setting: str = "", figure: str = "value") -> float | None:
        found = self.spread(f"{kind}|{name}|{setting}", figure)
        return found.median if found else None

    def best(self, name: str) -> float | None:
        """The median drain of a contender's best setting."""
        rates = [
            self.median("drain", found, setting) for found, setting in self.names("drain") if found == name
        ]
        return max((rate for rate in rates if rate is not None), default=None)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"machine": self.machine, "samples": self.samples, "failures": self.failures}
        path.write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(**json.loads(path.read_text()))


def describe_machine(bench: Bench) -> dict[str, str]:
    """What a reader needs to judge the figures."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpus": str(os.cpu_count()),
        "processor": processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "postgres": bench.postgres.version if bench.postgres else "-",
        "sqlite": sqlite3.sqlite_version,
        "redis": bench.redis.version if bench.redis else "-",
        "fdatasync": f"{fdatasync_microseconds(bench.scratch):.0f} us",
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def fdatasync_microseconds(directory: Path, rounds: int = 300) -> float:
    """What one durable write of 8 KB costs where the databases lie: the floor under every commit."""
    path = directory / "fdatasync"
    sync = getattr(os, "fdatasync", os.fsync)
    block = bytes(8192)
    with path.open("wb", buffering=0) as file:
        file.write(block * 16)
        started = time.perf_counter()
        for number in range(rounds):
            os.pwrite(file.fileno(), block, number % 16 * 8192)
            sync(file.fileno())
        seconds = time.perf_counter() - started
    path.unlink()
    return seconds / rounds * 1e6


def setting_name(kind: str, processes: int, concurrency: int) -> str:
    return str(Setting(kind, processes, concurrency))
