"""Jobs as the command line prints them: the fields of a job, colours of states, and queries from options."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.session import Session
from jobkit.cli.shapes import Field, Kind
from jobkit.cli.times import parse_time

if TYPE_CHECKING:
    from jobkit.admin.query import Problem
    from jobkit.admin.views import JobSummary

__all__ = [
    "JOB_FIELDS",
    "STATE_STYLES",
    "parse_id",
    "parse_ids",
    "past",
    "problem_text",
    "query_of",
    "state_style",
]

STATE_STYLES: Final = {
    "available": "cyan",
    "scheduled": "blue",
    "executing": "bold yellow",
    "retryable": "magenta",
    "completed": "green",
    "discarded": "bold red",
    "cancelled": "dim",
}


def state_style(state: object) -> str:
    """The colour of a state."""
    return STATE_STYLES.get(str(state), "")


def _of(
    name: str, kind: Kind = "string", help: str = "", column: str | None = None, *, null: bool = False
) -> Field:
    return Field(name, kind, help=help, column=column, nullable=null)


JOB_FIELDS: Final = (
    _of("id", "integer", "the job's id", "id"),
    Field("state", help="one of the seven states", column="state", style=lambda job: state_style(job.state)),
    _of("worker", help="the worker's name", column="worker"),
    _of("queue", help="the queue", column="queue"),
    Field(
        "attempt",
        "integer",
        help="runs begun so far",
        column="tries",
        show=lambda job: f"{job.attempt}/{job.max_attempts}",
    ),
    _of("max_attempts", "integer", "the most runs"),
    Field(
        "at", "time", get=lambda job: job.state_time, help="the time that matters in its state", column="when"
    ),
    _of("duration", "seconds", "of the last run", "ran", null=True),
    Field("args", help="its args in one line, redacted, cut", column="args"),
    _of("error", help="the first line of the last error, redacted", column="error"),
    _of("tags", "list", "its tags"),
    _of("priority", "integer", "0 is first"),
    _of("node", help="the node that ran it last", null=True),
    _of("inserted_at", "time", "when it was inserted"),
    _of("scheduled_at", "time", "when it is or was due"),
    _of("attempted_at", "time", "when the last run began", null=True),
    _of("finished_at", "time", "when it became final", null=True),
    _of("wait", "seconds", "from being due to the last start", null=True),
    _of("cron", help="the recurring entry that made it", null=True),
    _of("snoozed", "integer", "how often it was snoozed"),
    _of("markers", "list", "orphaned, stuck, overdue, ..."),
)
"""Of a `JobSummary`."""

_PLAIN: Final = re.compile(r"[\w./@*+-]+")


def quoted(value: str) -> str:
    """A value of the query language; stars at its ends keep their meaning."""
    if _PLAIN.fullmatch(value):
        return value
    head, tail = ("*" if value[:1] == "*" else ""), ("*" if value[1:] and value[-1] == "*" else "")
    inner = value[len(head) : len(value) - len(tail)]
    escaped = inner.replace("\\", "\\\\").replace('"', '\\"')
    return f'{head}"{escaped}"{tail}'


def query_of(
    session: Session,
    words: Iterable[str],
    *,
    since: str | None = None,
    until: str | None = None,
    **terms: Iterable[str] | str | None,
) -> str:
    """A query from words and from options, which are only sugar for its qualifiers."""
    parts = list(words)
    for name, given in terms.items():
        values = [given] if isinstance(given, str) else list(given or ())
        values = [
            part for value in values for part in (value.split(",") if name != "error" else [value]) if part
        ]
        if values:
            parts.append(f"{name}:{','.join(quoted(value) for value in values)}")
    for option, operator, text in (("--since", ">=", since), ("--until", "<", until)):
        if text is not None:
            parts.append(f"inserted:{operator}{_instant(session, option, text)}")
    return " ".join(parts)


def _instant(session: Session, option: str, text: str) -> str:
    try:
        found = parse_time(past(text), session.now(), session.given.output.zone)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", ExitCode.USAGE) from None
    return found.isoformat().replace("+00:00", "Z")


def past(text: str) -> str:
    """`--since 2h` means two hours ago, since nothing is listed of the future."""
    return f"-{text}" if re.fullmatch(r"(\d+(\.\d+)?[a-z]+)+", text.strip(), re.I) else text


def parse_ids(words: Iterable[str]) -> tuple[int, ...]:
    """Ids as typed: numbers, `100..120`, or `-` for a list on stdin. Raises CommandError."""
    found: dict[int, None] = {}
    for word in words:
        for part in _stdin_words() if word == "-" else [word]:
            low, dots, high = part.partition("..")
            if not low.isdecimal() or (dots and not high.isdecimal()):
                raise CommandError(f"{part!r} is no job id", ExitCode.USAGE)
            last = int(high) if dots else int(low)
            if last - int(low) > 100_000:
                raise CommandError(f"{part!r} are too many ids; use --query 'id:{part}'", ExitCode.USAGE)
            found |= dict.fromkeys(range(int(low), last + 1))
    return tuple(found)


def parse_id(word: str) -> int:
    """One id as typed. Raises CommandError."""
    if not word.isdecimal():
        raise CommandError(f"{word!r} is no job id", ExitCode.USAGE)
    return int(word)


def _stdin_words() -> list[str]:
    return [line.split()[0].rstrip(",") for line in sys.stdin if line.strip()]


def problem_text(query: str, problems: Iterable[Problem]) -> str:
    """What is wrong with a query, each with its place and what was probably meant."""
    lines = []
    for problem in problems:
        shown = query[problem.start : problem.start + problem.length]
        meant = f"; did you mean {problem.suggestion}?" if problem.suggestion else ""
        lines.append(f"{problem.message}{f' (at {shown!r})' if shown else ''}{meant}")
    return "query: " + "; ".join(lines)


def summary_line(job: JobSummary) -> str:
    """One job in a few words."""
    return f"{job.id} {job.worker} ({job.state} in {job.queue})"
