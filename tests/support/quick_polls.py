"""Polls often, for tests in real time: :class:`PollPolicy` itself waits at least 1 s between two polls."""

from __future__ import annotations

from mintlify_async import PollPolicy

INTERVAL = 0.02
"""Seconds between two polls of a wait."""


class QuickPolls(PollPolicy):
    """Waits ``INTERVAL`` between two polls, and 0.05 s after a follow-up until a final status counts."""

    def __init__(self, **settings: float) -> None:
        super().__init__(**{"settle_seconds": 0.05, "per_second": 1000.0} | settings)

    def delay(self, polls: int, random: float) -> float:
        return INTERVAL
