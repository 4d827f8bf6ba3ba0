"""What a session tells its user while it works: each request, each answer, each retry.

For metrics and logs of your own. A hook is a plain function; what it raises is
logged and goes no further, so that it cannot harm a call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from attrs import define, field

if TYPE_CHECKING:
    from .job import Job

__all__ = ["Hooks", "Observation", "Observer", "RequestSent", "ResponseReceived", "RetryScheduled"]

log = logging.getLogger("mintlify_async")


@define(frozen=True, kw_only=True)
class RequestSent:
    """A request is about to go out.

    Args:
        operation: ``create_job``, ``get_job``, ``send_message`` or ``ask``.
        method: The HTTP method.
        route: The path's template, without identifiers.
        attempt: Which attempt it is, from 1.
        project_id: For the agent operations.
        job_id: For the operations on a job.
        domain: For a question.
    """

    operation: str
    method: str
    route: str
    attempt: int
    project_id: str | None = None
    job_id: str | None = None
    domain: str | None = None


@define(frozen=True, kw_only=True)
class ResponseReceived:
    """An attempt ended: with an answer's headers, or without.

    Args:
        request: What was sent.
        status: The HTTP status, or None when there was no answer.
        request_id: The service's name for the request, or None.
        seconds: From sending until the headers of a question's answer, or the whole of another one.
        error: The error that the attempt ended with, or None.
    """

    request: RequestSent
    status: int | None
    request_id: str | None
    seconds: float
    error: Exception | None = None


@define(frozen=True, kw_only=True)
class RetryScheduled:
    """The request will be sent again.

    Args:
        request: What was sent.
        delay: The pause before the next attempt, in seconds.
        error: Why.
    """

    request: RequestSent
    delay: float
    error: Exception


Fact = str | int | float | bool
"""What an observation may note."""


class Observation(Protocol):
    """One operation while it runs, as an :class:`Observer` sees it; what it raises reaches the caller."""

    def active(self) -> AbstractContextManager[object]:
        """Return a block that is entered around each request; never around a ``yield``."""
        ...

    def set(self, name: str, value: Fact) -> None:
        """Note a fact, such as ``conversation_id``, ``status``, ``finish_reason``, ``model``, ``output``."""
        ...

    def event(self, name: str, attributes: Mapping[str, Fact]) -> None:
        """Note that something happened now: ``first_event``, ``poll``."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """The operation is over; *error* is why it failed, or None."""
        ...


class Observer(Protocol):
    """Follows whole operations, from the request to the end of the stream or of the job."""

    def start(self, operation: str, facts: Mapping[str, Fact]) -> Observation:
        """Begin to follow ``ask``, ``create_job``, ``send_message``, ``wait`` or ``run_job``.

        Args:
            operation: Which it is.
            facts: What is known: ``domain``, ``project_id``, ``conversation_id``, ``base_url``, ``input``.
        """
        ...


@contextmanager
def following(observation: Observation) -> Generator[Observation, None, None]:
    """End *observation* with the block, with the error that leaves it."""
    try:
        yield observation
    except BaseException as error:
        observation.end(error)
        raise
    observation.end()


class PartOf:
    """An operation inside a larger one: it notes everything there and ends nothing."""

    __slots__ = ("active", "event", "set")

    def __init__(self, whole: Observation) -> None:
        """Note everything in *whole*."""
        self.active = whole.active
        self.event = whole.event
        self.set = whole.set

    def end(self, error: BaseException | None = None) -> None:
        """Leave the end to the whole."""


def note_job(observation: Observation, job: Job) -> None:
    """Note how a job stands."""
    for name, fact in (("status", job.status), ("model", job.model), ("pr_link", job.pr_link)):
        if fact is not None:
            observation.set(name, fact)


E = TypeVar("E")


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class Hooks:
    """The functions that a session calls; each may be None."""

    on_request: Callable[[RequestSent], object] | None = field(default=None)
    on_response: Callable[[ResponseReceived], object] | None = field(default=None)
    on_retry: Callable[[RetryScheduled], object] | None = field(default=None)

    @property
    def any_set(self) -> bool:
        """Whether there is anybody to tell."""
        return self.on_request is not None or self.on_response is not None or self.on_retry is not None


def tell(hook: Callable[[E], object] | None, event: E) -> None:
    """Call *hook*, if any; log what it raises."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        log.exception("a hook of the session failed")
