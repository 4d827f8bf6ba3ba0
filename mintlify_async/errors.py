"""All exceptions of the package, as one tree. At run time, this module imports nothing else of the package.

::

    MintlifyError
    ├─ ConfigurationError(ValueError)      before any I/O: a missing key, an invalid argument
    ├─ StateError(RuntimeError)            closed session, busy conversation, second reader
    │   └─ StoreConflictError              another task or process saved first
    ├─ QuotaExceededError                  refused locally: the quota is used up
    ├─ APIConnectionError                  no response
    │   └─ APITimeoutError(TimeoutError)   no response in time
    ├─ OutcomeUnknownError                 an agent POST was sent; it may have taken effect
    ├─ APIStatusError                      the service answered with an error status
    │   ├─ BadRequestError                 400, 422
    │   ├─ AuthenticationError             401
    │   ├─ PaymentRequiredError            402
    │   ├─ PermissionDeniedError           403
    │   ├─ NotFoundError                   404
    │   ├─ ConflictError                   409
    │   ├─ RateLimitError                  429
    │   └─ ServerError                     5xx
    ├─ UnexpectedResponseError             a success whose body is not as documented
    ├─ StreamError                         the answer's stream failed; has the partial answer
    │   ├─ StreamInterruptedError          it stopped before its end
    │   ├─ StreamDecodeError               an event cannot be parsed
    │   ├─ StreamStateError                an event that names an unknown part
    │   └─ AssistantError                  the service reported an error in the stream
    ├─ JobFailedError                      the job ended as ``failed``
    └─ JobTimeoutError(TimeoutError)       the wait timed out before the result was certain

All values of an error are attributes. Attributes survive ``pickle`` and ``copy`` and never contain a key. If
an exception of another library caused the error, the cause is a :class:`CauseSummary`, because the original
exception may show the key.

``protocol/status_errors.py`` makes the texts of status errors, ``quota/`` the texts of
``QuotaExceededError``, most of them in ``quota.py``, and ``jobs/wait.py`` the text of ``JobTimeoutError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    # Only a type checker may import wings here, because every wing imports this file. The import gives
    # error.thread its type, Thread, so a user's type checker finds to_json().
    from .assistant.answer import Answer
    from .messages import Message
    from .model.job_record import Job
    from .model.job_ref import JobRef
    from .model.thread import Thread

PRINTED_CHARACTERS = 200  # maximum length of a server's text in a message. An attribute has the full text


Sent = Literal["no", "maybe"]


def printable(text: str, limit: int = PRINTED_CHARACTERS) -> str:
    r"""Return *text* in one printable line, with control characters escaped, cut after *limit* characters.

    >>> printable("a\nb")
    'a\\nb'
    """
    start = text[:limit]
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in start)
    return clean + "…" if len(text) > limit else clean


def _new(cls: type[MintlifyError], args: tuple[object, ...]) -> MintlifyError:
    """Make an error without calling its ``__init__``, whose arguments are not ``args``."""
    error = cls.__new__(cls, *args)
    error.args = args  # TimeoutError is an OSError, whose args are set only in __init__
    return error


class MintlifyError(Exception):
    """Base class of every error that this package raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy all attributes, and the cause if it is safe to keep."""
        state = dict(self.__dict__)
        if isinstance(self.__cause__, MintlifyError | CauseSummary):
            state["__cause__"] = self.__cause__
        return _new, (type(self), self.args), state


class CauseSummary(Exception):  # noqa: N818 - never raised itself, only set as a cause
    """Replaces an exception of another library. It has the class name, and the text without secrets.

    aiohttp's own errors show the request's headers, and so the key, in their
    ``repr`` and ``args``, so they are never chained.
    """


class ConfigurationError(MintlifyError, ValueError):
    """An argument or a setting is invalid. Nothing was sent.

    Attributes:
        field: The name of the invalid argument, or None if the error is not about a single argument.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class StateError(MintlifyError, RuntimeError):
    """The call is not possible now: the object is closed, busy or already read, or its store cannot be used.

    Attributes:
        answer: The complete :class:`~mintlify_async.Answer` of a conversation's turn that could not be saved,
            else None. If a store raises another error, that error also gets this attribute.
    """

    answer: Answer | None = None


class StoreConflictError(StateError):
    """Another task or process saved this conversation first. Load it again and repeat."""


