"""Time limits of a call, and the limit that applies to one attempt."""

from __future__ import annotations

from attrs import define, evolve, field

from ..protocol.argument_checks import check_seconds

__all__ = ["AttemptLimit", "Timeouts"]


@define(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """How long each step of a call may take, in seconds.

    Args:
        connect: Name look-up, connecting and TLS together, for one attempt.
        request: An agent request in all: quota, every attempt, the pauses between
            them, and the answer's body.
        first_event: From sending a question until the assistant's first event.
        idle: The longest silence in an answer after its first event, or None for no limit. It
            counts only while the reply is being read, never while your code works on an event.
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
            check_seconds(getattr(self, name), name)
        for name in ("idle", "total"):
            check_seconds(getattr(self, name), name, none="means no limit")

    def with_total(self, total: float | None) -> Timeouts:
        """Return a copy whose whole answer may take *total* seconds."""
        return evolve(self, total=total)


@define(eq=False)
class AttemptLimit:
    """When an attempt must have its answer, and the timeout that says so.

    Args:
        at: The moment on the session's clock, or None for no limit.
        seconds: The timeout's length.
        phase: The timeout's name: ``request``, ``first_event`` or ``total``.
    """

    at: float | None
    seconds: float
    phase: str


def first_event_limit(timeouts: Timeouts, now: float, deadline: float | None) -> AttemptLimit:
    """Return the limit on asking a question *now*, where *deadline* bounds all attempts."""
    first_event_by = now + timeouts.first_event
    if deadline is not None and deadline < first_event_by:
        return AttemptLimit(deadline, timeouts.total or timeouts.first_event, "total")
    return AttemptLimit(first_event_by, timeouts.first_event, "first_event")
