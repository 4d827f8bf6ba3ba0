"""The limits of time and size of a call, as one value."""

from __future__ import annotations

import math

from attrs import define, evolve, field

from .errors import ConfigurationError

__all__ = ["Timeouts", "check_seconds"]


LONGEST = 1e300  # an int may be too large for a float


def check_seconds(value: object, name: str, *, optional: bool) -> None:
    """Refuse what is no number of seconds above 0; None is one when it is *optional*."""
    if value is None and optional:
        return
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (0 < value < LONGEST or value == math.inf)
    ):
        unset = ", or None for no limit" if optional else ""
        raise ConfigurationError(
            f"{name} must be a number of seconds above 0{unset}; got {value!r:.40}", field=name
        )


@define(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """How long each step of a call may take, in seconds.

    Args:
        connect: Name look-up, connecting and TLS together, for one attempt.
        request: An agent request in all: quota, every attempt, the pauses between
            them, and the answer's body.
        first_event: From sending a question until the assistant's first event.
        idle: The longest silence in an answer after its first event. It counts only
            while the reply is being read, never while your code works on an event.
        total: A whole answer, or None for no limit.
        comments_are_activity: Whether a comment line (the service's keep-alive)
            ends a silence.

    Raises:
        ConfigurationError: A limit is not a number above 0.
    """

    connect: float = field(default=10.0)
    request: float = field(default=60.0)
    first_event: float = field(default=60.0)
    idle: float | None = field(default=120.0)
    total: float | None = field(default=None)
    comments_are_activity: bool = field(default=True)

    def __attrs_post_init__(self) -> None:
        """Check every limit."""
        for name in ("connect", "request", "first_event"):
            check_seconds(getattr(self, name), name, optional=False)
        for name in ("idle", "total"):
            check_seconds(getattr(self, name), name, optional=True)

    def with_total(self, total: float | None) -> Timeouts:
        """Return a copy whose whole answer may take *total* seconds."""
        return evolve(self, total=total)
