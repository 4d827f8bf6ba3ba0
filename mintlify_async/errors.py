"""Every exception of the package, drawn as one tree; imports nothing of ours.

::

    MintlifyError
    ├─ ConfigurationError(ValueError)      before any I/O: a missing key, a bad argument
    ├─ StateError(RuntimeError)            closed session, busy conversation, second consumer
    │   └─ StoreConflictError              somebody else saved first
    ├─ QuotaExceededError                  refused here, by our own count of the service's limits
    ├─ APIConnectionError                  no answer
    │   └─ APITimeoutError(TimeoutError)   no answer in time
    ├─ OutcomeUnknownError                 an agent POST went out; what became of it is not known
    ├─ APIStatusError                      the service answered with an error status
    │   ├─ BadRequestError                 400, 422
    │   ├─ AuthenticationError             401
    │   ├─ PermissionDeniedError           403
    │   ├─ NotFoundError                   404
    │   ├─ ConflictError                   409
    │   ├─ RateLimitError                  429
    │   └─ ServerError                     5xx
    ├─ UnexpectedResponseError             an answer that is not the interface's
    ├─ StreamError                         the assistant's stream; keeps what had arrived
    │   ├─ StreamInterruptedError          it stopped before its end
    │   ├─ StreamDecodeError               an event that cannot be read
    │   ├─ StreamStateError                an event for a part that is not there
    │   └─ AssistantError                  the service reported a failure in the stream
    ├─ JobFailedError                      the job ended as ``failed``
    └─ JobTimeoutError(TimeoutError)       we gave up waiting; the job goes on

Everything an error carries is an attribute, survives ``pickle`` and ``copy``,
and holds no key. What caused it, when that came from another library, is kept
as :class:`CauseSummary`: the foreign object itself may show the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .job import Job
    from .jobs import JobRef
    from .parts import Message
    from .thread import Thread

__all__ = [
    "APIConnectionError",
    "APIStatusError",
    "APITimeoutError",
    "AssistantError",
    "AuthenticationError",
    "BadRequestError",
    "CauseSummary",
    "ConfigurationError",
    "ConflictError",
    "JobFailedError",
    "JobTimeoutError",
    "MintlifyError",
    "NotFoundError",
    "OutcomeUnknownError",
    "PermissionDeniedError",
    "QuotaExceededError",
    "RateLimitError",
    "ServerError",
    "StateError",
    "StoreConflictError",
    "StreamDecodeError",
    "StreamError",
    "StreamInterruptedError",
    "StreamStateError",
    "UnexpectedResponseError",
    "printable",
    "status_error_class",
]

EXCERPT_CHARACTERS = 200
"""How much of a server's own text enters a message; the whole stays in an attribute."""


def printable(text: str, limit: int = EXCERPT_CHARACTERS) -> str:
    r"""Return *text* fit for one line of a log: control characters escaped, cut at *limit* characters.

    >>> printable("a\nb")
    'a\\nb'
    """
    cut = text[:limit]
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)
    return clean + "…" if len(text) > limit else clean


def _new(cls: type[MintlifyError], args: tuple[object, ...]) -> MintlifyError:
    """Make an error without its ``__init__``, which takes other arguments than ``args``."""
    error = cls.__new__(cls, *args)
    error.args = args  # OSError, which TimeoutError is, leaves that to its __init__
    return error


class MintlifyError(Exception):
    """The base of every error that this package raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy with every attribute, and with the scrubbed cause."""
        state = dict(self.__dict__)
        if isinstance(self.__cause__, MintlifyError | CauseSummary):
            state["__cause__"] = self.__cause__
        return _new, (type(self), self.args), state


class CauseSummary(Exception):  # noqa: N818 - it stands for an error of another library, it is never raised alone
    """Stands for an exception of another library: its class's name and a scrubbed text.

    aiohttp's own errors show the request's headers, the key included, in their
    ``repr`` and ``args``; so they are never chained.
    """


