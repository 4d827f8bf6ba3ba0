"""Sends a request with its key, quota and retries, and returns its answer or the error that explains it.

This is where it is decided whether a request is sent again. An agent POST is sent again only
when no byte of it was sent, or when the service refused it with 429.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from attrs import define, field

from ..errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    ConfigurationError,
    MintlifyError,
    OutcomeUnknownError,
    QuotaExceededError,
    StateError,
    UnexpectedResponseError,
)
from ..model.job import Job
from ..protocol.api_keys import Key
from ..protocol.assumptions import Assumptions
from ..protocol.requests import Request
from ..protocol.responses import (
    WholeResponse,
    lower_headers,
    read_job,
    request_id,
    safe_headers,
    status_error,
)
from ..protocol.secret import Secret
from ..runtime.cancellation import cancel_requests, mark_unsent
from ..runtime.clock import Clock
from ..runtime.per_event_loop import session_closed
from .failures import CLOSED
from .observer import Fact, Observation, Observer
from .response_body import LiveResponse
from .retry import Failure, Outcome, RetryBudget, RetryPolicy, retry_after_seconds
from .timeouts import AttemptLimit, Timeouts, first_event_limit
from .transport import Transport

if TYPE_CHECKING:
    from ..quota.quota import Lease, Quota, QuotaScope
    from ..quota.windows import QuotaRemaining

__all__ = ["Dispatcher"]

log = logging.getLogger("mintlify_async")
log.addHandler(logging.NullHandler())

T = TypeVar("T")
QuotaOperation = Literal["create_job", "send_message", "ask"]
SHORTEST_SECRET = 8  # a shorter key is a test's, and may be part of other words
LAST_ATTEMPT_SECONDS = 1.0  # an attempt with less time left than this would only be cut off
SendError = APIConnectionError | APIStatusError | UnexpectedResponseError
SEND_ERRORS = (APIConnectionError, APIStatusError, UnexpectedResponseError)


class Call(Generic[T]):
    """One request, with what holds for all its attempts, and what is known of the last of them.

    Args:
        transport: The connections.
        request: What to send.
        timeouts: The limits.
        seconds: The limit on all attempts of an agent request.
        deadline: When all attempts must be over, on the session's clock, or None.
        exchange: Sends an attempt and returns its result.
        single: Whether there is only one attempt.

    Attributes:
        last_start: When the last attempt may begin, on the session's clock, or None.
        number: Which attempt this is, from 1.
        key: The key that is sent.
        limit: When its answer must be there.
        began: When it began, on the session's clock.
        observation: Follows it, or None.
        answered: Whether an answer has arrived.
        error: Why the attempt failed; None while it has not.
        pause: The seconds until the next attempt, or None when none may follow.
    """

    key: Secret
    limit: AttemptLimit
    began: float
    observation: Observation | None
    answered: bool

    def __init__(
        self,
        transport: Transport,
        request: Request,
        timeouts: Timeouts,
        seconds: float,
        deadline: float | None,
        exchange: Callable[[Call[T]], Awaitable[T]],
        single: bool = False,
    ) -> None:
        self.transport = transport
        self.request = request
        self.timeouts = timeouts
        self.seconds = seconds
        self.deadline = deadline
        self.exchange = exchange
        self.single = single
        self.last_start: float | None = None
        self.number = 0
        self.error: SendError | None = None
        self.pause: float | None = None


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class Dispatcher:
    """Sends requests with a session's connections, keys, quota, retries and defaults.

    Args:
        assumptions: What is assumed of the service.
        transport: Returns the running loop's connections.
        keys: The keys by kind.
        retry: When to send again.
        budget: The retries that the session may still make.
        quota: The session's own count of the service's limits, or None.
        clock: Time.
        random: Returns a number from 0 up to 1, which spreads retries and polls.
        attempts: Follows each attempt, or None.
        observer: Follows whole operations, or None.
        timeouts: The limits where a call names no others.
        base_url: The service's address.
        headers: Further headers of every request.
        extra_body: Further fields of every request's body.
    """

    assumptions: Assumptions
    transport: Callable[[], Transport]
    keys: dict[str, Key]
    retry: RetryPolicy
    budget: RetryBudget
    quota: Quota | None
    clock: Clock
    random: Callable[[], float]
    attempts: Observer | None
    observer: Observer | None
    timeouts: Timeouts
    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    extra_body: Mapping[str, Any] = field(repr=False)

    def job(self, request: Request, seconds: float, *, single: bool = False) -> Coroutine[Any, Any, Job]:
        """Send an agent request, within *seconds*, and return the job in its answer.

        Raises:
            OutcomeUnknownError: A POST was sent, and its outcome is not known.
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
            UnexpectedResponseError: The answer to a GET is not a job.
            QuotaExceededError: Our own count says that the limit is used up.
        """
        deadline = self.clock.now() + seconds
        return self._run(
            Call(self.transport(), request, self.timeouts, seconds, deadline, self._exchange_job, single)
        )

    def open(self, request: Request, timeouts: Timeouts) -> Coroutine[Any, Any, tuple[LiveResponse, int]]:
        """Send a question; return its live answer and how many attempts it took.

        Raises:
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
            QuotaExceededError: Our own count says that the limit is used up.
        """
        deadline = None if timeouts.total is None else self.clock.now() + timeouts.total
        seconds = timeouts.request
        return self._run(Call(self.transport(), request, timeouts, seconds, deadline, self._exchange_stream))

    async def _run(self, call: Call[T]) -> T:
        """Make attempts until one succeeds or none may follow."""
        if self.retry.within is not None:
            call.last_start = self.clock.now() + self.retry.within
        while True:
            outcome = await self._attempt(call)
            if not isinstance(outcome, SEND_ERRORS):
                self.budget.succeeded()
                return outcome
            call.error = outcome
            call.pause = self._pause(call, outcome)
            self._report_failure(call, outcome)
            if call.pause is None:
                raise self._verdict(call, outcome) from outcome.__cause__

    async def _attempt(self, call: Call[T]) -> T | SendError:
        """Send the request once; return the result, or why there is none."""
        key, slot = self.keys[call.request.key_kind].at_hand, None
        if key is None or call.error is not None or self.quota is not None:
            key, slot = await self._unless_cancelled(call)
        self._begin(call, key)
        try:
            result = await call.exchange(call)
        except SEND_ERRORS as failure:
            error: SendError = failure
        except (StateError, ConfigurationError):
            if not call.answered:
                await _give_back(slot)
            raise
        else:
            if call.observation is not None:
                call.observation.end()
            return result
        if isinstance(error, APIConnectionError) and error.sent == "no":
            await _give_back(slot)
        if not call.answered:
            self._note(call, None, error)
        return error

    async def _unless_cancelled(self, call: Call[Any]) -> tuple[Secret, Lease | None]:
        """Wait for what an attempt needs. An error says that nothing was sent; so does a cancellation."""
        cancelled = cancel_requests()
        slot = None
        try:
            # Closing the session ends the waiting.
            key, slot = await call.transport.unless_closed(self._ready(call))
            if cancel_requests() > cancelled:  # a key function or a store of the user's swallowed it
                raise asyncio.CancelledError
        except BaseException as error:
            if call.request.is_agent_post:  # which is repeated only when it had no effect before
                mark_unsent(error)
            await _give_back(slot)
            raise
        return key, slot

    async def _ready(self, call: Call[Any]) -> tuple[Secret, Lease | None]:
        """Wait for what an attempt needs: the pause after the previous one, the key, a slot."""
        if call.error is not None:
            await self.clock.sleep(call.pause or 0.0)
        key = self.keys[call.request.key_kind]
        secret = await (self._made_key(key, call) if key.is_made else key.reveal())
        return secret, await self._take_slot(call, secret)

    async def _made_key(self, key: Key, call: Call[Any]) -> Secret:
        """Return the key that the user's function makes; it has as long as the answer would have."""
        operation = call.request.operation
        limit = _limit(call, self.clock.now())
        try:
            async with self.clock.deadline(limit.at):
                return await key.reveal()
        except TimeoutError:
            if limit.at is None or limit.at - self.clock.now() > 0.001:
                raise  # the function's own
        raise APITimeoutError(
            f"{operation}: the function that makes the key did not return ({limit.phase} timeout)",
            phase=limit.phase,
            seconds=limit.seconds,
            sent="no",
            operation=operation,
        )

    async def _take_slot(self, call: Call[Any], key: Secret) -> Lease | None:
        request = call.request
        if self.quota is None or request.operation == "get_job":
            return None
        limits = [at for at in (call.deadline, call.last_start) if at is not None]
        try:
            return await self.quota.acquire(
                request.operation,
                _scope_of(request, key),
                deadline=min(limits, default=None),
                clock=self.clock,
            )
        except QuotaExceededError:
            if call.error is None:
                raise
        # The service's refusal of the previous attempt says more than the quota's of this one.
        raise call.error from call.error.__cause__

    def _begin(self, call: Call[Any], key: Secret) -> None:
        call.number += 1
        call.key, call.answered, call.observation = key, False, None
        call.began = self.clock.now()
        if self.attempts is not None:
            call.observation = self.attempts.start("attempt", _facts(call.request, call.number))
        call.limit = limit = _limit(call, call.began)
        if call.request.operation == "get_job" and call.number == 1 < self.retry.attempts and not call.single:
            # A pooled connection may be dead without a sign; half the time is left for a fresh one.
            limit.at = call.began + ((limit.at or call.began) - call.began) / 2
            limit.seconds /= 2

    async def _exchange_job(self, call: Call[Job]) -> Job:
        answer = await call.transport.send_whole(
            call.request, call.key, call.limit, call.timeouts.connect, fresh=call.number > 1
        )
        self._receive(call, answer)
        if self.quota is not None:
            await self._tell_quota(self.quota, call, answer)
        if not 200 <= answer.status < 300:
            raise self._refusal(call.request, answer)
        return read_job(self.assumptions, answer, call.number, id_is_enough=call.request.is_agent_post)

    async def _exchange_stream(self, call: Call[tuple[LiveResponse, int]]) -> tuple[LiveResponse, int]:
        answer = await call.transport.open_stream(
            call.request, call.key, call.limit, call.timeouts, call.deadline
        )
        self._receive(call, answer)
        if self.quota is not None:
            await self._tell_quota(self.quota, call, answer)
        if isinstance(answer, WholeResponse):
            raise self._refusal(call.request, answer)
        return answer, call.number

    def _receive(self, call: Call[Any], answer: LiveResponse | WholeResponse) -> None:
        """Mask secrets in an answer, and take note of what its headers say."""
        call.answered = True
        _hide(answer, call.key)
        thread = call.request.thread
        if thread is not None and thread.key is not None and isinstance(answer, WholeResponse):
            _hide(answer, thread.key)  # from a live answer it is read first, and masked later
        if call.observation is not None or log.isEnabledFor(logging.DEBUG):
            self._note(call, answer, None)
        _warn_of_sunset(answer.headers)

    async def _tell_quota(self, quota: Quota, call: Call[Any], answer: LiveResponse | WholeResponse) -> None:
        request = call.request
        if request.operation == "get_job":
            return
        wait = retry_after_seconds(answer.headers, self.clock.wall()) if answer.status == 429 else None
        scope = _scope_of(request, call.key)
        try:
            await quota.observe(request.operation, scope, answer.status, answer.headers, wait)
        except BaseException:
            if isinstance(answer, LiveResponse):
                answer.close()  # the caller does not have it yet
            raise

    def _refusal(self, request: Request, answer: WholeResponse) -> APIStatusError | UnexpectedResponseError:
        wait = retry_after_seconds(answer.headers, self.clock.wall(), resets=answer.status == 429)
        if answer.status < 200:
            return UnexpectedResponseError(
                f"{request.operation}: status {answer.status} is not an answer to this request",
                status=answer.status,
                headers=safe_headers(self.assumptions, answer.headers),
            )
        return status_error(self.assumptions, request, answer, wait)

    def _pause(self, call: Call[Any], error: SendError) -> float | None:
        """Return the seconds until the next attempt, or None when none may follow."""
        if call.single or getattr(error, "headers", {}).get("x-should-retry") == "false":
            return None
        if getattr(error, "reason", None) == CLOSED:
            return None
        pause = self.retry.delay(_failure(call.request, error), call.number, self.random())
        if pause is None:
            return None
        if call.deadline is not None and self.clock.now() + pause + LAST_ATTEMPT_SECONDS > call.deadline:
            return None
        if call.last_start is not None and self.clock.now() + pause > call.last_start:
            return None
        return pause if self.budget.take() else None

    def _verdict(self, call: Call[Any], error: SendError) -> MintlifyError:
        """Return the error that the caller gets when no attempt may follow."""
        if not call.request.is_agent_post or _outcome(error) != "unknown":
            closed = getattr(error, "reason", None) == CLOSED
            return session_closed(call.request.operation) if closed else error
        sent_at = self.clock.wall() - (self.clock.now() - call.began)
        return _outcome_unknown(call.request, error, sent_at)

    def _note(
        self, call: Call[Any], answer: LiveResponse | WholeResponse | None, error: SendError | None
    ) -> None:
        """Log how an attempt ended, and tell what follows it."""
        observation = call.observation
        request, seconds = call.request, self.clock.now() - call.began
        named = request_id(self.assumptions, answer.headers) if answer is not None else None
        log.debug(
            "%s %s: %s in %.0f ms, attempt %d, request id %.80r",
            request.method,
            request.route,
            answer.status if answer is not None else type(error).__name__,
            seconds * 1000,
            call.number,
            named,
        )
        if observation is not None:
            observation.set("seconds", seconds)
            if answer is not None:
                observation.set("status", answer.status)
            if named is not None:
                observation.set("request_id", named)

    def _report_failure(self, call: Call[Any], error: SendError) -> None:
        if call.pause is not None:
            operation = call.request.operation
            log.info("%s failed, attempt %d; again in %.1f s", operation, call.number, call.pause)
        observation = call.observation
        if observation is not None:
            if call.pause is not None:
                observation.set("retry_in", call.pause)
            observation.end(error)

    async def quota_left(self, operation: QuotaOperation, place: str) -> tuple[QuotaRemaining, ...]:
        """Return what is left of the limits that count *operation* for *place*, a domain or a project."""
        if self.quota is None:
            return ()
        key = await self.keys["assistant"].reveal() if operation == "ask" else ""
        return await self.quota.left(operation, _scope(operation == "ask", place, key), clock=self.clock)


