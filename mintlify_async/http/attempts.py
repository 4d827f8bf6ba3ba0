"""Sends a call with its key, quota and retries, and returns the response or raises an error.

This module decides how an attempt ended: not sent, refused, answered or unknown. The retry policy decides
whether another attempt follows. An agent POST is sent again only if no byte of it was sent, or if the service
refused it with 429.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import random
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..errors import (
    APIConnectionError,
    APIStatusError,
    CauseSummary,
    MintlifyError,
    OutcomeUnknownError,
    QuotaExceededError,
    UnexpectedResponseError,
    printable,
)
from ..model.job_record import Job
from ..model.operation import OPERATIONS, OperationName
from ..model.response_info import lower_headers
from ..model.secret import Secret, mask_secret
from ..protocol.requests import Call
from ..protocol.responses import WholeResponse, read_job, request_id
from ..protocol.status_errors import status_error
from ..runtime import clock
from ..runtime.logs import SECONDS, log_fields, logged_if_slow
from ..runtime.per_event_loop import session_closed
from ..runtime.tasks import cancel_requests
from ..settings.api_keys import Key
from ..settings.options import Observation
from .connection_errors import CLOSED, AttemptLimit, timed_out
from .header_times import retry_after_seconds
from .live_response import LiveResponse
from .send_progress import CLEAN_UP_SECONDS, Sending
from .session_core import Core

if TYPE_CHECKING:
    from ..quota.quota import CountedOperation, Lease, Quota, QuotaRemaining, QuotaScope

log = logging.getLogger("mintlify_async")

_NO_ANSWER: Final = "%s: no answer yet, %.0f s after attempt %d began"
_NOT_READY: Final = "%s: still waiting for its key or for a slot of the quota"

NO_KEY: Final = "key"
"""The ``reason`` of the error if the user's function that returns a key failed."""

SHORTEST_SECRET: Final = 8
"""Minimum length of a key that is masked. A shorter key is a test's, and may be part of other words."""
BLOCK_SECONDS: Final = 10.0
"""Maximum time that a refused call waits until the quota's store has recorded the refusal, in seconds."""
LAST_ATTEMPT_SECONDS: Final = 1.0
"""With less time left than this, no other attempt starts, because it could hardly end."""
SendError = APIConnectionError | APIStatusError | UnexpectedResponseError
SEND_ERRORS = (APIConnectionError, APIStatusError, UnexpectedResponseError)


async def send_job(
    core: Core,
    call: Call,
    *,
    single: bool = False,
    sending: Sending | None = None,
    observation: Observation | None = None,
) -> Job:
    """Send an agent request and return the job in its response.

    Args:
        core: The core of the session.
        call: The request.
        single: Whether there is only one attempt, for the poll of a wait.
        sending: Records whether the last attempt was sent, however the request ends.
        observation: Gets each attempt.

    Raises:
        OutcomeUnknownError: A POST was sent, and its outcome is unknown.
        APIConnectionError: There was no response.
        APIStatusError: The service refused.
        UnexpectedResponseError: The response to a GET is not a job.
        QuotaExceededError: By the count of this package, the limit is used up.
    """
    job = await _Attempts(core, call, sending or Sending(), observation, single=single).run()
    assert isinstance(job, Job)
    return job


async def open_answer(core: Core, call: Call, observation: Observation | None) -> LiveResponse:
    """Send a question and return its live answer.

    Raises:
        APIConnectionError: There was no response.
        APIStatusError: The service refused.
        QuotaExceededError: By the count of this package, the limit is used up.
    """
    sending = Sending(call.until(asyncio.get_running_loop().time()))
    attempts = _Attempts(core, call, sending, observation)
    answer = await attempts.run()
    assert isinstance(answer, LiveResponse)
    answer.attempts = attempts.number
    return answer


async def quota_left(core: Core, operation: CountedOperation, fp: str = "") -> tuple[QuotaRemaining, ...]:
    """Return the remaining calls of the limits that count *operation*, for the site or project and *fp*."""
    quota, place = core.options.quota, core.options.counted_for(operation)
    if quota is None:
        return ()
    return await quota.left(operation, await _scope_now(core, operation, place, fp))


async def unblock(core: Core, operation: CountedOperation) -> None:
    """End the block of *operation* for the session's site or project."""
    quota, place = core.options.quota, core.options.counted_for(operation)
    if quota is not None:
        await quota.unblock(operation, await _scope_now(core, operation, place))