class ConfigurationError(MintlifyError, ValueError):
    """An argument or a setting is wrong; nothing was sent.

    Attributes:
        field: The argument's name, where one argument is to blame.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        """Say what is wrong and how to mend it; *field* names the argument."""
        super().__init__(message)
        self.field = field


class StateError(MintlifyError, RuntimeError):
    """The object is not in a state that allows this: closed, busy, or already being read."""


class StoreConflictError(StateError):
    """Somebody else saved this conversation first; load it again and repeat."""


class QuotaExceededError(MintlifyError):
    """Our own count says that the service's limit is used up; nothing was sent.

    Attributes:
        retry_after: Seconds until there is room again, or None when that is not known.
        limit: The name of the limit, such as ``create_job``.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, limit: str | None = None) -> None:
        """Say which limit is used up and when there is room again."""
        super().__init__(message)
        self.retry_after = retry_after
        self.limit = limit


class APIConnectionError(MintlifyError):
    """There was no answer: name look-up, connect, TLS, proxy, or the connection was lost.

    Attributes:
        sent: ``"no"`` when it is certain that no byte of the request's body went out, else ``"maybe"``.
        operation: What was being done, such as ``ask``.
        reason: ``dns``, ``connect``, ``certificate``, ``tls``, ``proxy``, ``timeout``, ``lost``
            (the connection ended) or ``protocol`` (what came is not HTTP).
        sent_at: When the body went out, in seconds since the epoch, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        sent: Literal["no", "maybe"] = "maybe",
        operation: str | None = None,
        reason: str = "lost",
        sent_at: float | None = None,
    ) -> None:
        """Say what failed and whether anything was sent."""
        super().__init__(message)
        self.sent: Literal["no", "maybe"] = sent
        self.operation = operation
        self.reason = reason
        self.sent_at = sent_at


class APITimeoutError(APIConnectionError, TimeoutError):
    """There was no answer in time.

    Attributes:
        phase: Which limit it was: ``connect``, ``request``, ``first_event``, ``idle`` or ``total``.
        seconds: The limit, in seconds.
    """

    def __init__(
        self,
        message: str,
        *,
        phase: str,
        seconds: float,
        sent: Literal["no", "maybe"] = "maybe",
        operation: str | None = None,
    ) -> None:
        """Say which limit ran out and after how long."""
        super().__init__(message, sent=sent, operation=operation, reason="timeout")
        self.phase = phase
        self.seconds = seconds


class OutcomeUnknownError(MintlifyError):
    """An agent POST went out and what became of it is not known: the job may exist.

    It is never sent again by itself, since a second job costs money and opens
    a second pull request. Look at the dashboard or the repository first.

    Attributes:
        operation: ``create_job`` or ``send_message``.
        project_id: The project it went to.
        job_id: The job it was for; None for a creation.
        status: The answer's HTTP status, or None when there was no answer.
        body: What was read of the answer's body, or None.
        headers: The answer's headers, or None.
        request_id: The service's name for the request, or None.
        sent_at: When the request went out, in seconds since the epoch.
        prompt_sha256: Names the prompt without repeating it.
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
    ) -> None:
        """Say what went out, when, and what is known of the answer."""
        super().__init__(message)
        self.operation = operation
        self.project_id = project_id
        self.job_id = job_id
        self.status = status
        self.body = body
        self.headers = headers
        self.request_id = request_id
        self.sent_at = sent_at
        self.prompt_sha256 = prompt_sha256