async def _give_back(slot: Lease | None) -> None:
    if slot is not None:
        await slot.refund()


def _limit(call: Call[Any], now: float) -> AttemptLimit:
    """Return the limit on an attempt that begins *now*."""
    if not call.request.is_question:
        return AttemptLimit(call.deadline, call.seconds, "request")
    return first_event_limit(call.timeouts, now, call.deadline)


def _facts(request: Request, number: int) -> dict[str, Fact]:
    facts: dict[str, Fact] = {
        "operation": request.operation,
        "method": request.method,
        "route": request.route,
        "attempt": number,
    }
    optional = {"project_id": request.project_id, "job_id": request.job_id, "domain": request.domain}
    facts.update((name, value) for name, value in optional.items() if value is not None)
    return facts


_warned: set[str] = set()  # once per process is enough for a notice to its developer


def _warn_of_sunset(headers: Mapping[str, str]) -> None:
    for name in ("deprecation", "sunset"):
        if name in headers and name not in _warned:
            _warned.add(name)
            log.warning("the service announces %s: %.80r", name, headers[name])


def _outcome(error: SendError) -> Outcome:
    if isinstance(error, APIConnectionError):
        return "not_sent" if error.sent == "no" else "unknown"
    if isinstance(error, UnexpectedResponseError):
        return "unknown"
    if error.status == 429:
        return "refused"
    return "unknown" if error.status >= 500 else "answered"


