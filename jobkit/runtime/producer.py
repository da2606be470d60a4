"""The numbers of one queue on this node: how many may run, do run, and are being claimed.

Invariant: `running + claiming` never exceeds the limit that held when a claim was asked for.
"""

from __future__ import annotations

__all__ = ["Producer"]


class Producer:
    """One queue's slots. Owned by the event loop; nothing here touches the database.

    `hot`: there may be due jobs, so claim without asking first. `woken`: somebody said so after the claim
    that is in flight was sent, so its answer must not cool the queue down.
    """

    __slots__ = (
        "claiming",
        "failures",
        "gather_until",
        "hot",
        "limit",
        "name",
        "paused",
        "retry_at",
        "running",
        "woken",
    )

    def __init__(self, name: str, limit: int, paused: bool = False) -> None:
        self.name = name
        self.limit = limit
        self.paused = paused
        self.running = 0
        self.claiming = 0
        self.hot = True
        self.woken = False
        self.failures = 0
        self.retry_at = 0.0
        self.gather_until = 0.0

    @property
    def free(self) -> int:
        """Slots that a claim may fill now."""
        if self.paused:
            return 0
        return max(0, self.limit - self.running - self.claiming)

    @property
    def expects(self) -> bool:
        """True where a claim is under way, or would be sent if nothing held it up."""
        return self.claiming > 0 or (self.hot and not self.paused and self.limit > 0)

    def wake(self) -> None:
        """There may be due jobs."""
        self.hot = self.woken = True

    def asked(self, count: int) -> None:
        """A claim for `count` jobs is on its way."""
        self.claiming += count
        self.woken = False

    def answered(self, asked: int, got: int, full: bool) -> None:
        """The claim for `asked` jobs brought `got` to run; unless it was `full`, the queue is empty for
        now.
        """
        self.claiming -= asked
        self.running += got
        self.failures = 0
        if not full and not self.woken:
            self.hot = False

    def failed(self, asked: int, retry_at: float) -> None:
        """The claim failed; nothing is claimed here before `retry_at` (monotonic seconds)."""
        self.claiming -= asked
        self.failures += 1
        self.retry_at = retry_at

    def released(self) -> None:
        """A run has ended."""
        self.running -= 1
