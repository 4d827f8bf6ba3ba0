"""Quota, send, retry: a ``Request`` goes in; its answer comes out, or the error that says what became of it.

This is where a request is sent again or not. An agent POST is sent again only
when nothing of it went out, or when the service refused it with 429.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from attrs import define

from .clock import Clock
from .errors import (
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
from .hooks import Hooks, RequestSent, ResponseReceived, RetryScheduled, tell
from .job import Job
from .keys import Key
from .protocol import (
    Answer,
    Assumptions,
    Request,
    lower_headers,
    read_job,
    request_id,
    safe_headers,
    status_error,
)
from .retry import Failure, Outcome, RetryBudget, RetryPolicy, retry_after_seconds
from .timeouts import Timeouts
from .transport import LiveResponse, Transport

if TYPE_CHECKING:
    from .quota import Lease, Quota, QuotaScope
    from .windows import QuotaRemaining

__all__ = ["Dispatcher"]

log = logging.getLogger("mintlify_async")
log.addHandler(logging.NullHandler())

T = TypeVar("T")
SHORTEST_SECRET = 8  # what is shorter is a test's, and part of other words
LAST_ATTEMPT_SECONDS = 1.0  # an attempt with less time left than this would only be cut off
Failed = APIConnectionError | APIStatusError | UnexpectedResponseError
Read: TypeAlias = "Callable[[Assumptions, LiveResponse | Answer, int], T]"


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class Dispatcher:
    """Sends requests with the session's keys, quota, retries and hooks.

    Args:
        assumptions: What we take to be true of the service.
        keys: The keys by kind.
        retry: When to send again.
        budget: The retries that the session has in hand.
        quota: Our own count of the service's limits, or None.
        clock: Time.
        roll: The dice: a number from 0 up to 1.
        hooks: The user's functions.
    """

    assumptions: Assumptions
    keys: dict[str, Key]
    retry: RetryPolicy
    budget: RetryBudget
    quota: Quota | None
    clock: Clock
    roll: Callable[[], float]
    hooks: Hooks

    def job(
        self, transport: Transport, request: Request, timeouts: Timeouts, *, single: bool = False
    ) -> Coroutine[Any, Any, Job]:
        """Send an agent request and return the job in its answer.

        Raises:
            OutcomeUnknownError: A POST went out and what became of it is not known.
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
            UnexpectedResponseError: The answer to a GET is not a job.
            QuotaExceededError: Our own count says that the limit is used up.
        """
        deadline = self.clock.now() + timeouts.request
        return self._run(transport, _read_job, request, deadline, timeouts, single=single)

    def open(
        self, transport: Transport, request: Request, timeouts: Timeouts
    ) -> Coroutine[Any, Any, tuple[LiveResponse, int]]:
        """Send a question; return its live answer and how many attempts it took.

        Raises:
            APIConnectionError: There was no answer.
            APIStatusError: The service refused.
            QuotaExceededError: Our own count says that the limit is used up.
        """
        deadline = None if timeouts.total is None else self.clock.now() + timeouts.total
        return self._run(transport, _read_live, request, deadline, timeouts, single=False)

    async def _run(
        self,
        transport: Transport,
        read: Read[T],
        request: Request,
        deadline: float | None,
        timeouts: Timeouts,
        *,
        single: bool,
    ) -> T:
        attempt = 0
        failed: Failed | None = None
        pause: float | None = None
        while True:
            attempt += 1
            key, lease = self.keys[request.key_kind].at_hand, None
            if key is None or pause is not None or self.quota is not None:
                waiting = self._ready(request, deadline, timeouts, pause, failed)
                ready: tuple[str, Lease | None] = await transport.unless_closed(waiting)
                key, lease = ready
            sent = self._about(request, attempt) if self.hooks.any_set else None
            sent_at = self.clock.wall()
            if sent is not None:
                tell(self.hooks.on_request, sent)
            began = self.clock.now()
            answer: LiveResponse | Answer | None = None
            try:
                answer = await transport.send(request, key, timeouts, deadline)
            except (APIConnectionError, UnexpectedResponseError) as error:
                failed = error
            except (StateError, ConfigurationError):
                if lease is not None:
                    await lease.refund()
                raise
            if answer is not None:
                seconds = self.clock.now() - began
                _hide_secrets(answer, request, key)
                self._warn_of_sunset(answer.headers)
                if self.quota is not None:
                    await self._observe(self.quota, request, key, answer)
                try:
                    result = self._read(read, request, answer, attempt, sent, seconds)
                except (APIStatusError, UnexpectedResponseError) as error:
                    failed = error
                else:
                    self.budget.succeeded()
                    return result
            else:
                if lease is not None and isinstance(failed, APIConnectionError) and failed.sent == "no":
                    await lease.refund()
                self._note(request, attempt, sent, None, self.clock.now() - began, failed)
            assert failed is not None
            pause = None if single else self._pause(request, failed, attempt, deadline)
            if pause is None:
                raise self._verdict(request, failed, sent_at) from failed.__cause__
            log.info("%s failed, attempt %d; again in %.1f s", request.operation, attempt, pause)
            if sent is not None:
                tell(self.hooks.on_retry, RetryScheduled(request=sent, delay=pause, error=failed))

    async def _ready(
        self,
        request: Request,
        deadline: float | None,
        timeouts: Timeouts,
        pause: float | None,
        failed: Failed | None,
    ) -> tuple[str, Lease | None]:
        """Wait for what an attempt needs: the *pause* after the one before, the key, a slot."""
        if pause is not None:
            await self.clock.sleep(pause)
        key = self.keys[request.key_kind]
        secret = await (self._made(key, request, deadline, timeouts) if key.is_made else key.reveal())
        return secret, await self._lease(request, secret, deadline, failed)

    async def _made(self, key: Key, request: Request, deadline: float | None, timeouts: Timeouts) -> str:
        """Return the key that the user's function makes; it has as long as the answer would have."""
        phase, limit = "request", timeouts.request
        if request.operation == "ask":
            phase, limit = "first_event", timeouts.first_event
        by = self.clock.now() + limit
        if deadline is not None and deadline < by:
            by = deadline
            if request.operation == "ask":
                phase, limit = "total", timeouts.total or limit
        try:
            async with self.clock.deadline(by):
                return await key.reveal()
        except TimeoutError:
            if by - self.clock.now() > 0.001:
                raise  # the function's own
        raise APITimeoutError(
            f"{request.operation}: the function that makes the key did not return ({phase} timeout)",
            phase=phase,
            seconds=limit,
            sent="no",
            operation=request.operation,
        )

    def _read(
        self,
        read: Read[T],
        request: Request,
        answer: LiveResponse | Answer,
        attempt: int,
        sent: RequestSent | None,
        seconds: float,
    ) -> T:
        """Return what *answer* says, or raise the refusal that it is; both are told to who listens."""
        refused: Failed | None = None
        if not 200 <= answer.status < 300:
            assert isinstance(answer, Answer)
            refused = self._refusal(request, answer)
        self._note(request, attempt, sent, answer, seconds, refused)
        if refused is not None:
            raise refused
        return read(self.assumptions, answer, attempt)

    def _refusal(self, request: Request, answer: Answer) -> APIStatusError | UnexpectedResponseError:
        wait = retry_after_seconds(answer.headers, self.clock.wall(), resets=answer.status == 429)
        if answer.status < 200:
            return UnexpectedResponseError(
                f"{request.operation}: status {answer.status} is no answer to this request",
                status=answer.status,
                headers=safe_headers(self.assumptions, answer.headers),
            )
        return status_error(self.assumptions, request, answer, wait)

    def _pause(self, request: Request, failed: Failed, attempt: int, deadline: float | None) -> float | None:
        """Return the seconds until the next attempt, or None when there will be none."""
        headers = getattr(failed, "headers", {})
        if headers.get("x-should-retry") == "false":
            return None
        pause = self.retry.delay(_failure(request, failed), attempt, self.roll())
        if pause is None:
            return None
        if deadline is not None and self.clock.now() + pause + LAST_ATTEMPT_SECONDS > deadline:
            return None
        return pause if self.budget.take() else None

    def _verdict(self, request: Request, failed: Failed, sent_at: float) -> MintlifyError:
        if not request.is_agent_post or _outcome(failed) != "unknown":
            return failed
        return _outcome_unknown(request, failed, sent_at)

    async def _lease(
        self, request: Request, key: str, deadline: float | None, failed: Failed | None
    ) -> Lease | None:
        """Take a slot; *failed* is the attempt before, whose own error says more than a refusal here."""
        if self.quota is None or request.operation == "get_job":
            return None
        try:
            return await self.quota.acquire(
                request.operation, _scope(request, key), deadline=deadline, clock=self.clock
            )
        except QuotaExceededError:
            if failed is None:
                raise
        raise failed from failed.__cause__

    async def left_of_agent(
        self, operation: Literal["create_job", "send_message"], project_id: str
    ) -> tuple[QuotaRemaining, ...]:
        """Tell what is left of the limit that counts *operation*; nothing when there is no quota."""
        if self.quota is None:
            return ()
        return await self.quota.left(operation, _project_scope(project_id), clock=self.clock)

    async def left_of_assistant(self, domain: str) -> tuple[QuotaRemaining, ...]:
        """Tell what is left of the limits that count a question; nothing when there is no quota."""
        if self.quota is None:
            return ()
        key = await self.keys["assistant"].reveal()
        return await self.quota.left("ask", _assistant_scope(domain, key), clock=self.clock)

    async def _observe(self, quota: Quota, request: Request, key: str, answer: LiveResponse | Answer) -> None:
        if request.operation == "get_job":
            return
        wait = retry_after_seconds(answer.headers, self.clock.wall()) if answer.status == 429 else None
        try:
            await quota.observe(request.operation, _scope(request, key), answer.status, answer.headers, wait)
        except BaseException:
            if isinstance(answer, LiveResponse):
                answer.close()  # nobody else has it yet
            raise

    def _warn_of_sunset(self, headers: Mapping[str, str]) -> None:
        for name in ("deprecation", "sunset"):
            if name in headers and name not in _warned:
                _warned.add(name)
                log.warning("the service announces %s: %.80r", name, headers[name])

    def _note(
        self,
        request: Request,
        attempt: int,
        sent: RequestSent | None,
        answer: LiveResponse | Answer | None,
        seconds: float,
        error: Exception | None,
    ) -> None:
        if sent is None and not log.isEnabledFor(logging.DEBUG):
            return
        status = answer.status if answer is not None else None
        named = request_id(self.assumptions, answer.headers) if answer is not None else None
        log.debug(
            "%s %s: %s in %.0f ms, attempt %d, request id %.80r",
            request.method,
            request.route,
            status if status is not None else type(error).__name__,
            seconds * 1000,
            attempt,
            named,
        )
        if sent is not None:
            told = ResponseReceived(
                request=sent, status=status, request_id=named, seconds=seconds, error=error
            )
            tell(self.hooks.on_response, told)

    def _about(self, request: Request, attempt: int) -> RequestSent:
        return RequestSent(
            operation=request.operation,
            method=request.method,
            route=request.route,
            attempt=attempt,
            project_id=request.project_id,
            job_id=request.job_id,
            domain=request.domain,
        )


