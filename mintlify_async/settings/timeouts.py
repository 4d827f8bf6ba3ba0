"""Time limits of a call."""

from __future__ import annotations

from attrs import field, frozen

from ..checks import check_bool, check_field, check_seconds
from ..habits import helpful


@helpful
@frozen(kw_only=True)
class Timeouts:
    """How long each step of a call may take, in seconds.

    Args:
        connect: DNS lookup, connecting and TLS together, for one attempt.
        request: An agent request in all: every attempt, the pauses between
            them, and the answer's body.
        first_event: From sending a question until the assistant's first event.
        idle: The longest silence in an answer after its first event, or None for no limit. It
            counts only while the reply is being read, never while your code works on an event.
        total: The complete answer, or None for no limit.
        comments_are_activity: Whether a comment line (the service's keep-alive)
            ends a silence.

    Raises:
        ConfigurationError: A limit is not a number above 0.
    """

    connect: float = field(default=10.0, validator=check_field(check_seconds))
    request: float = field(default=60.0, validator=check_field(check_seconds))
    first_event: float = field(default=60.0, validator=check_field(check_seconds))
    idle: float | None = field(default=120.0, validator=check_field(check_seconds, none="means no limit"))
    total: float | None = field(default=None, validator=check_field(check_seconds, none="means no limit"))
    comments_are_activity: bool = field(default=True, validator=check_field(check_bool))
