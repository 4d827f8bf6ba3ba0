"""Sends an agent POST, which creates a job or a follow-up, at most once per ``dedupe_key``.

``ledger`` has the rules. This module applies them to a store, and records the end of each request, even if
the caller is cancelled. If nothing was started, the key is free again. Otherwise the module records the
result, or that there is none.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from attrs import define, evolve, frozen

from ..errors import OutcomeUnknownError, QuotaExceededError, StateError, printable
from ..http.send_progress import CLEAN_UP_SECONDS, Sending
from ..runtime import clock
from ..runtime.lasting_steps import RECORD_PATIENCE, Recordings
from ..runtime.logs import log_fields
from ..runtime.tasks import running_loop
from ..storage.store import Rule, Snapshot, Store, change, new_version
from . import ledger as claims
from .key_watch import KeyWatch
from .ledger import Claim, KeyHeldError, check_same, claim_keys, outcome_unknown

log = logging.getLogger("mintlify_async")

LOOK_AGAIN_SECONDS: Final = 0.25
"""If the quota refuses a call, the call waits this many seconds. In this time, another call with the same key
may send its request.

A call that waits for another call also reads an unreachable store again after this time.
"""

WARN_SECONDS: Final = 10.0
"""Seconds after which a wait for another call is logged as a warning."""

T = TypeVar("T")


class UnlessClosed(Protocol):
    """Ends a wait when the session is closed."""

    async def __call__(self, step: Awaitable[T]) -> T:
        """Wait for *step*."""
        ...


@frozen(eq=False)
class OnceSender:
    """Sends a POST at most once per key, with the resources of one event loop.

    Args:
        claim: The claim on the key, without a token and a lease.
        store: The ledger.
        watch: Ends the waits of a call when its key has changed.
        recordings: Finishes the pending ledger writes.
        unless_closed: Ends a wait when the session is closed.
        until: When the call must have ended, by the loop's time. Infinity means no limit.
    """

    claim: Claim
    store: Store
    watch: KeyWatch
    recordings: Recordings
    unless_closed: UnlessClosed
    until: float = math.inf

    async def send(self, post: Callable[[Sending], Awaitable[T]], result_of: Callable[[T], str]) -> T | str:
        """Send the request if the key has no claim. It is never sent twice.

        Args:
            post: Sends the one POST.
            result_of: Returns the result to record for other calls with the same key.

        Returns:
            The result of *post*. If another call has sent the request, the recorded result.

        Raises:
            ConfigurationError: The key belongs to another request.
            OutcomeUnknownError: Another call has sent the request, and its outcome is unknown.
            StateError: Another call is sending the request, and the time of this call is over. Or the store
                cannot be used. This call has sent nothing.
            MintlifyError: The error of *post*. If nothing was started, the key is free again.
        """
        with self.recordings.following():
            leave = await self._enter()
            try:
                while True:
                    snapshot = await self._when_free()
                    if isinstance(snapshot, str):
                        return snapshot  # the result of another call
                    try:
                        return await self._send(snapshot, post, result_of)
                    except KeyHeldError:
                        continue
            finally:
                leave()

    async def is_known(self) -> bool:
        """Return whether the key already has a claim. If the claim is for another request, raise an error."""
        return self._holder(await self.look()) is not None

    async def look(self) -> Snapshot:
        """Return the records of the key. If the call's time is over, the store gets 0.25 s."""
        limit = asyncio.timeout_at(None if self.until == math.inf else self.until + CLEAN_UP_SECONDS)
        try:
            async with limit:
                return await self.unless_closed(self.store.read(claim_keys(self.claim.key)))
        except TimeoutError:
            if not limit.expired():
                raise
        raise StateError("the ledger did not respond before the time limit of the call; nothing was sent")

    def _holder(self, snapshot: Snapshot) -> Claim | None:
        holder = claims.find(snapshot, self.claim.key)
        if holder is not None:
            check_same(holder, self.claim)
            holder = holder.at(snapshot.now)
        return holder

    async def _enter(self) -> Callable[[], None]:
        """Wait for this loop's calls with the same key. Return a function that lets the next call start."""
        try:
            return await self.unless_closed(self.watch.enter(self.store, self.claim, self.until))
        except TimeoutError:
            key = printable(self.claim.key, 80)
            text = f"another call of this session has dedupe_key {key!r} and has not ended"
        raise StateError(f"{text}; this one has sent nothing in its time")

    async def _when_free(self) -> Snapshot | str:
        """Wait while another call is sending. Return the records of a free key, or the call's result."""
        time = asyncio.get_running_loop().time
        began = final_at = time()  # final_at: when the other call's outcome is final at the latest
        logged = 0
        while True:
            try:
                snapshot = await self.look()
            except StateError:
                if time() >= min(self.until, final_at):
                    raise
                await self.unless_closed(asyncio.sleep(LOOK_AGAIN_SECONDS))
                continue
            holder = self._holder(snapshot)
            if holder is None:
                return snapshot
            if holder.result is not None:
                return holder.result
            if holder.state == "unknown":
                raise outcome_unknown(holder)
            waited, left = time() - began, self.until - time()
            if left <= 0:
                raise _held(holder)
            final_at = time() + holder.unknown_from - snapshot.now
            if logged < 1 + (waited >= WARN_SECONDS):
                logged += 1
                _log_wait(holder, min(self.until, final_at) - time(), is_long=logged > 1)
            next_line = WARN_SECONDS - waited if logged < 2 else math.inf
            await self._sleep(min(left, final_at - time(), next_line))

    async def _sleep(self, seconds: float) -> None:
        """Wait for *seconds*, or until no other call is sending."""

        def is_over(snapshot: Snapshot) -> bool:
            holder = claims.find(snapshot, self.claim.key)
            return holder is None or holder.at(snapshot.now).state != "sending"

        sleep = self.watch.unless(self.store, self.claim.key, is_over, asyncio.sleep(seconds))
        with suppress(KeyHeldError):
            await self.unless_closed(sleep)

    async def _send(
        self, snapshot: Snapshot, post: Callable[[Sending], Awaitable[T]], result_of: Callable[[T], str]
    ) -> T:
        """Send the request and record its result, or that there will be none."""
        sending = _KeyedSending(self, snapshot)
        try:
            answer = await post(sending)
        except BaseException as error:
            if running_loop() is not None:  # None if Python closes the coroutine, which then cannot await
                await sending.failed(error)
            raise
        await sending.answered(result_of(answer))
        return answer