def _failure(request: Request, error: SendError) -> Failure:
    return Failure(
        kind="agent_post" if request.is_agent_post else "ask" if request.is_question else "get",
        outcome=_outcome(error),
        status=getattr(error, "status", None),
        retry_after=getattr(error, "retry_after", None),
        permanent=isinstance(error, APIConnectionError) and error.reason == "certificate",
    )


def _outcome_unknown(request: Request, error: SendError, sent_at: float) -> OutcomeUnknownError:
    what = "the job" if request.operation == "create_job" else "the follow-up"
    look = "look at the dashboard or the repository before sending it again"
    return OutcomeUnknownError(
        f"{error}; {what} may have been accepted, so it was not sent again: {look}",
        operation=request.operation,
        project_id=request.project_id,
        job_id=request.job_id,
        status=getattr(error, "status", None),
        body=getattr(error, "body", None) or getattr(error, "excerpt", None),
        headers=getattr(error, "headers", None),
        request_id=getattr(error, "request_id", None),
        sent_at=getattr(error, "sent_at", None) or sent_at,
        prompt_sha256=request.prompt_sha256,
        reason=_unknown_reason(error),
    )


def _unknown_reason(error: SendError) -> str:
    if isinstance(error, APIConnectionError):
        if error.reason == "protocol":
            return "unreadable_answer"
        return error.reason if error.reason in ("timeout", CLOSED) else "connection_lost"
    return "server_error" if isinstance(error, APIStatusError) else "unreadable_answer"


def _scope_of(request: Request, key: str) -> QuotaScope:
    return _scope(request.is_question, request.domain or request.project_id or "", key)


def _scope(question: bool, place: str, key: str) -> QuotaScope:
    from ..quota.quota import QuotaScope  # imported on use: most sessions have no quota

    if question:
        return QuotaScope(domain=place, key=hashlib.sha256(key.encode()).hexdigest()[:32])
    return QuotaScope(project=place)


def _hide(answer: LiveResponse | WholeResponse, secret: str) -> None:
    """Mask a secret of ours in *answer*: a server may repeat it."""
    if len(secret) < SHORTEST_SECRET:
        return
    if isinstance(answer, WholeResponse):
        answer.body = answer.body.replace(secret.encode(), b"****")
    for repeated in answer.headers.values():
        if secret in repeated:
            headers = lower_headers(answer.headers)
            answer.headers = {name: value.replace(secret, "****") for name, value in headers.items()}
            return
