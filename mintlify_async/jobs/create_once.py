"""Creating a job at most once per ``dedupe_key``.

A claim is recorded before the request is sent, and the job's id after it was
answered. A request whose claim has no job id may have been sent, and is never
sent again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from ..errors import (
    APIConnectionError,
    APIStatusError,
    ConfigurationError,
    OutcomeUnknownError,
    QuotaExceededError,
    printable,
)
from ..model.job import Job
from ..runtime.cancellation import finish_shielded
from ..runtime.clock import Clock
from ..storage.conversations import check_name
from ..storage.ledger import Claim, Ledger

_log = logging.getLogger("mintlify_async")

KEY_MAX_CHARACTERS: Final = 512
"""Longest key. Every database takes a primary key of this length; a whole prompt is not meant to be one."""

FIRST_PAUSE: Final = 0.05
"""Seconds until the outcome of another call's claim is first read again; a creation takes about 0.2 s.
The pause doubles each time."""

LONGEST_PAUSE: Final = 1.0
"""Longest pause between two such reads, in seconds."""


def fingerprint(project_id: str, prompt: str) -> str:
    """Return a hash that identifies the project and the prompt without containing them."""
    text = f"{len(project_id)}:{project_id}{prompt}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def had_no_effect(error: BaseException) -> bool:
    """Return whether *error* proves that a POST started nothing: it was not sent, or was refused."""
    if isinstance(error, APIConnectionError):
        return error.sent == "no"
    if isinstance(error, APIStatusError):
        return 400 <= error.status < 500  # a 303 would mean that it was done; a 5xx proves nothing
    return isinstance(error, QuotaExceededError | ConfigurationError)


async def create_once(
    ledger: Ledger,
    key: str,
    fingerprint: str,
    lease: float,
    send: Callable[[], Awaitable[Job]],
    clock: Clock,
) -> str | Job:
    """Create a job unless *key* already has one; never send its request twice.

    Args:
        ledger: Where the claims are kept.
        key: Names this creation, for good and for every process that shares the ledger.
        fingerprint: What :func:`fingerprint` returns for the project and the prompt.
        lease: How long other calls wait for the outcome, in seconds: the request's
            timeout and a little more.
        send: Sends the one POST.
        clock: The session's clock.

    Returns:
        The new job; or the id of the job that the key already has.

    Raises:
        ConfigurationError: The key is invalid, or was used for another prompt or project.
        OutcomeUnknownError: Another call claimed the key, and its outcome is not known.
        MintlifyError: What *send* or the ledger raises. The key becomes free again only
            when the error proves that nothing was started.
    """
    check_name(key, "dedupe_key", max_characters=KEY_MAX_CHARACTERS)
    while True:
        now = clock.wall()
        ours = Claim(
            key=key, fingerprint=fingerprint, token=uuid.uuid4().hex, claimed_at=now, lease_until=now + lease
        )
        held = await _claim(ledger, ours)
        if held.token == ours.token:
            return await _send(ledger, ours, send)
        job_id = await _outcome_of(ledger, held, ours, clock)
        if job_id is not None:
            return job_id


def check_key(key: object) -> str:
    """Return *key* when it can be a ``dedupe_key``."""
    return check_name(key, "dedupe_key", max_characters=KEY_MAX_CHARACTERS)


async def send_once(
    ledger: Ledger, key: str, fingerprint: str, lease: float, send: Callable[[], Awaitable[str]], clock: Clock
) -> str:
    """Send a follow-up unless *key* already has one; return its turn's reference.

    As for :func:`create_once`; *send* returns the reference, and the ledger keeps it in the place of
    the job's id, so that every caller with this key waits for the same turn.
    """

    async def post() -> Job:
        return Job(id=await send(), status="active")  # the ledger keeps the id

    try:
        turn = await create_once(ledger, key, fingerprint, lease, post, clock)
    except OutcomeUnknownError as error:
        if error.operation == "create_job":  # another call's claim: the text is about creations
            error.operation = "send_message"
            error.args = (
                f"a follow-up with dedupe_key {printable(key)!r} was begun and its outcome never recorded: "
                "it may have been accepted. Look at the dashboard, then call the ledger's "
                "resolve(key, job_id) or forget(key)",
            )
        raise
    return turn if isinstance(turn, str) else turn.id


async def _claim(ledger: Ledger, ours: Claim) -> Claim:
    """Claim the key. When the call is cancelled meanwhile, release the claim: nothing was sent yet."""
    try:
        held = await finish_shielded(ledger.claim(ours))
        await asyncio.sleep(0)  # the last point at which a cancellation is certain to have sent nothing
    except BaseException:
        await _release(ledger, ours)
        raise
    return held


async def _send(ledger: Ledger, ours: Claim, send: Callable[[], Awaitable[Job]]) -> Job:
    """Send the request and record its job. An outcome that is not certain leaves the claim open."""
    try:
        job = await send()
    except Exception as error:
        if had_no_effect(error):
            await _release(ledger, ours)
        raise
    try:
        await finish_shielded(ledger.record(ours, job.id))
    except Exception:  # the job exists and is paid for: a broken ledger must not lose it
        _log.exception("job %s was created, but the ledger did not record it", printable(job.id))
    return job


async def _release(ledger: Ledger, ours: Claim) -> None:
    """Release the claim. When the ledger fails, the claim stays open and the first error is raised."""
    try:
        await finish_shielded(ledger.release(ours))
    except Exception:
        _log.exception("the ledger did not release a claim whose request was not sent; see open_claims()")


async def _outcome_of(ledger: Ledger, held: Claim, ours: Claim, clock: Clock) -> str | None:
    """Wait for the outcome of another call's claim; return its job id, or None when it was released."""
    pause = FIRST_PAUSE
    found: Claim | None = held
    while found is not None:
        if found.fingerprint != ours.fingerprint:
            raise ConfigurationError(
                f"dedupe_key {printable(ours.key)!r} was used for another prompt or project; use another key",
                field="dedupe_key",
            )
        if found.job_id is not None:
            return found.job_id
        left = found.lease_until - clock.wall()
        if left <= 0:
            raise _unknown(found)
        await clock.sleep(min(pause, left))
        pause = min(LONGEST_PAUSE, pause * 2)
        found = await ledger.find(ours.key)
    return None


def _unknown(claim: Claim) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"a creation with dedupe_key {printable(claim.key)!r} was begun and its outcome never recorded: the "
        "job may exist. Look at the dashboard, then call the ledger's resolve(key, job_id) or forget(key)",
        operation="create_job",
        sent_at=claim.claimed_at,
        reason="not_recorded",
    )