def _held(holder: Claim) -> StateError:
    return StateError(
        f"another call has been sending {holder.operation} with dedupe_key {printable(holder.key, 80)!r} "
        f"since {clock.as_text(holder.since)}; from {clock.as_text(holder.unknown_from)} its outcome counts "
        "as unknown; this call has sent nothing in its time"
    )


def _log_wait(holder: Claim, seconds: float, *, is_long: bool) -> None:
    log.log(
        logging.WARNING if is_long else logging.INFO,
        "waiting up to %.0f s for the result of %s with dedupe_key %r: another call has been sending it "
        "since %s, or its process has died",
        seconds, holder.operation, printable(holder.key, 80), clock.as_text(holder.since),
        extra=log_fields(holder.operation),
    )  # fmt: skip


@define(eq=False)
class _Attempt:
    """One attempt to send, with its claim.

    Attributes:
        claim: The claim. Its token is used once, so a late release cannot free the next claim.
        steps: Number of steps that may still write a claim. This includes the steps of this attempt that have
            not returned. If the key had a record without a claim, one more is counted, because an earlier
            claim may still arrive.
    """

    claim: Claim
    steps: int = 0


class _KeyedSending(Sending):
    """A request with a ``dedupe_key``, which claims the key just before its first byte.

    Args:
        sender: The sender of the call.
        snapshot: The records that were read when the key was free.
    """

    __slots__ = ("_attempt_now", "_sender", "_snapshot")
    must_wait = True

    def __init__(self, sender: OnceSender, snapshot: Snapshot) -> None:
        super().__init__(sender.until)
        self.dedupe_key = sender.claim.key
        self._sender = sender
        self._snapshot: Snapshot | None = snapshot
        self._attempt_now = self._new_attempt()

    def _new_attempt(self) -> _Attempt:
        return _Attempt(evolve(self._sender.claim, token=new_version()))

    async def ready(self, step: Awaitable[T]) -> T:
        """Wait for *step*, or until the key gets a claim. If the quota refuses, read the key once more."""
        sender, key = self._sender, self._sender.claim.key
        try:
            return await sender.watch.unless(
                sender.store, key, lambda snapshot: claims.find(snapshot, key) is not None, step
            )
        except QuotaExceededError:
            await asyncio.sleep(self.patience(LOOK_AGAIN_SECONDS))
            is_known = False
            with suppress(StateError):  # the quota's error is more useful
                is_known = await sender.is_known()
            if not is_known:
                raise
        raise KeyHeldError("another call has used the dedupe_key; nothing was sent")

    async def before_first_byte(self) -> None:
        """Claim the key."""
        attempt, sender = self._attempt_now, self._sender
        seconds = self.ends_at - asyncio.get_running_loop().time() + claims.LIMIT_MARGIN
        attempt.claim = evolve(attempt.claim, lease=min(seconds, claims.LONGEST_LIMIT))

        def rule(snapshot: Snapshot) -> tuple[claims.Changes, bool]:
            attempt.steps += claims.OPEN + attempt.claim.key in snapshot.records
            return claims.begin(snapshot, attempt.claim)

        attempt.steps += 1
        is_ours = await change(sender.store, claim_keys(sender.claim.key), rule, snapshot=self._snapshot)
        attempt.steps -= 1
        if not is_ours:
            raise KeyHeldError("another call was first to use the dedupe_key; nothing was sent")

    async def again(self, seconds: float) -> str | None:
        """Free the key, because the last attempt had no effect. Another attempt follows in *seconds*."""
        may_have_claim, attempt = self.body_read, self._attempt_now
        await super().again(seconds)
        if not may_have_claim:
            return None
        self._attempt_now, self._snapshot = self._new_attempt(), None
        error = await self._release(attempt, seconds + CLEAN_UP_SECONDS)
        return None if error is None else f"its dedupe_key is not free again: {error}"

    async def failed(self, error: BaseException) -> None:
        """End the claim after *error*. If nothing was started, delete it. Otherwise it becomes *unknown*."""
        attempt = self._attempt_now
        if self.had_no_effect:
            if self.body_read and not isinstance(error, KeyHeldError):
                await self._release(attempt, CLEAN_UP_SECONDS)
        elif self.job_id is not None:  # an observer failed after the response was read
            await self.answered(self.job_id)
        else:
            reason, status = "cancelled", None
            if isinstance(error, OutcomeUnknownError):  # other errors may have any value in these attributes
                reason, status = error.reason, error.status
            rule = partial(
                claims.give_up, ours=attempt.claim, reason=reason, status=status, unclaimed=not self.body_read
            )
            await self._end(rule, "its outcome is unknown, which", CLEAN_UP_SECONDS)

    async def answered(self, result: str) -> None:
        """Record *result*."""
        claim, store = self._attempt_now.claim, self._sender.store
        what = f"{claim.operation} with dedupe_key {printable(claim.key, 80)!r}: {printable(result, 80)}"
        fields = log_fields(claim.operation, job_id=self.job_id)
        rule = partial(claims.record, key=claim.key, result=result, ours=claim, unclaimed=not self.body_read)
        is_recorded = False

        async def record() -> None:
            nonlocal is_recorded
            recorded = await claims.write_result(store, claim.key, rule)
            is_recorded = True
            if not recorded:
                log.warning("%s was not recorded: its key was changed by hand", what, extra=fields)

        failure = f"{what} was not recorded; resolve its key"
        try:
            await self._sender.recordings.insist(record, failure, self.patience(RECORD_PATIENCE), fields)
        except asyncio.CancelledError as error:
            error.add_note(f"{what}, sent at {clock.as_text(self.sent_at)}")
            raise
        finally:
            if not is_recorded:
                log.warning("%s is not recorded yet", what, extra=fields)

    async def _release(self, attempt: _Attempt, seconds: float) -> Exception | None:
        rule = partial(claims.release, ours=attempt.claim, may_come=attempt.steps > 0)
        keep = claims.FREE_SECONDS if attempt.steps else None
        return await self._end(rule, "nothing was started, which", seconds, keep=keep)

    async def _end(
        self, rule: Rule[None], what: str, seconds: float, *, keep: float | None = None
    ) -> Exception | None:
        """End the claim without a result. If *seconds* pass, return an error and continue the writing."""
        sender = self._sender
        key = printable(sender.claim.key, 80)
        return await sender.recordings.insist(
            lambda: change(sender.store, claim_keys(sender.claim.key), rule, keep=keep),
            f"{sender.claim.operation} with dedupe_key {key!r}: {what} was not recorded; remove the key with "
            f"`mintlify-async ledger forget` or Ledger(store).forget({key!r})",
            self.patience(seconds),
            log_fields(sender.claim.operation),
        )
