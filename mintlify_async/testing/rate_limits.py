"""Uses in; how long to wait for the next one out. The limits of the interface, counted exactly."""

from __future__ import annotations

from collections import defaultdict, deque

from attrs import frozen

__all__ = ["LimitCounter", "Limits"]

HOUR, DAY, MONTH = 3600.0, 86_400.0, 30 * 86_400.0


@frozen(kw_only=True)
class Limits:
    """The limits that a service enforces; the defaults are the interface's.

    Args:
        create_job: Creations a project in *agent_window*; None: no limit.
        send_message: Follow-ups a project in *agent_window*; None: no limit.
        together: Whether creations and follow-ups share one count (that of *create_job*).
        agent_window: The agent's window, in seconds.
        ask_per_key: Questions a key in 30 days; None: no limit.
        ask_per_organization: Questions in all in an hour; None: no limit.
        ask_per_address: Questions an address in a day; None: no limit.
        retry_after: Whether a 429 says when to come back.
        reset_headers: Whether every agent answer shows ``X-RateLimit-*`` headers.
    """

    create_job: int | None = 100
    send_message: int | None = 100
    together: bool = False
    agent_window: float = HOUR
    ask_per_key: int | None = 10_000
    ask_per_organization: int | None = 10_000
    ask_per_address: int | None = 10_000
    retry_after: bool = True
    reset_headers: bool = False

    def rules(self, operation: str, project: str, key: str, address: str) -> list[tuple[str, int, float]]:
        """Return what bounds this request: a counter's name, the limit, and its window in seconds."""
        if operation == "ask":
            bounds = [
                (f"key:{key}", self.ask_per_key, MONTH),
                ("organization", self.ask_per_organization, HOUR),
                (f"address:{address}", self.ask_per_address, DAY),
            ]
        elif operation in ("create_job", "send_message"):
            create = operation == "create_job" or self.together
            name = "agent" if self.together else operation
            bounds = [
                (f"{name}:{project}", self.create_job if create else self.send_message, self.agent_window)
            ]
        else:
            bounds = []
        return [(name, limit, window) for name, limit, window in bounds if limit is not None]


class LimitCounter:
    """Counts uses in sliding windows."""

    def __init__(self) -> None:
        """Start with nothing used."""
        self._uses: defaultdict[str, deque[float]] = defaultdict(deque)

    def take(self, rules: list[tuple[str, int, float]], now: float) -> float | None:
        """Count one use of every rule, or return the seconds until there is room in all of them."""
        waits = [wait for rule in rules if (wait := self._wait(*rule, now)) is not None]
        if waits:
            return max(waits)
        for name, _, _ in rules:
            self._uses[name].append(now)
        return None

    def left(self, rule: tuple[str, int, float], now: float) -> tuple[int, float]:
        """Return how many uses are left, and in how many seconds the oldest one leaves the window."""
        name, limit, window = rule
        uses = self._fresh(name, window, now)
        return limit - len(uses), (uses[0] + window - now if uses else 0.0)

    def _wait(self, name: str, limit: int, window: float, now: float) -> float | None:
        uses = self._fresh(name, window, now)
        if len(uses) < limit:
            return None
        return uses[len(uses) - limit] + window - now if limit > 0 else window

    def _fresh(self, name: str, window: float, now: float) -> deque[float]:
        uses = self._uses[name]
        while uses and uses[0] + window <= now:
            uses.popleft()
        return uses
