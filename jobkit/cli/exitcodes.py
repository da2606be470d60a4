"""The exit codes, as data: code, name, meaning. Commands, tests and `jobkit help exit-codes` walk this table."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["MEANINGS", "ExitCode"]


class ExitCode(IntEnum):
    """What a command says to the shell."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFIG = 3
    NOT_PERMITTED = 4
    NOT_FOUND = 5
    CONFLICT = 6
    PARTLY = 7
    DATABASE = 8
    SCHEMA = 9
    PROBLEMS = 10
    LEFT_RUNNING = 11
    WAIT_TIMEOUT = 124
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def word(self) -> str:
        """The name as JSON errors give it: `not_found`."""
        return self.name.lower()


MEANINGS: Final[dict[ExitCode, str]] = {
    ExitCode.OK: "done as asked",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "wrong usage, or a confirmation is missing",
    ExitCode.CONFIG: "the configuration is wrong, or the app cannot be imported",
    ExitCode.NOT_PERMITTED: "not permitted",
    ExitCode.NOT_FOUND: "not found",
    ExitCode.CONFLICT: "conflict: the job is in another state, or is a duplicate of a unique job",
    ExitCode.PARTLY: "a bulk action was only partly done",
    ExitCode.DATABASE: "the database cannot be reached, or did not answer in time",
    ExitCode.SCHEMA: "the database's tables are not up to date",
    ExitCode.PROBLEMS: "a check found problems",
    ExitCode.LEFT_RUNNING: "the shutdown left jobs running",
    ExitCode.WAIT_TIMEOUT: "the time for waiting was up",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
    ExitCode.TERMINATED: "terminated",
}
