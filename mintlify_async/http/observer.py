"""Observers: what a session reports while it works, for metrics, logs and traces of your own.

An :class:`Observer` follows operations. The session's callbacks (``on_request`` and the like) are an
observer, too: each attempt to send a request is the operation that it follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from attrs import define, frozen

from ..protocol.object_checks import check_function

if TYPE_CHECKING:
    from ..model.job import Job

__all__ = [
    "CallbackObserver",
    "Observation",
    "Observer",
    "RequestSent",
    "ResponseReceived",
    "RetryScheduled",
]

log = logging.getLogger("mintlify_async")


@define(frozen=True, kw_only=True)
class RequestSent:
    """A request is about to be sent.

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
    """An attempt has ended, with an answer or without.

    Args:
        request: What was sent.
        status: The HTTP status, or None when there was no answer.
        request_id: The id by which the service's logs know the request, or None.
        seconds: From sending until the headers of a question's answer, or all of another answer.
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
        error: Why: the error that the attempt ended with.
    """

    request: RequestSent
    delay: float
    error: Exception


Fact = str | int | float | bool
"""The value of a fact that an observation notes."""


class Observation(Protocol):
    """One operation while it runs. What a method raises reaches the caller of the operation."""

    def active(self) -> AbstractContextManager[object]:
        """Return a block that is entered around each request, never around a ``yield``."""
        ...

    def set(self, name: str, value: Fact) -> None:
        """Note a fact, such as ``conversation_id``, ``status``, ``finish_reason``, ``model``, ``output``."""
        ...

    def event(self, name: str, attributes: Mapping[str, Fact]) -> None:
        """Note that something happened now: ``first_event``, ``poll``."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """End the operation; *error* is why it failed, a cancellation, too, or None."""
        ...


class Observer(Protocol):
    """Follows operations, from the request to the end of the stream or of the job.

    A reply that is dropped ends its observation in a finalizer, which may run on any thread.
    """

    def start(self, operation: str, facts: Mapping[str, Fact]) -> Observation:
        """Begin to follow ``ask``, ``create_job``, ``send_message``, ``wait``, ``refresh`` or ``run_job``.

        Args:
            operation: The operation's name.
            facts: What is known: ``domain``, ``project_id``, ``conversation_id``, ``base_url``, ``input``.
        """
        ...


@contextmanager
def following(observation: Observation | None) -> Generator[None, None, None]:
    """End *observation*, if there is one, with the block and with the error that leaves it."""
    try:
        yield
    except BaseException as error:
        if observation is not None:
            observation.end(error)
        raise
    if observation is not None:
        observation.end()


class PartOf:
    """A part of a larger operation: everything is noted in the whole, which alone is ended."""

    __slots__ = ("active", "event", "set")

    def __init__(self, whole: Observation) -> None:
        """Note everything in *whole*."""
        self.active = whole.active
        self.event = whole.event
        self.set = whole.set

    def end(self, error: BaseException | None = None) -> None:
        """Leave the end to the whole."""


def note_job(observation: Observation, job: Job) -> None:
    """Note the status of a job."""
    for name, fact in (("status", job.status), ("model", job.model), ("pr_link", job.pr_link)):
        if fact is not None:
            observation.set(name, fact)


def end_answer(observation: Observation, error: BaseException | None, **facts: Fact | None) -> None:
    """Note what is known of an answer, and end the observation."""
    for name, fact in facts.items():
        if fact:
            observation.set(name, fact)
    observation.end(error)


E = TypeVar("E")


@frozen(eq=False, repr=False, match_args=False)
class CallbackObserver:
    """Follows each attempt to send a request and calls plain functions; what they raise is logged."""

    on_request: Callable[[RequestSent], object] | None = None
    on_response: Callable[[ResponseReceived], object] | None = None
    on_retry: Callable[[RetryScheduled], object] | None = None

    @classmethod
    def of(
        cls,
        on_request: Callable[[RequestSent], object] | None,
        on_response: Callable[[ResponseReceived], object] | None,
        on_retry: Callable[[RetryScheduled], object] | None,
    ) -> CallbackObserver | None:
        """Return an observer that calls the functions; None when there are none.

        Raises:
            ConfigurationError: One is not a plain function.
        """
        given = (
            check_function(on_request, "on_request"),
            check_function(on_response, "on_response"),
            check_function(on_retry, "on_retry"),
        )
        return cls(*given) if any(call is not None for call in given) else None

    def start(self, operation: str, facts: Mapping[str, Any]) -> Observation:
        """Report that an attempt begins; *facts* are the fields of :class:`RequestSent`."""
        sent = RequestSent(**facts)
        _call(self.on_request, sent)
        return _Attempt(self, sent)


class _Attempt:
    """One attempt as :class:`CallbackObserver` follows it."""

    def __init__(self, callbacks: CallbackObserver, sent: RequestSent) -> None:
        self.callbacks = callbacks
        self.sent = sent
        self.facts: dict[str, Any] = {}

    def active(self) -> AbstractContextManager[object]:
        return nullcontext()

    def set(self, name: str, value: Fact) -> None:
        self.facts[name] = value

    def event(self, name: str, attributes: Mapping[str, Fact]) -> None:
        pass

    def end(self, error: Any = None) -> None:
        """Report the answer, and the retry when the fact ``retry_in`` says that one follows."""
        retry_in = self.facts.pop("retry_in", None)
        answer: dict[str, Any] = {"status": None, "request_id": None, **self.facts}
        _call(self.callbacks.on_response, ResponseReceived(request=self.sent, error=error, **answer))
        if retry_in is not None:
            _call(self.callbacks.on_retry, RetryScheduled(request=self.sent, delay=retry_in, error=error))


def _call(callback: Callable[[E], object] | None, event: E) -> None:
    if callback is None:
        return
    try:
        callback(event)
    except Exception:
        log.exception("a hook of the session failed")