_warned: set[str] = set()  # once a process is enough for a notice that concerns its developer


def _outcome(failed: Failed) -> Outcome:
    if isinstance(failed, APIConnectionError):
        return "not_sent" if failed.sent == "no" else "unknown"
    if isinstance(failed, UnexpectedResponseError):
        return "unknown"
    if failed.status == 429:
        return "refused"
    return "unknown" if failed.status >= 500 else "answered"


def _failure(request: Request, failed: Failed) -> Failure:
    return Failure(
        kind="agent_post" if request.is_agent_post else "ask" if request.operation == "ask" else "get",
        outcome=_outcome(failed),
        status=getattr(failed, "status", None),
        retry_after=getattr(failed, "retry_after", None),
        permanent=isinstance(failed, APIConnectionError) and failed.reason == "certificate",
    )


def _outcome_unknown(request: Request, failed: Failed, sent_at: float) -> OutcomeUnknownError:
    what = "the job" if request.operation == "create_job" else "the follow-up"
    look = "look at the dashboard or the repository before sending it again"
    body = getattr(failed, "body", None) or getattr(failed, "excerpt", None)
    return OutcomeUnknownError(
        f"{failed}; {what} may have been accepted, so it was not sent again: {look}",
        operation=request.operation,
        project_id=request.project_id,
        job_id=request.job_id,
        status=getattr(failed, "status", None),
        body=body,
        headers=getattr(failed, "headers", None),
        request_id=getattr(failed, "request_id", None),
        sent_at=getattr(failed, "sent_at", None) or sent_at,
        prompt_sha256=request.prompt_sha256,
    )


