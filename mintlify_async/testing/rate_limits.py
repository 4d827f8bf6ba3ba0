"""The rate limits that the local service enforces, counted exactly in sliding windows.

The session's quota shares no code with this file, so a test finds a mistake in either of them.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import NamedTuple

from attrs import frozen

from ..runtime.clock import now as date_now
from ..wrong_names import helpful

HOUR, DAY = 3600.0, 86_400.0
MONTH = 31 * DAY  # the longest month, so that a client which passes here passes in every month


class LimitRule(NamedTuple):
    """A limit that applies to a request."""

    counter: str  # the name of the limit, such as create_job:acme
    limit: int  # maximum number of uses in a window
    window: float  # in seconds


@helpful
@frozen(kw_only=True)
class Limits:
    """The rate limits of a service. The defaults are the limits of the API.

    ::

        async with LocalService(limits=Limits(create_job=2)) as service:
            ...  # the third job within an hour gets 429 with Retry-After

    Args:
        create_job: Jobs created per project in an hour. None means no limit.
        send_message: Follow-ups per project in an hour. None means no limit.
        ask_per_key: Questions per key in 31 days, the longest month. None means no limit.
        ask_per_organization: All questions in an hour. None means no limit.
        ask_per_address: Questions per IP address in a day. None means no limit.
    """

    create_job: int | None = 100
    send_message: int | None = 100
    ask_per_key: int | None = 10_000
    ask_per_organization: int | None = 10_000
    ask_per_address: int | None = 10_000

    def rules(self, operation: str, project: str, key: str, address: str) -> list[LimitRule]:
        """Return the limits that apply to a request."""
        counters: dict[str, list[tuple[str, int | None, float]]] = {
            "create_job": [(f"create_job:{project}", self.create_job, HOUR)],
            "send_message": [(f"send_message:{project}", self.send_message, HOUR)],
            "ask": [
                (f"key:{key}", self.ask_per_key, MONTH),
                (f"organization:{project}", self.ask_per_organization, HOUR),
                (f"address:{address}", self.ask_per_address, DAY),
            ],
        }
        return [
            LimitRule(name, limit, window) for name, limit, window in counters[operation] if limit is not None
        ]


def used_up() -> dict[str, str]:
    """Return the headers of an agent 429. The limit is free again in an hour."""
    return {
        "Retry-After": f"{HOUR:.0f}",
        "X-RateLimit-Limit": "100",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": f"{date_now() + HOUR:.0f}",
    }


class LimitCounter:
    """Counts uses in sliding windows."""

    def __init__(self) -> None:
        self._uses: defaultdict[str, deque[float]] = defaultdict(deque)

    def take(self, rules: list[LimitRule], now: float) -> float:
        """Return the seconds until every rule allows a use. If that is 0, count one use for each rule."""
        seconds = max((self._wait(rule, now) for rule in rules), default=0.0)
        for rule in rules if seconds == 0 else ():
            self._uses[rule.counter].append(now)
        return seconds

    def headers(self, rules: list[LimitRule], now: float) -> dict[str, str]:
        """Return the headers for the rule with the fewest uses left."""
        if not rules:
            return {}
        rule = min(rules, key=lambda rule: rule.limit - len(self._recent(rule, now)))
        uses = self._recent(rule, now)
        reset = uses[0] + rule.window - now if uses else 0.0
        return {
            "X-RateLimit-Limit": str(rule.limit),
            "X-RateLimit-Remaining": str(rule.limit - len(uses)),
            "X-RateLimit-Reset": str(math.ceil(date_now() + reset)),
        }

    def _wait(self, rule: LimitRule, now: float) -> float:
        uses = self._recent(rule, now)
        if len(uses) < rule.limit:
            return 0.0
        return uses[len(uses) - rule.limit] + rule.window - now if rule.limit > 0 else rule.window

    def _recent(self, rule: LimitRule, now: float) -> deque[float]:
        uses = self._uses[rule.counter]
        while uses and uses[0] + rule.window <= now:
            uses.popleft()
        return uses