class QuotaExceededError(MintlifyError):
    """The session's quota for a limit of the service, or for one of your own users, is used up.

    Nothing was sent.

    Attributes:
        retry_after: Seconds until a call is allowed again, or None if the time is unknown.
        limit: The name of the limit, such as ``create_job``. ``ask_per_user`` is the limit of one user.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, limit: str | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.limit = limit


class APIConnectionError(MintlifyError):
    """The service did not respond: DNS lookup, connecting, TLS or a proxy failed, or the connection was lost.

    Attributes:
        sent: ``"no"`` if certainly no byte of the request's body was sent, else ``"maybe"``.
        operation: The operation, such as ``ask``.
        reason: ``dns``, ``connect``, ``certificate``, ``tls``, ``proxy``, ``timeout``, ``lost`` (the
            connection ended), ``protocol`` (the response is not HTTP) or ``key`` (your function that returns
            the key failed).
        sent_at: When the body was sent, in seconds since the epoch, or None.
        proxy_status: The HTTP status with which a proxy refused the connection, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        sent: Sent = "maybe",
        operation: str | None = None,
        reason: str = "lost",
        sent_at: float | None = None,
    ) -> None:
        super().__init__(message)
        self.sent: Sent = sent
        self.operation = operation
        self.reason = reason
        self.sent_at = sent_at
        self.proxy_status: int | None = None


class APITimeoutError(APIConnectionError, TimeoutError):
    """The service did not respond in time.

    Attributes:
        phase: The limit that passed: ``connect``, ``request``, ``first_event``, ``idle`` or ``total``.
        seconds: The limit, in seconds.
    """

    def __init__(
        self, message: str, *, phase: str, seconds: float, sent: Sent = "maybe", operation: str | None = None
    ) -> None:
        super().__init__(message, sent=sent, operation=operation, reason="timeout")
        self.phase = phase
        self.seconds = seconds


class OutcomeUnknownError(MintlifyError):
    """An agent POST was sent and its outcome is unknown. The job may exist.

    The package never sends the POST again, because a second job costs money and opens a second pull request.
    Check the dashboard or the repository before you send it again. If the call has a ``dedupe_key``, the
    message of this error says what to do next.

    Attributes:
        operation: ``create_job`` or ``send_message``.
        project_id: The project of the request.
        job_id: The job of the follow-up, or None for ``create_job``.
        status: The response's HTTP status, or None when there was no response.
        body: The received text of the response's body, or None.
        headers: The response's headers, or None.
        request_id: The request id, or None.
        sent_at: When the request was sent, in seconds since the epoch, or None.
        prompt_sha256: SHA-256 of the prompt, which identifies the prompt without its text.
        reason: ``timeout``, ``connection_lost``, ``unreadable_answer`` (a 2xx response without a
            readable job, or a response that is not HTTP), ``server_error`` (5xx), ``session_closed`` (the
            session was closed during the request), ``cancelled`` (the call that sent the request was
            cancelled), or ``not_recorded`` (the process that sent the request recorded no outcome). A later
            call with the same ``dedupe_key`` gets the same reason and status.
        dedupe_key: The ``dedupe_key`` of the call, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str,
        project_id: str | None = None,
        job_id: str | None = None,
        status: int | None = None,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
        sent_at: float | None = None,
        prompt_sha256: str | None = None,
        reason: str = "connection_lost",
        dedupe_key: str | None = None,
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.dedupe_key = dedupe_key
        self.project_id = project_id
        self.job_id = job_id
        self.status = status
        self.body = body
        self.headers = headers
        self.request_id = request_id
        self.sent_at = sent_at
        self.prompt_sha256 = prompt_sha256
        self.reason = reason


class APIStatusError(MintlifyError):
    """The service responded with an error status.

    Attributes:
        status: The HTTP status.
        body: The response's body as text, at most the first 64 KiB.
        headers: The response's headers, with names in lower case.
        request_id: The request id, or None.
        retry_after: Seconds that the service asks callers to wait before the next try, or None.
        operation: The operation, such as ``create_job``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        body: str = "",
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        operation: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.headers: Mapping[str, str] = headers or {}
        self.request_id = request_id
        self.retry_after = retry_after
        self.operation = operation


class BadRequestError(APIStatusError):
    """400 or 422: the service rejected the request as invalid."""


class AuthenticationError(APIStatusError):
    """401: the key is wrong or has expired (new keys last 90 days by default)."""


class PaymentRequiredError(APIStatusError):
    """402: the credits of the plan are used up. Later requests fail until there are new credits."""


class PermissionDeniedError(APIStatusError):
    """403: the key lacks the scope, or your IP address is not on the key's allow-list."""


class NotFoundError(APIStatusError):
    """404: the project, job, domain or thread does not exist, or the thread's key is missing."""


class ConflictError(APIStatusError):
    """409: the request conflicts with the current state of the job, project or thread."""


