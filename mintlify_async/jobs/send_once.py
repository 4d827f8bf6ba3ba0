"""Sends an agent POST at most once per ``dedupe_key``. It creates a job or a follow-up.

``claims`` has the rules. Here they are applied to a store, and the call that sends follows its request to the
end: the key becomes free when nothing was sent, and the result of a paid request is recorded although the
caller leaves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal, TypeVar

from attrs import evolve, frozen

from ..errors import APIStatusError, printable
from ..http.first_byte import Sending
from ..runtime.recordings import FIRST_PAUSE, LONGEST_PAUSE, RECORD_PATIENCE, Recordings
from ..storage.store import Snapshot, Store, change, new_version
from . import claims
from .claims import Claim, ClaimLostError, check_same, claim_keys, outcome_unknown

log = logging.getLogger("mintlify_async")

RELEASE_PATIENCE: Final = 0.25
"""How long a caller waits for the release of its claim, in seconds."""

T = TypeVar("T")
UnlessClosed = Callable[[Awaitable[None]], Awaitable[None]]


def had_no_effect(error: BaseException, sending: Sending) -> bool:
    """Return whether a POST with this *error* started nothing, because it was not sent or was refused."""
    return sending.sent_at is None or (isinstance(error, APIStatusError) and 300 <= error.status < 500)


@frozen(eq=False)
class OnceSender:
    """Sends a POST at most once per key, with one event loop's resources.

    Args:
        claim: The claim on the key, without a token. Its lease must cover the request.
        store: Where the claims are.
        recordings: Finishes the pending ledger writes.
        unless_closed: Ends a pause when the session is closed.
    """

    claim: Claim
    store: Store
    recordings: Recordings
    unless_closed: UnlessClosed

    async def send(self, post: Callable[[Sending], Awaitable[T]], result_of: Callable[[T], str]) -> T | str:
        """If the key has no claim yet, send its request. Never send it twice.

        Args:
            post: Sends the one POST.
            result_of: Returns the result to record for other calls with the same key.

        Returns:
            The result of *post*. If another call has sent the request: the recorded result.

        Raises:
            ConfigurationError: The key belongs to another request.
            OutcomeUnknownError: Another call may have sent the request, and its outcome is not known.
            MintlifyError: The error of *post* or of the store. The key is free again when nothing was
                started.
        """
        loop = asyncio.get_running_loop()
        last_state, end, pause = ("", ""), 0.0, FIRST_PAUSE
        with self.recordings.following():
            while True:
                claim = evolve(self.claim, token=new_version())
                holder, seconds_left = await self._begin(claim)
                if holder.token == claim.token:
                    try:
                        return await self._send(claim, post, result_of)
                    except ClaimLostError:
                        continue
                check_same(holder, claim)
                if holder.result is not None:
                    return holder.result
                if (holder.token, holder.state) != last_state:
                    last_state, end = (holder.token, holder.state), loop.time() + seconds_left
                    log.warning(
                        "waiting up to %.0f s for another call's %s with dedupe_key %r, which is %s",
                        seconds_left, holder.operation, printable(claim.key, 80), holder.state,
                    )  # fmt: skip
                if loop.time() >= end and holder.state == "sending":
                    raise outcome_unknown(holder)
                # The store's time says when a lease ends. Its clock may have been set since then.
                await self.unless_closed(asyncio.sleep(min(pause, max(end - loop.time(), FIRST_PAUSE))))
                pause = min(LONGEST_PAUSE, pause * 2)

    async def is_known(self) -> bool:
        """Return whether the key has a claim already. If the claim is for another request, raise an error."""
        holder = claims.find(await self.store.read(claim_keys(self.claim.key)), self.claim.key)
        if holder is not None:
            check_same(holder, self.claim)
        return holder is not None

    async def _begin(self, claim: Claim) -> tuple[Claim, float]:
        """Claim the key. Return the valid claim, and for how many seconds to wait for its result.

        If this fails, nothing was sent.
        """
        try:
            return await self._change(partial(claims.begin, ours=claim))
        except BaseException:
            await self._release(claim)
            raise

    async def _send(
        self, claim: Claim, post: Callable[[Sending], Awaitable[T]], result_of: Callable[[T], str]
    ) -> T:
        """Send the request and record its result. An uncertain outcome leaves the claim *sending*."""
        sending = Sending(
            before_first_byte=lambda: self._set_state(claim, "sending"),
            on_retry=lambda: self._set_state(claim, "claimed"),
        )
        try:
            answer = await post(sending)
        except BaseException as error:
            if had_no_effect(error, sending):
                await self._release(claim)
            raise
        result = result_of(answer)
        what = f"{claim.operation} with dedupe_key {printable(claim.key, 80)!r}: {printable(result, 80)}"
        is_recorded = False

        async def record() -> None:
            nonlocal is_recorded
            rule = partial(claims.record, key=claim.key, result=result, token=claim.token)
            recorded = await self._change(rule, keep=self.store.keep)
            is_recorded = True
            if not recorded:
                log.warning("%s was not recorded: its key was changed by hand", what)

        try:
            await self.recordings.insist(record, f"{what} was not recorded; resolve its key", RECORD_PATIENCE)
        finally:
            if not is_recorded:
                log.warning("%s is not recorded yet", what)
        return answer

    async def _set_state(self, claim: Claim, state: Literal["claimed", "sending"]) -> None:
        if not await self._change(partial(claims.set_state, ours=claim, state=state)):
            raise ClaimLostError("another call has taken over the dedupe_key; nothing was sent")

    async def _release(self, claim: Claim) -> None:
        await self.recordings.insist(
            lambda: self._change(partial(claims.release, ours=claim)),
            f"dedupe_key {printable(claim.key, 80)!r} was not released; nothing was started, so forget it",
            RELEASE_PATIENCE,
        )

    async def _change(
        self,
        rule: Callable[[Snapshot], tuple[claims.Changes, T]],
        *,
        keep: float | None = None,
    ) -> T:
        return await change(self.store, claim_keys(self.claim.key), rule, keep=keep)