def _scope(request: Request, key: str) -> QuotaScope:
    if request.operation == "ask":
        return _assistant_scope(request.domain, key)
    return _project_scope(request.project_id)


def _project_scope(project_id: str | None) -> QuotaScope:
    from .quota import QuotaScope  # who has no quota does not pay for loading it

    return QuotaScope(project=project_id)


def _assistant_scope(domain: str | None, key: str) -> QuotaScope:
    from .quota import QuotaScope

    return QuotaScope(domain=domain, key=hashlib.sha256(key.encode()).hexdigest()[:32])


def _read_job(assumptions: Assumptions, answer: LiveResponse | Answer, attempts: int) -> Job:
    assert isinstance(answer, Answer)  # only a question's answer is live
    return read_job(assumptions, answer, attempts)


def _read_live(
    assumptions: Assumptions, answer: LiveResponse | Answer, attempts: int
) -> tuple[LiveResponse, int]:
    """Return the live answer with the number of its attempts; a whole one answers no question."""
    if isinstance(answer, LiveResponse):
        return answer, attempts
    raise UnexpectedResponseError(
        f"ask: {answer.status} is no answer", status=answer.status, excerpt=answer.text[:2000]
    )


def _hide_secrets(answer: LiveResponse | Answer, request: Request, key: str) -> None:
    """Mask our own secrets in *answer*, which a server may repeat; no real one is short."""
    if isinstance(answer, LiveResponse):  # its thread's key is looked for there, and masked later
        _hide_in_headers(answer, key)
        return
    for secret in (key, request.thread.key if request.thread is not None else None):
        if secret is not None and len(secret) >= SHORTEST_SECRET:
            answer.body = answer.body.replace(secret.encode(), b"****")
            _hide_in_headers(answer, secret)


def _hide_in_headers(answer: LiveResponse | Answer, secret: str) -> None:
    for repeated in answer.headers.values():
        if secret in repeated and len(secret) >= SHORTEST_SECRET:
            headers = lower_headers(answer.headers)
            answer.headers = {name: value.replace(secret, "****") for name, value in headers.items()}
            return
