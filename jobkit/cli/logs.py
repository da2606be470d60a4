"""The log of `jobkit run`: lines for people or JSON for machines, on stderr.

Invariant: one record is one line of JSON, or a text whose control characters are written out.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Literal

from jobkit.cli.terminal import clean, json_safe

__all__ = ["JsonFormatter", "TextFormatter", "set_up", "without_repeats"]

AGAIN: Final = 10.0
REMEMBERED: Final = 1_000
_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


def _stamp(created: float) -> str:
    return datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """`2026-12-01T11:52:11.123Z INFO    jobkit job.start id=7 ...`."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """UTC, with milliseconds."""
        return _stamp(record.created)

    def format(self, record: logging.LogRecord) -> str:
        """The line, safe on a terminal."""
        return clean(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields of jobkit's own events."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        found: dict[str, object] = {
            "time": _stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, "jobkit", None)
        if isinstance(fields, dict):
            found |= {str(key): value for key, value in fields.items()}
        else:
            found["message"] = record.getMessage()
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json_safe(json.dumps(found, ensure_ascii=False, default=str))


class Repeats(logging.Filter):
    """Lets a line pass once in ten seconds: a command may look at the plugins twice, and warn of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it was not said just now."""
        text = record.getMessage()
        before = self._said.get(text)
        if before is not None and record.created - before < AGAIN:
            return False
        if len(self._said) > REMEMBERED:
            self._said.clear()
        self._said[text] = record.created
        return True


@contextmanager
def without_repeats(name: str = "jobkit.plugins") -> Iterator[None]:
    """Within the block this logger says nothing twice in a row."""
    logger, repeats = logging.getLogger(name), Repeats()
    logger.addFilter(repeats)
    try:
        yield
    finally:
        logger.removeFilter(repeats)


def set_up(form: Literal["text", "json"], verbose: int, quiet: bool) -> None:
    """Send the log to stderr; other libraries' from warnings on, jobkit's from info on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in [h for h in root.handlers if getattr(h, "jobkit_cli", False)]:
        root.removeHandler(old)
    handler.jobkit_cli = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbose > 1 else logging.INFO if verbose else logging.WARNING)
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logging.getLogger("jobkit").setLevel(level)
