"""jobkit_cleanup: an hourly job that removes what nobody needs any more.

It cleans jobkit's own tables and, through its hook `jobkit_cleanups`, those of other distributions. Job rows are the
pruner's business, not this one's.
"""

from jobkit_cleanup.tasks import CleanupTask
from jobkit_cleanup.worker import Cleanup

__all__ = ["Cleanup", "CleanupTask"]
