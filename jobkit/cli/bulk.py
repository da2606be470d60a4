"""Actions on many jobs: preview, confirmation, progress, summary, exit code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Final

from jobkit.cli.confirm import confirm
from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.output import Output
from jobkit.cli.progress import progress
from jobkit.cli.session import Session
from jobkit.cli.shapes import Shape

if TYPE_CHECKING:
    from jobkit.admin.results import ActionResult, JobAction, Preview, Selection
    from jobkit.admin.views import OperationView

__all__ = ["Bulk"]

AT_ONCE: Final = 500
_DONE: Final = {
    "retry": "retried",
    "run_now": "made available",
    "cancel": "cancelled",
    "delete": "deleted",
    "edit": "changed",
}


@dataclass(frozen=True, slots=True)
class Bulk:
    """One action on the jobs of one command."""

    session: Session
    action: JobAction
    results: Shape
    operation: Shape
    preview: Shape
    destroys: bool = False
    yes: bool = False
    dry_run: bool = False
    most: int | None = None
    spread: timedelta | None = None
    reason: str = ""

    # -- by id

    def on_ids(self, ids: Sequence[int]) -> None:
        """Act on exactly these jobs."""
        from jobkit.admin.results import Ids

        wanted = tuple(ids[: self.most] if self.most else ids)
        if not wanted:
            self.session.out.items(self.results, [], empty="no ids")
            return
        if self.dry_run:
            self._show(self.session.actions.preview(self.action, Ids(wanted)))
            return
        if len(wanted) > 1 or self.destroys:
            self._confirm(self.session.actions.preview(self.action, Ids(wanted)))
        if len(wanted) > AT_ONCE or self.spread:
            self._operate(Ids(wanted))
            return
        act = getattr(self.session.actions, self.action)
        self.report(act(wanted, reason=self.reason))

    def report(self, result: ActionResult) -> None:
        """Print what happened to each job; raises with the exit code where not all were changed."""
        out = self.session.out
        if out.human:
            for found in result.results:
                (out.write if found.result == "done" else out.warn)(found.text)
        else:
            out.items(self.results, result.results)
        if not result.ok:
            raise self._partly(result)

    def _partly(self, result: ActionResult) -> CommandError:
        missing, failed = result.count("missing"), result.count("failed")
        rest = len(result.results) - result.done - missing - failed
        text = f"{_DONE[self.action]} {result.done}, left alone {rest}, missing {missing}, failed {failed}"
        if len(result.results) == 1:
            text = result.results[0].text
        if result.done:
            return CommandError(text, ExitCode.PARTLY)
        if failed:
            return CommandError(text, ExitCode.FAILED)
        return CommandError(text, ExitCode.NOT_FOUND if missing and not rest else ExitCode.CONFLICT)

    # -- by query

    def on_query(self, query: str) -> None:
        """Act on all jobs that match now; later ones are left alone."""
        from jobkit.admin.results import Matching

        found = self.session.actions.preview(self.action, Matching(query))
        if self.dry_run:
            self._show(found)
            return
        if not found.total.value:
            self.session.out.note("no jobs match")
            if self.session.out.json:
                self.session.out.items(self.results, [])
            return
        self._confirm(found)
        self._operate(Matching(query, found.max_id))

    def _operate(self, selection: Selection) -> None:
        actions = self.session.actions
        started = actions.start(
            self.action, selection, spread=self.spread, max_jobs=self.most, reason=self.reason
        )
        total = started.total.value if started.total is not None else None
        with _interruptible() as stop, progress(self.session, self.action.replace("_", " "), total) as meter:

            def tell(view: OperationView) -> None:
                meter.update(view.handled, view.total.value if view.total is not None else None)

            ended = actions.run_operation(started.id, progress=tell, stop=stop.is_set)
        if stop.is_set() and ended.open:
            ended = actions.cancel_operation(started.id, reason="interrupted")
        self._summary(ended)
        if stop.is_set():
            raise KeyboardInterrupt

    def _summary(self, view: OperationView) -> None:
        out = self.session.out
        if out.format != "table":
            out.item(self.operation, view)
        why = ", ".join(f"{count:,} {text}" for text, count in view.skips.items())
        out.note(
            f"{_DONE[self.action]} {view.done:,}, skipped {view.skipped:,}{f' ({why})' if why else ''}, "
            f"failed {view.failed:,}"
        )
        if view.error:
            out.warn(view.error)
        if view.failed or view.state in ("failed", "cancelled"):
            code = ExitCode.PARTLY if view.done else ExitCode.FAILED
            raise CommandError(f"operation {view.id} is {view.state}: not all jobs were changed", code)
        if view.open:
            raise CommandError(f"operation {view.id} is run by another process; it goes on", ExitCode.PARTLY)
        if view.skipped and not view.done:
            raise CommandError("no job was changed", ExitCode.CONFLICT)

    # -- asking

    def _confirm(self, found: Preview) -> None:
        if self.yes:
            return
        self._sketch(found)
        words = found.words if not self.most else f"{found.words} (at most {self.most:,})"
        typed = found.will_change.value if found.type_count and found.total.value > 1 else None
        confirm(self.session, words, yes=False, type_count=typed)

    def _show(self, found: Preview) -> None:
        def draw(out: Output) -> None:
            self._sketch(found)
            out.write(found.words)

        self.session.out.item(self.preview, found, draw)

    def _sketch(self, found: Preview) -> None:
        out = self.session.out
        one = found.total.text == "1"
        out.note(
            f"{found.total.text} {'job matches' if one else 'jobs match'}; {found.will_change.text} would be changed"
        )
        for title, counts in (
            ("state", found.by_state),
            ("queue", found.by_queue),
            ("worker", found.by_worker),
        ):
            shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:6])
            if shown:
                out.note(f"  by {title}: {shown}")
        for skip in found.skips:
            out.note(f"  left alone: {skip.text}")


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C ends the operation after the chunk that is under way; a second one at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