class _Attempts:
    """The attempts to send one call.

    Attributes:
        name: The operation's name.
        level: The log level of lines about the result.
        waits: Whether the call waits for a slot. The wait does not use up the time of the request.
        seconds: The time limit of the request, in seconds.
        deadline: When the request must have ended, by the loop's time. In the mode ``"wait"`` of the quota,
            each wait for a slot moves the deadline.
        number: The number of the attempt, from 1.
        sent_back: The number of attempts that were refused with 429 and wait for a slot again.
        waited: The time for which the call has waited for slots, in seconds.
        blocked: If the call waits for the end of a block after a 429, the length of the block, in seconds.
            Otherwise None.
        error: The error of the previous attempt. None for the first attempt.
    """

    def __init__(
        self,
        core: Core,
        call: Call,
        sending: Sending,
        observation: Observation | None,
        *,
        single: bool = False,
    ) -> None:
        """Start to count the time."""
        now, within = asyncio.get_running_loop().time(), core.options.retry.within
        self.core = core
        self.resources = core.shared.loops.get()
        # A wait makes many polls with a single attempt, so their level is DEBUG.
        self.level = logging.DEBUG if single else logging.INFO
        self.call = call
        self.name: OperationName = call.operation.name
        self.sending = sending
        self.observation = observation
        self.single = single
        self.quota = core.options.quota if call.operation.counted else None
        self.waits = self.quota is not None and self.quota.mode == "wait"
        self.seconds = call.request_seconds if self.waits else call.seconds
        self.started = now
        self.deadline = min(now + self.seconds, sending.until)
        self.last_start = math.inf if within is None else now + within
        self.number = self.sent_back = 0
        self.waited = 0.0
        self.blocked: float | None = None
        self.error: SendError | None = None

    async def run(self) -> Job | LiveResponse:
        """Make attempts until one succeeds or no other may follow."""
        pause = 0.0
        while True:
            outcome = await self._attempt(pause)
            if not isinstance(outcome, Exception):
                self.core.shared.budget.succeeded()
                if log.isEnabledFor(self.level):
                    self._log_success(outcome)
                return outcome
            self.error = outcome
            next_pause = self._pause(outcome)
            if next_pause is None:
                verdict = self._verdict(outcome)
                # As text, because a log record that is kept must not keep a connection.
                log.log(self.level, "%s", str(verdict), extra=self._fields(outcome))
                raise verdict from outcome.__cause__
            pause = await self._again(outcome, next_pause)

    async def _again(self, error: SendError, pause: float) -> float:
        """Drop the attempt that ended with *error*. Return the rest of *pause*, or raise *error*."""
        time = asyncio.get_running_loop().time
        log.info(
            "%s failed, attempt %d; again in %.1f s", self.name, self.number, pause, extra=self._fields(error)
        )
        if self.observation is not None:
            self.observation.event("retry", {"attempt": self.number, "delay": pause})
        next_start = time() + pause
        reason = await self.resources.transport.unless_closed(
            self.sending.again(max(pause, self.blocked or 0.0))
        )
        self.blocked = None
        if reason is not None:
            error.add_note(f"it was not sent again: {reason}")
            raise error
        return max(0.0, next_start - time())

    async def _attempt(self, pause: float) -> Job | LiveResponse | SendError:
        """Send the request once, after *pause*. Return the result, or the error."""
        self.number += 1
        key, slot = self.core.options.key(self.call.operation.key).check(), None
        if key is None or self.error is not None or self.quota is not None:
            try:
                key, slot = await self._ready(pause)
            except APIConnectionError as error:
                if error.reason != NO_KEY:
                    raise
                return error
        began = asyncio.get_running_loop().time()
        try:
            with logged_if_slow(_NO_ANSWER, self.name, SECONDS, self.number, fields=self._fields):
                return await self._exchange(key, began)
        except BaseException as error:
            if slot is not None and self.sending.sent_at is None:
                await self._refund(slot)
            if not isinstance(error, SEND_ERRORS):
                raise
            return error

    async def _exchange(self, key: Secret, began: float) -> Job | LiveResponse:
        """Send the request, mask secrets in the response, and read its headers."""
        call, assumptions, fresh = self.call, self.core.options.assumptions, self.number > 1
        limit = self._limit(began)
        self.sending.ends_at = limit.at
        try:
            answer = await self.resources.transport.send(
                call, key, limit, self.sending, fresh=fresh, total_at=self.deadline
            )
        except SEND_ERRORS as error:
            self._note(began, None, error)
            raise
        _hide(answer, key)
        if call.thread is not None and call.thread.key is not None and isinstance(answer, WholeResponse):
            _hide(answer, call.thread.key)  # a live body is masked later, because the key is read from there
        job: Job | None = None
        try:  # before an observer can fail, because the job may cost money
            if isinstance(answer, WholeResponse) and answer.is_success:
                job = read_job(assumptions, answer, self.number, id_is_enough=bool(call.operation.costs))
                self.sending.job_id = job.id
        finally:
            self._note(began, answer, None)
        for name in ("deprecation", "sunset"):
            if name in answer.headers:
                _announce(name, answer.headers[name])
        if job is not None:
            return job
        if isinstance(answer, LiveResponse):
            return answer
        if answer.status == 429 and self.quota is not None:
            self.blocked = await self._block(self.quota, answer, key)
        wait = retry_after_seconds(answer.headers, clock.now(), resets=answer.status == 429)
        raise status_error(assumptions, call, answer, wait)

    async def _ready(self, pause: float) -> tuple[Secret, Lease | None]:
        """Wait for *pause*, for the key and for a slot. Closing the session ends the wait."""
        cancelled = cancel_requests()
        slot: Lease | None = None
        try:
            key, slot = await self.resources.transport.unless_closed(
                self.sending.ready(self._key_and_slot(pause))
            )
            if cancel_requests() > cancelled:  # the user's key function or store swallowed it
                raise asyncio.CancelledError
        except BaseException:
            if slot is not None:
                await self._refund(slot)
            raise
        if slot is not None and self.waits:
            self.waited += slot.waited
            self.deadline = min(self.deadline + slot.waited, self.sending.until)
        return key, slot

    async def _key_and_slot(self, pause: float) -> tuple[Secret, Lease | None]:
        if pause:
            await asyncio.sleep(pause)
        with logged_if_slow(_NOT_READY, self.name, fields=self._fields):
            key = await self._key()
            return key, await self._slot(key)

    async def _key(self) -> Secret:
        """Return the key. The user's function that returns it has as much time as the response."""
        limit = self._limit(asyncio.get_running_loop().time())
        block = asyncio.timeout_at(limit.at if limit.at < math.inf else None)
        try:
            async with block:
                return await _revealed(self.core.options.key(self.call.operation.key), self.name)
        except TimeoutError:
            pass  # the block's time is over. _revealed() translates a TimeoutError of the function
        what = "the function that makes the key did not return"
        raise timed_out(self.name, limit.phase, limit.seconds, "no", what)

    async def _slot(self, key: Secret) -> Lease | None:
        """Take a slot of the quota."""
        if self.quota is None:
            return None
        slot = self.quota.lease(*_counted(self.call, key))
        try:
            return await self._take(slot)
        except QuotaExceededError as refusal:
            if self.error is None:
                raise
            self.error.add_note(f"it was not sent again: {refusal}")
        except BaseException:
            await self._refund(slot)
            raise
        # The service's refusal of the previous attempt is more useful than the quota's refusal of this one.
        raise self.error from self.error.__cause__

    async def _take(self, slot: Lease) -> Lease:
        """Take *slot*, and wait as long as the call may wait. The call's time also limits the store."""
        until = self.sending.until if self.waits else self.deadline
        deadline, limited_by = until, "timeout= of the call"
        if self.last_start < until:
            deadline, limited_by = self.last_start, "within= of the RetryPolicy"
        limit = asyncio.timeout_at(until if until < math.inf else None)
        try:
            async with limit:
                return await slot.take(deadline=deadline, limited_by=limited_by, waited=self.waited)
        except TimeoutError:
            if not limit.expired():
                raise
        await self._refund(slot)
        raise QuotaExceededError(
            f"{self.call.operation}: the quota's store did not answer in the call's time; nothing was sent",
            retry_after=0.0,
        )

    async def _refund(self, slot: Lease) -> None:
        """Return *slot* to the quota. Wait at most 0.25 s, and no longer than the call may wait."""
        if not slot.may_be_taken:
            return
        failure = "a slot of the quota could not be given back"
        patience = self.sending.patience(CLEAN_UP_SECONDS)
        await self.resources.recordings.insist(slot.refund, failure, patience, self._fields())

    def _limit(self, now: float) -> AttemptLimit:
        """Return the limit of an attempt that starts *now*."""
        call = self.call
        if call.operation.streams:
            seconds = call.timeouts.first_event
            if self.deadline >= now + seconds:
                return AttemptLimit(now + seconds, seconds, "first_event")
        seconds = call.seconds if self.deadline == self.sending.until else self.seconds
        return AttemptLimit(self.deadline, seconds, call.operation.limit)

    async def _block(self, quota: Quota, answer: WholeResponse, key: Secret) -> float | None:
        """After a 429, stop the calls that share the limit.

        If an agent request waits for the end of this block, return its minimum length in seconds.
        """
        from ..quota.quota import FIRST_BLOCK  # imported here, because most sessions have no quota

        wait = retry_after_seconds(answer.headers, clock.now())
        try:
            block = quota.block(*_counted(self.call, key), wait)
            async with asyncio.timeout(self.sending.patience(BLOCK_SECONDS)):
                await self.resources.transport.unless_closed(block)
        except Exception as error:  # the service's refusal is more useful
            why = str(error) or "the quota's store did not answer in time"
            log.warning(
                "a refusal of the service could not be recorded for other calls: %s",
                why,
                extra=self._fields(),
            )
            return None
        return (wait or FIRST_BLOCK) if self.waits and self.call.operation.costs else None

    def _pause(self, error: SendError) -> float | None:
        """Return the seconds until the next attempt. None if no attempt may follow."""
        if self.single or getattr(error, "headers", {}).get("x-should-retry") == "false":
            return None
        if getattr(error, "reason", None) in (CLOSED, "certificate"):
            return None
        if 400 <= (getattr(error, "proxy_status", None) or 0) < 500:
            return None  # a proxy counts wrong passwords, and then locks the account
        if self.blocked is not None:  # the block replaces the pause; the wait for a slot has its own limits
            self.sent_back += 1
            log.warning(
                "%s waits for a slot again, because the service refused it: %s",
                self.name,
                error,
                extra=self._fields(error),
            )
            return 0.0
        pause = self.core.options.retry.delay(
            self.name,
            self.sending.outcome,
            attempt=self.number - self.sent_back,
            random=random.random(),
            status=getattr(error, "status", None),
            retry_after=getattr(error, "retry_after", None),
        )
        if pause is None:
            return None
        start = asyncio.get_running_loop().time() + pause
        if start + LAST_ATTEMPT_SECONDS > self.deadline or start > self.last_start:
            return None
        return pause if self.core.shared.budget.take() else None

    def _verdict(self, error: SendError) -> MintlifyError:
        """Return the error for the caller if no attempt may follow."""
        if self.call.operation.costs and self.sending.outcome == "unknown":
            return _outcome_unknown(self.call, error, self.sending)
        is_closed = getattr(error, "reason", None) == CLOSED
        return session_closed(self.name) if is_closed else error

    def _log_success(self, outcome: object) -> None:
        """Log one line for the request, after any number of attempts."""
        result = "the answer begins"
        if isinstance(outcome, Job):
            result = f"job {printable(outcome.id)} is {printable(outcome.status)}"
        seconds = asyncio.get_running_loop().time() - self.started
        log.log(
            self.level,
            "%s: %s (%d ms, attempts: %d)",
            self.name,
            result,
            seconds * 1000,
            self.number,
            extra=self._fields(outcome.raw if isinstance(outcome, Job) else None),
        )

    def _fields(self, answer: object = None, id: str | None = None) -> dict[str, object]:
        """Return the fields of a log record, with *id* or else the request id of *answer* (or error)."""
        return log_fields(
            self.name,
            job_id=self.call.job_id or self.sending.job_id,
            request_id=id or getattr(answer, "request_id", None),
            attempt=self.number,
        )

    def _note(
        self, began: float, answer: LiveResponse | WholeResponse | None, error: SendError | None
    ) -> None:
        """Log the end of an attempt, and report it to the observer."""
        observation = self.observation
        if observation is None and not log.isEnabledFor(logging.DEBUG):
            return
        seconds = asyncio.get_running_loop().time() - began
        status = answer.status if answer is not None else None
        id = request_id(self.core.options.assumptions, answer.headers) if answer is not None else None
        log.debug(
            "%s %s: %s in %.0f ms, attempt %d, request id %.80r",
            self.call.operation.method,
            self.call.route,
            status or type(error).__name__,
            seconds * 1000,
            self.number,
            id,
            extra=self._fields(answer, id),
        )
        if observation is not None:
            facts = {"attempt": self.number, "seconds": seconds, "status": status, "request_id": id}
            facts["error"] = type(error).__name__ if error is not None else None
            observation.event("attempt", {name: fact for name, fact in facts.items() if fact is not None})