class RateLimitError(APIStatusError):
    """429: a limit of the service is used up. ``retry_after`` is the pause that the service requests."""


class ServerError(APIStatusError):
    """5xx: the service failed."""


class UnexpectedResponseError(MintlifyError):
    """The response is not an error, but it does not match the service's interface.

    Attributes:
        status: The HTTP status, or None.
        excerpt: The beginning of the body.
        headers: The response's headers, with names in lower case.
        request_id: The request id, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        excerpt: str = "",
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.excerpt = excerpt
        self.status = status
        self.headers: Mapping[str, str] = headers or {}
        self.request_id = request_id


class StreamError(MintlifyError):
    """The assistant's answer is incomplete. The error contains the partial answer.

    Attributes:
        partial: The message up to the failure, or None if nothing had arrived.
        text: The text of the partial answer, without the block of suggestions.
        thread: The thread, or None if the service had not named it yet.
        events_seen: The number of events read before the failure.
    """

    def __init__(
        self,
        message: str,
        *,
        partial: Message | None = None,
        text: str | None = None,
        thread: Thread | None = None,
        events_seen: int = 0,
    ) -> None:
        super().__init__(message)
        self.partial = partial
        self.text = text if text is not None else partial.text if partial is not None else ""
        self.thread = thread
        self.events_seen = events_seen


class StreamInterruptedError(StreamError):
    """The stream ended early, because the connection was lost, a limit passed, or the reply was closed."""


class StreamDecodeError(StreamError):
    """An event cannot be parsed: invalid JSON, a missing field, a wrong type, or too many bytes.

    Attributes:
        excerpt: The beginning of the event's data, with thread keys masked.
        index: The event's position in the stream, from 0.
    """

    def __init__(self, message: str, *, excerpt: str = "", index: int | None = None, **kept: Any) -> None:
        super().__init__(message, **kept)
        self.excerpt = excerpt
        self.index = index


class StreamStateError(StreamError):
    """An event names a part or a tool call that the stream has not started.

    Attributes:
        event_type: The event's type on the wire, such as ``text-delta``.
        event_id: The id of the missing part or call.
    """

    def __init__(self, message: str, *, event_type: str = "", event_id: str = "", **kept: Any) -> None:
        super().__init__(message, **kept)
        self.event_type = event_type
        self.event_id = event_id


class AssistantError(StreamError):
    """The service reported an error within the stream, with an ``error`` event.

    Attributes:
        error_text: The service's error text, read from each field that contains a message. If no field
            does, the event's JSON. Empty if the event has no fields.
    """

    def __init__(self, message: str, *, error_text: str = "", **kept: Any) -> None:
        super().__init__(message, **kept)
        self.error_text = error_text


class JobFailedError(MintlifyError):
    """The job ended as ``failed``, because the agent met an error from which it could not recover.

    Attributes:
        job: The job's last record.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(
            f"job {printable(job.id)} failed at the service; .job is its last record. "
            "The service gives no reason; first see whether its GitHub app still has access to the repository"
        )
        self.job = job


class JobTimeoutError(MintlifyError, TimeoutError):
    """The timeout passed before the job's result was certain.

    Attributes:
        ref: The job's reference. ``session.job(ref)`` waits again, here or in another process. While polls
            fail, it has the time of the first failure, so several short waits together end after
            ``PollPolicy.outage``.
        job: The last record read, or None. If *failing_for* is not None, the job may have changed since.
        waited: How long the wait lasted, in seconds.
        certain_in: If the last record's final status may be the result of an earlier prompt, the seconds
            until a poll, here or in another process, accepts the same status. Otherwise None. After two
            follow-ups in a row, two polls must show the status, and this is the time of the first.
        error: The error of the last poll, also as ``__cause__``. None if the last poll succeeded, or if the
            wait made no poll.
        failing_for: Number of seconds without a successful poll. None if the last poll succeeded.
    """

    def __init__(
        self,
        message: str,
        *,
        ref: JobRef,
        job: Job | None,
        waited: float,
        certain_in: float | None = None,
        error: Exception | None = None,
        failing_for: float | None = None,
    ) -> None:
        super().__init__(message)
        self.ref = ref
        self.job = job
        self.waited = waited
        self.certain_in = certain_in
        self.error = error
        self.failing_for = failing_for


__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - pyright reads the classes' names
    name for name, value in globals().items() if isinstance(value, type) and issubclass(value, MintlifyError)
]


if not TYPE_CHECKING:  # hidden from type checkers, so that they report a wrong name themselves

    def __getattr__(name: str) -> object:
        raise import_module(".wrong_names", __package__).missing_name(__name__, name)