class APIStatusError(MintlifyError):
    """The service answered with a status that is not a success.

    Attributes:
        status: The HTTP status.
        body: The answer's body as text, at most its first 64 KiB.
        headers: The answer's headers, names in lower case.
        request_id: The service's name for the request, or None.
        retry_after: Seconds after which the service asks to be called again, or None.
        operation: What was being done, such as ``create_job``.
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
        """Say what the service answered."""
        super().__init__(message)
        self.status = status
        self.body = body
        self.headers: Mapping[str, str] = headers or {}
        self.request_id = request_id
        self.retry_after = retry_after
        self.operation = operation


class BadRequestError(APIStatusError):
    """400 or 422: the service does not accept the request as it is."""


class AuthenticationError(APIStatusError):
    """401: the key is wrong or has expired (new keys last 90 days by default)."""


class PermissionDeniedError(APIStatusError):
    """403: the key lacks the scope, or the address is not on its allow-list."""


class NotFoundError(APIStatusError):
    """404: no such project, job, domain or thread (or a thread without its key)."""


class ConflictError(APIStatusError):
    """409: the request conflicts with the state of what it names."""


class RateLimitError(APIStatusError):
    """429: a limit of the service is used up; ``retry_after`` says for how long, where the service does."""


class ServerError(APIStatusError):
    """5xx: the service failed."""


_BY_STATUS: dict[int, type[APIStatusError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    422: BadRequestError,
    429: RateLimitError,
}


def status_error_class(status: int) -> type[APIStatusError]:
    """Return the class that stands for *status*."""
    if 500 <= status <= 599:
        return ServerError
    return _BY_STATUS.get(status, APIStatusError)


class UnexpectedResponseError(MintlifyError):
    """A success whose body is not what the interface promises.

    Attributes:
        status: The HTTP status, or None.
        excerpt: The beginning of the body.
        headers: The answer's headers, names in lower case.
        request_id: The service's name for the request, or None.
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
        """Say what was expected and what came."""
        super().__init__(message)
        self.excerpt = excerpt
        self.status = status
        self.headers: Mapping[str, str] = headers or {}
        self.request_id = request_id


class StreamError(MintlifyError):
    """The assistant's answer did not arrive whole; what did arrive is kept here.

    Attributes:
        partial: The message as far as it had come, or None when nothing had.
        text: The text of ``partial``, or an empty string.
        thread: The thread as far as it is known, or None.
        events_seen: How many events had been read.
    """

    def __init__(
        self,
        message: str,
        *,
        partial: Message | None = None,
        thread: Thread | None = None,
        events_seen: int = 0,
    ) -> None:
        """Say what happened; the rest is what had arrived."""
        super().__init__(message)
        self.partial = partial
        self.thread = thread
        self.events_seen = events_seen

    @property
    def text(self) -> str:
        """The text that had arrived, or an empty string."""
        return self.partial.text if self.partial is not None else ""


class StreamInterruptedError(StreamError):
    """The stream stopped before its end: cut, timed out, or closed early."""


class StreamDecodeError(StreamError):
    """An event is not readable: bad JSON, a missing field, a wrong type, or too large.

    Attributes:
        excerpt: The beginning of the event's data, thread keys masked.
        index: The event's place in the stream, from 0.
    """

    def __init__(self, message: str, *, excerpt: str = "", index: int | None = None, **kept: Any) -> None:
        """Say what is wrong with which event."""
        super().__init__(message, **kept)
        self.excerpt = excerpt
        self.index = index


class StreamStateError(StreamError):
    """An event names a part or a tool call that is not there.

    Attributes:
        event_type: The event's type on the wire.
        event_id: The id that it names.
    """

    def __init__(self, message: str, *, event_type: str = "", event_id: str = "", **kept: Any) -> None:
        """Say which event names what."""
        super().__init__(message, **kept)
        self.event_type = event_type
        self.event_id = event_id


class AssistantError(StreamError):
    """The service reported a failure inside the stream (an ``error`` event).

    Attributes:
        error_text: The service's own words.
    """

    def __init__(self, message: str, *, error_text: str = "", **kept: Any) -> None:
        """Repeat the service's words."""
        super().__init__(message, **kept)
        self.error_text = error_text


class JobFailedError(MintlifyError):
    """The job ended as ``failed``: the agent met an error that it could not recover from.

    Attributes:
        job: The job's last record.
    """

    def __init__(self, job: Job) -> None:
        """Keep the record."""
        super().__init__(f"job {printable(job.id)} failed at the service; .job is its last record")
        self.job = job


class JobTimeoutError(MintlifyError, TimeoutError):
    """The job was still running when the deadline passed; it goes on at the service.

    Attributes:
        ref: Names the job, to wait again here or elsewhere: ``session.job(ref)``.
        job: The last record seen, or None.
        waited: How long was waited, in seconds.
    """

    def __init__(self, ref: JobRef, job: Job | None, waited: float) -> None:
        """Keep what is needed to go on waiting."""
        seen = printable(job.status) if job is not None else "never seen"
        super().__init__(f"job {ref.id}: {seen} after {waited:.1f} s; it goes on at the service")
        self.ref = ref
        self.job = job
        self.waited = waited