@lru_cache(maxsize=16)
def _announce(name: str, text: str) -> None:
    """Log, once for each *text*, that the service will end something that this package uses."""
    log.warning("the service announces %s: %.80r", name, text)


def _outcome_unknown(call: Call, error: SendError, sending: Sending) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{error}; {call.operation.costs} may have been accepted, so it was not sent again: "
        f"{sending.next_step}",
        operation=call.operation.name,
        project_id=call.project_id,
        job_id=call.job_id,
        status=getattr(error, "status", None),
        body=getattr(error, "body", None) or getattr(error, "excerpt", None),
        headers=getattr(error, "headers", None),
        request_id=getattr(error, "request_id", None),
        sent_at=sending.sent_at,
        dedupe_key=sending.dedupe_key,
        prompt_sha256=hashlib.sha256(call.prompt.encode("utf-8", "surrogatepass")).hexdigest(),
        reason=_unknown_reason(error),
    )


def _unknown_reason(error: SendError) -> str:
    if isinstance(error, APIConnectionError):
        if error.reason == "protocol":
            return "unreadable_answer"
        return error.reason if error.reason in ("timeout", CLOSED) else "connection_lost"
    return "server_error" if isinstance(error, APIStatusError) else "unreadable_answer"


def _counted(call: Call, key: str) -> tuple[CountedOperation, QuotaScope]:
    """Return the operation and the scope for which the quota counts *call*."""
    name, place = call.operation.name, call.domain or call.project_id or ""
    assert name != "get_job"  # no quota counts polls
    return name, _scope(place, key if call.operation.key == "assistant" else None, call.fp)


