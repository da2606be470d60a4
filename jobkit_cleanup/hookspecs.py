"""The hook that this plugin adds for others to implement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jobkit.hookspecs import hookspec

if TYPE_CHECKING:
    from jobkit.core import Core
    from jobkit_cleanup.tasks import CleanupTask


@hookspec
def jobkit_cleanups(app: Core) -> Iterable[CleanupTask] | None:
    """Give clean-ups of the plugin's own tables, to be run once an hour.

    Runs at the start of each clean-up job, in its thread. Each task must be bounded and idempotent: it deletes at most
    `limit` rows a call, inside a short transaction that is opened for it, and is called again while it finds that many.
    Names are shown in the job's meta; one that another plugin uses gets the plugin's name before it. Raising: isolated,
    the other clean-ups run. Since api 1.
    """
