"""Gates: the limits of an attempt, the keys of their counts, and how long a 429 blocks the calls."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, Literal

from attrs import field, frozen

from ..argument_checks import LARGEST, check_number
from ..errors import QuotaExceededError
from ..storage import TakeResult, Window
from ..storage.store import Snapshot
from ..wrong_names import helpful

CountedOperation = Literal["create_job", "send_message", "ask"]

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
MONTH: Final = 31 * DAY
"""The interface says only "per month". With the longest month, the package never allows too many calls."""

USER_LIMIT: Final = "ask_per_user"
"""The limit for each user of the app. All other limits are the service's, and all users share them."""

USUAL_WINDOWS: Final[Mapping[str, float]] = {
    "create_job": HOUR,
    "send_message": HOUR,
    "agent": HOUR,
    "ask_per_key": MONTH,
    "ask_per_organization": HOUR,
    "ask_per_address": DAY,
    USER_LIMIT: HOUR,
}
"""Maps each limit to the length of its window without ``per=``, in seconds."""

FIRST_BLOCK: Final = 60.0
"""Seconds of a block after a 429 without a time. The block doubles with each following 429."""

LONGEST_BLOCK: Final = HOUR
"""Maximum block, in seconds, also for a ``Retry-After``. An hour is the shortest window."""


@helpful
@frozen
class Limit:
    """A number of uses in a window of time.

    Args:
        amount: Maximum number of uses in any window.
        per: The length of the window, in seconds.

    Raises:
        ConfigurationError: *amount* is not a whole number of at least 1, or *per* is below a millisecond.
    """

    amount: int
    per: float = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check both fields."""
        check_number(self.amount, "amount", 1, whole=True)
        check_number(self.per, "per", 0.001, most=LARGEST)


@frozen(kw_only=True)
class QuotaRemaining:
    """The free slots of one limit.

    Args:
        limit: The name of the limit.
        amount: The number of slots in a window.
        per: The length of the window, in seconds.
        left: The number of slots that are free now; 0 while blocked.
        next_in: Seconds until a slot is free; 0 if a slot is free now.
        blocked: Seconds for which a 429 of the service still stops all calls; 0 without a block.
    """

    limit: str
    amount: int
    per: float
    left: int
    next_in: float
    blocked: float = 0.0


@frozen(kw_only=True)
class QuotaScope:
    """The project, or the site, key and user, for which a call is counted.

    Args:
        project: The project of an agent call.
        domain: The site of an assistant call. It is counted as an organization.
        key: A fingerprint of the assistant key, never the key itself.
        user: The ``fp`` of a question. Without it, the limit of a user is not counted.
    """

    project: str = ""
    domain: str = ""
    key: str = ""
    user: str = ""


@frozen(kw_only=True)
class Gate:
    """The conditions for one attempt: no block by the service, and a free slot in every window.

    Args:
        name: The name for calls that one 429 blocks together, and that wait in one line.
        room: The room of all keys. A Redis cluster keeps a room on one node.
        names: The names of the limits, in the order of *windows*.
        windows: The limits' windows.
        user_line: The name of the line in which one user's calls wait, or None.
    """

    name: str
    room: str
    names: tuple[str, ...]
    windows: tuple[Window, ...]
    user_line: str | None = None

    @property
    def block_key(self) -> str:
        """The key of the record that exists while a refusal of the service blocks calls."""
        return f"{self.room}/blocks/{self.name}"

    @property
    def pause_key(self) -> str:
        """The key of the record with the length of the last block. The next block is twice as long."""
        return f"{self.room}/pauses/{self.name}"

    def seconds(self, limit: str) -> float:
        """Return the length of the window of *limit*, in seconds."""
        return self.windows[self.names.index(limit)].seconds

    def refusal(self, result: TakeResult) -> QuotaExceededError:
        """Return the error for a call that does not wait, without a limit's name if the service refused."""
        if result.blocked:
            wait, limit, reason = result.blocked, None, "the service asked for a pause"
        else:
            waits = [usage.opens_in for usage in result.usage]
            wait, limit, reason = max(waits), self.names[waits.index(max(waits))], "every slot is used"
            if limit == USER_LIMIT:
                reason = "this user's share is used up"
        return QuotaExceededError(
            f"quota {limit or 'of the service'}: {reason}; the next slot is in {wait:.1f} s; "
            "nothing was sent",
            retry_after=wait,
            limit=limit,
        )

    def remaining(self, result: TakeResult) -> tuple[QuotaRemaining, ...]:
        """Return the free slots of each limit."""
        return tuple(
            QuotaRemaining(
                limit=name,
                amount=window.amount,
                per=window.seconds,
                left=0 if result.blocked else max(0, window.amount - usage.used),
                next_in=max(usage.opens_in, result.blocked),
                blocked=result.blocked,
            )
            for name, window, usage in zip(self.names, self.windows, result.usage, strict=True)
        )


def gate_of(
    operation: CountedOperation, scope: QuotaScope, limits: Mapping[str, Limit | None], *, address: str
) -> Gate:
    """Return the gate for an attempt.

    Args:
        operation: The operation.
        scope: The scope of the attempt.
        limits: The limits by name. A limit named ``agent`` counts creates and follow-ups together.
        address: The IP address of this process.
    """
    if operation == "ask":
        holders = {
            "ask_per_key": scope.key,
            "ask_per_organization": scope.domain,  # assumption: a domain stands for an organization
            "ask_per_address": address,
        }
        name, room = f"ask:{_fingerprint(scope.domain, scope.key)}", "quota-ask"
        if scope.user:
            holders[USER_LIMIT] = "\0".join((scope.domain, scope.user))  # sites may share user names
    else:
        agent = "agent" if "agent" in limits else operation
        holders = {agent: scope.project}
        name, room = agent, f"quota-{_fingerprint(scope.project)}"
    windows: dict[str, Window] = {}
    for limit_name, holder in holders.items():
        if (limit := limits[limit_name]) is not None:
            # A window of another length has its own log. Otherwise, a shorter window would end its slots.
            length = "" if limit.per == USUAL_WINDOWS[limit_name] else f"@{float(limit.per)!r}"
            key = f"{room}/slots/{limit_name}{length}:{_fingerprint(holder)}"
            windows[limit_name] = Window(key=key, amount=limit.amount, seconds=limit.per)
    user_line = f"{name}/{_fingerprint(holders[USER_LIMIT])}" if USER_LIMIT in windows else None
    return Gate(
        name=name,
        room=room,
        names=tuple(windows),
        windows=tuple(windows.values()),
        user_line=user_line,
    )


def block_seconds(gate: Gate, snapshot: Snapshot, stated: float | None) -> float | None:
    """Return how long to block, in seconds. None if the current block is longer."""
    block, last_length = snapshot.records.get(gate.block_key), snapshot.records.get(gate.pause_key)
    if stated is not None:
        seconds_left = 0.0 if block is None else block.since + float(block.value) - snapshot.now
        return stated if stated > seconds_left else None
    if block is not None:  # this 429 refused a call from before the block
        return None
    return FIRST_BLOCK if last_length is None else min(2 * float(last_length.value), LONGEST_BLOCK)


def _fingerprint(*texts: str) -> str:
    """Return a hash of a project, domain, key, address or user. The count has this name."""
    return hashlib.sha256("\0".join(["mintlify-async quota", *texts]).encode()).hexdigest()[:20]