async def _scope_now(core: Core, operation: CountedOperation, place: str, fp: str = "") -> QuotaScope:
    """Return the scope in which the session's next call of *operation* is counted."""
    asks = OPERATIONS[operation].key == "assistant"
    return _scope(place, await _revealed(core.options.assistant_key, operation) if asks else None, fp)


async def _revealed(key: Key, operation: str) -> Secret:
    """Return the key to send. If the user's function that returns it fails, nothing was sent."""
    try:
        return await key.reveal()
    except MintlifyError:
        raise
    except Exception as error:
        # Only the class of the error is reported. The function has the key, so the error's text and frames
        # may show the key.
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    raise APIConnectionError(
        f"{operation}: the function that makes the {key.kind} key failed with {kind}; nothing was sent",
        sent="no",
        operation=operation,
        reason=NO_KEY,
    ) from CauseSummary(kind)


def _scope(place: str, key: str | None, fp: str) -> QuotaScope:
    """Return the scope of a call: a domain, the assistant's *key* and the user *fp*, or a project."""
    from ..quota.quota import QuotaScope  # imported here, because most sessions have no quota

    if key is None:
        return QuotaScope(project=place)
    return QuotaScope(domain=place, key=hashlib.sha256(key.encode()).hexdigest()[:32], user=fp)


def _hide(answer: LiveResponse | WholeResponse, secret: str) -> None:
    """Mask the session's secrets in *answer*, because a server may send them back."""
    if len(secret) < SHORTEST_SECRET:
        return
    body = answer.body.decode("utf-8", "surrogateescape") if isinstance(answer, WholeResponse) else ""
    text = "\n".join((body, *answer.headers.values()))  # one search, because servers rarely repeat a secret
    if mask_secret(text, secret) == text:
        return
    if isinstance(answer, WholeResponse):
        answer.body = mask_secret(body, secret).encode("utf-8", "surrogateescape")
    headers = lower_headers(answer.headers)
    answer.headers = {name: mask_secret(text, secret) for name, text in headers.items()}
