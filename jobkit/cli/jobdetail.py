"""One job in full, for people: summary, story, data, errors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from jobkit.cli.output import Output
from jobkit.cli.shapes import plain
from jobkit.cli.terminal import clean
from jobkit.cli.words import duration, many

if TYPE_CHECKING:
    from jobkit.admin.views import ErrorView, JobDetail

__all__ = ["draw_job"]

_LIBRARY: Final = re.compile(r'File "[^"]*(?:site-packages|dist-packages|lib/python3)[^"]*"|File "<frozen')


def draw_job(out: Output, detail: JobDetail, *, errors: str, whole: bool) -> None:
    """Print it. `errors`: all, last or none; `whole`: tracebacks with the frames of libraries too."""
    job = detail.job
    _heading(out, f"job {job.id}  {job.worker}  {job.state}")
    out.pairs(
        {
            "queue": job.queue,
            "attempt": f"{job.attempt} of {job.max_attempts}",
            "priority": job.priority,
            "tags": job.tags,
            "cron": job.cron,
            "node": job.node,
            "inserted": job.inserted_at,
            "scheduled": job.scheduled_at,
            "started": job.attempted_at,
            "finished": job.finished_at,
            "ran": job.duration,
            "waited": job.wait,
            "timeout": detail.timeout,
            "unique key": detail.unique_key,
            "marks": job.markers,
        }
    )
    _timeline(out, detail)
    _data(out, "args", detail.args)
    if detail.meta:
        _data(out, "meta", detail.meta)
    shown = {"all": detail.errors, "last": detail.errors[:1]}.get(errors, ())
    for error in shown:
        _error(out, error, whole)
    if len(detail.errors) > len(shown) and errors == "last":
        out.note(f"{many(len(detail.errors) - len(shown), 'more error')}: --errors all")


def _heading(out: Output, text: str) -> None:
    from rich.text import Text

    out.console.print(Text(clean(text), style="bold"))


def _timeline(out: Output, detail: JobDetail) -> None:
    if not detail.timeline:
        return
    _heading(out, "\ntimeline")
    for event in detail.timeline:
        gap = f"  (+{duration(event.gap)})" if event.gap else ""
        out.write(f"  {out.time(event.at)}  {clean(event.text)}{gap}")


def _data(out: Output, title: str, value: object) -> None:
    from rich.syntax import Syntax

    _heading(out, f"\n{title}")
    text = clean(json.dumps(plain(value), indent=2, ensure_ascii=False))
    out.console.print(Syntax(text, "json", background_color="default", word_wrap=True))


def _error(out: Output, error: ErrorView, whole: bool) -> None:
    from rich.syntax import Syntax

    at = f" at {out.time(error.at)}" if error.at else ""
    _heading(out, f"\nerror of attempt {error.attempt}{at}")
    text = error.text if whole else _own_frames(error.text)
    out.console.print(Syntax(clean(text), "pytb", background_color="default", word_wrap=True))


def _own_frames(text: str) -> str:
    """The traceback without the frames of libraries, of which it says how many there were."""
    kept: list[str] = []
    left_out = 0
    skipping = False
    for row in text.splitlines():
        frame = row.startswith("  File ")
        if frame:
            skipping = bool(_LIBRARY.search(row))
            left_out += skipping
        elif not row.startswith("    "):
            skipping = False
        if not skipping:
            kept.append(row)
    if not any(row.startswith("  File ") for row in kept):
        return text
    return "\n".join(kept) + (
        f"\n({left_out} frames of libraries left out; --traceback full)" if left_out else ""
    )
